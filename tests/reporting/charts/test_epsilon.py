import pytest
from report.charts.made import bound, privacy, texts

from lmexposure.reporting.charts import epsilon
from lmexposure.reporting.charts.epsilon import _limit


def test_the_message_is_said_in_words() -> None:
    chart = epsilon(privacy())
    assert chart is not None
    assert chart.title == "Lower bounds on epsilon, pin, 8 repetitions"
    assert chart.description == (
        "Lower bounds on epsilon in nats, higher = less private, from pin, 8 repetitions, the "
        "primary one first at delta 1e-5: one_run_audit ≥ 0.9 (3 at most); epsilon_from_exposure "
        "with coins ≥ 0.5 (3 at most); one_run_audit ≥ 1.5 (3 at most). Claimed is 2."
    )
    written = texts(chart)
    assert "primary: one_run_audit ≥ 0.9" in written
    assert {"any-dp: any training", "other", "claimed: 2"} <= set(written)
    assert "Epsilon (nats) at delta 1e-5, higher = less private" in written


def test_without_a_quoted_bound_the_largest_class_is_shown() -> None:
    chart = epsilon(privacy(primary=None, claim=None))
    assert chart is not None
    assert chart.title.endswith("pin, 1 repetition")
    assert "Claimed" not in chart.description


def test_different_deltas_stand_at_each_bound() -> None:
    found = privacy(primary=None)
    found["classes"][0]["bounds"]["others"] = [bound(0.3, delta=0.0, ceiling=None)]
    chart = epsilon(found)
    assert chart is not None
    written = texts(chart)
    assert "primary: one_run_audit ≥ 0.1 at delta 1e-5" in written
    assert "one_run_audit ≥ 0.3 at delta 0" in written


@pytest.mark.parametrize(
    "found",
    [None, {}, {"classes": []}, {"classes": [{"bounds": None}]}],
    ids=["none", "empty", "no class", "no bounds"],
)
def test_no_bound_no_chart(found: dict[str, object] | None) -> None:
    assert epsilon(found) is None


def test_a_far_ceiling_does_not_press_the_rest_together() -> None:
    near = [bound(1.0, ceiling=2.0), bound(1.0, ceiling=3.0), bound(1.0, ceiling=None)]
    assert _limit(near, None) == 3.0
    assert _limit([*near, bound(1.0, ceiling=90.0)], None) == 6.0
    assert _limit(near, 5.0) == 5.0
    assert _limit([bound(0.0, ceiling=None)], None) == 0.05
    far = privacy()
    far["classes"][1]["bounds"]["others"].append(bound(1.0, ceiling=90.0, validity="gaussian"))
    chart = epsilon(far)
    assert chart is not None
    assert "(90 at most)" in chart.description
    assert "gaussian: Gaussian trade-off" in texts(chart)
