from reporting.charts.made import bound, bounded_class, privacy, texts

from lmexposure.reporting.charts import epsilon_chart
from lmexposure.reporting.charts.epsilon import _limit


def test_the_message_is_said_in_words() -> None:
    chart = epsilon_chart(privacy())
    assert chart is not None
    assert chart.title == "Lower bounds on epsilon, pin, 8 repetitions"
    assert chart.description == (
        "Lower bounds on epsilon in nats, higher = less private, from pin, 8 repetitions, the "
        "primary one first at delta 1e-05: one-run audit ≥ 0.900 (max attainable 3.000); "
        "from exposure ranks with coins ≥ 0.500 (max attainable 3.000); one-run audit ≥ 1.500 "
        "(max attainable 3.000). Claimed is 2."
    )
    written = texts(chart)
    assert "primary: one-run audit ≥ 0.900" in written
    assert {"any-dp: every private training", "asymptotic: large counts only", "claimed: 2"} <= set(
        written
    )
    assert "Epsilon (nats) at delta 1e-05, higher = less private" in written


def test_without_a_claim_there_is_no_line_of_it() -> None:
    chart = epsilon_chart(privacy(claimed=None))
    assert chart is not None
    assert "Claimed" not in chart.description
    assert not any("claimed" in text for text in texts(chart))


def test_different_deltas_stand_at_each_bound() -> None:
    chart = epsilon_chart(privacy(bound(0.3, delta=0.0, max_attainable=None)))
    assert chart is not None
    written = texts(chart)
    assert "primary: one-run audit ≥ 0.900 at delta 1e-05" in written
    assert "one-run audit ≥ 0.300 at delta 0" in written


def test_no_bound_no_chart() -> None:
    unbounded = bounded_class(bound(0.1)).model_copy(update={"bounds": None})
    nothing = {"primary": None, "claim": None}
    assert epsilon_chart(None) is None
    assert epsilon_chart(privacy().model_copy(update=nothing | {"classes": ()})) is None
    assert epsilon_chart(privacy().model_copy(update=nothing | {"classes": (unbounded,)})) is None


def test_a_far_end_does_not_press_the_rest_together() -> None:
    near = [bound(1.0, max_attainable=most) for most in (2.0, 3.0, None)]
    assert _limit(near, None) == 3.0
    assert _limit([*near, bound(1.0, max_attainable=90.0)], None) == 6.0
    assert _limit(near, 5.0) == 5.0
    assert _limit([bound(0.0, max_attainable=None)], None) == 0.05
    chart = epsilon_chart(privacy(bound(1.0, max_attainable=90.0, validity="gaussian")))
    assert chart is not None
    assert "(max attainable 90.000)" in chart.description
    assert "gaussian: a Gaussian trade-off only" in texts(chart)
