"""What tables and charts of a run read: its rows and its curves."""

import math
from typing import Any

import numpy as np
import pytest
from known import known
from made_results import RANDOM_NUMBER, canary, estimate, made, sampled, searched, small_result

from lmexposure.core.charts import class_styles
from lmexposure.statistics import Estimate, Method, roc_curve
from lmexposure.studies import Extraction, Scores
from lmexposure.studies.exposure.charts import roc_lines
from lmexposure.studies.exposure.rows import CanaryRow, canary_rows, class_rows, reference_bits


def test_candidates_left_out_count_as_references() -> None:
    made_of: dict[str, Any] = {"inclusion_probability": 0.5, "canaries": 30, "repetitions": (1,)}
    result = small_result(**made_of, formats=("pin", "tiny"))
    roles = ["reference"] * 3 + ["held_out", "canary"]
    scores = Scores(
        ids=np.array([str(n) for n in range(5)]),
        formats=np.array(["pin", "pin", "tiny", "pin", "pin"]),
        roles=np.array(roles),
        repetitions=np.zeros(5, int),
        log_perplexity_bits=np.arange(5.0),
    )
    scored = result.with_scores(scores)
    assert reference_bits(scored, "pin").tolist() == [0.0, 1.0, 3.0]
    assert reference_bits(result, "pin").size == 0


def test_a_class_says_what_the_summary_says() -> None:
    result = small_result()
    row = class_rows(result, result.formats[0])[2]
    said = next(one for one in result.summary if one.repetitions == 4)
    assert (row.median, row.epsilon) == (said.median, known(said.epsilon))
    assert row.p_value == known(said.guessing_test).p_value
    assert row.counted == said.methods["exact"]
    assert [one.given for one in row.tries] == [1, 10, 100, 1000]
    assert row.tries[-1].found == sum(
        any(search.method == "best_first" and search.found for search in one.extraction)
        for one in result.canaries
        if one.repetitions == 4
    )
    assert row.tries[-1].by_chance == pytest.approx(10 * 1000 / 10**9)


def test_controls_come_first_and_have_no_epsilon() -> None:
    result = small_result(repetitions=(4, 1))
    rows = class_rows(result, result.formats[0])
    assert [(row.role, row.repetitions) for row in rows] == [
        ("control", 0),
        ("canary", 1),
        ("canary", 4),
    ]
    assert rows[0].epsilon is None


def test_with_some_revealed_the_better_search_counts() -> None:
    result = small_result()
    row = class_rows(result, result.formats[0])[2]
    assert [one.given for one in row.revealed] == [0, 1, 2]
    by_method = {
        (count.method, count.revealed): count.found
        for count in next(r for r in result.summary if r.repetitions == 4).extraction
    }
    for found in row.revealed:
        both = (by_method["greedy", found.given], by_method["beam", found.given])
        assert found.found == max(both)
    assert row.revealed[1].by_chance == 10 * 100 / 10**8


def test_chance_in_a_small_space_is_at_most_all() -> None:
    result = small_result(formats=("tiny",), canaries=5, controls=4)
    row = class_rows(result, result.formats[0])[1]
    assert row.tries[-1].by_chance <= row.tries[-1].of


def canary_row(*searches: Extraction, shown: Estimate | None = None) -> CanaryRow:
    """Of a canary of which this is known."""
    made_of = canary(0, shown or sampled(3.0, 2.0, 4.0), extraction=searches)
    (row,) = canary_rows(made([made_of], controls=None), "random_number")
    return row


def _found(
    method: str, revealed: int, place: int | None, *, chance: float = 0.0, proven: int = 1000
) -> Extraction:
    proven_of = proven if method == "best_first" else None
    parts: dict[str, Any] = {"method": method, "revealed": revealed, "proven": proven_of}
    return searched(100, place=place, by_chance=chance, **parts)


def test_guesses_are_those_of_a_proven_order_with_nothing_given() -> None:
    row = canary_row(_found("greedy", 0, 1), _found("best_first", 0, 77))
    assert (row.guesses, row.guesses_proven, row.revealed) == (77, 1000, 0)
    row = canary_row(_found("beam", 0, 5), _found("best_first", 0, None))
    assert (row.guesses, row.guesses_proven) == (None, 1000)
    assert canary_row().guesses_proven is None
    assert canary_row(_found("best_first", 0, None, proven=0)).guesses_proven is None


def test_a_counted_rank_says_how_many_guesses_it_takes() -> None:
    def placed(method: Method, *, capped: bool = False) -> Estimate:
        bits = math.log2(RANDOM_NUMBER) - math.log2(736_461)
        return estimate(method, bits, rank=736_461, place=736_486, capped=capped)

    unfound = _found("best_first", 0, None)
    assert canary_row(unfound, shown=placed("exact")).guesses == 736_486
    assert canary_row(_found("best_first", 0, 77), shown=placed("exact")).guesses == 77
    assert canary_row(unfound, shown=placed("bounded", capped=True)).guesses is None
    assert canary_row(unfound, shown=placed("importance")).guesses is None


def test_what_chance_would_have_found_is_not_found() -> None:
    easy, found = _found("beam", 3, 9, chance=0.5), _found("greedy", 4, 1, chance=0.1)
    assert canary_row(easy).revealed is None
    assert canary_row(easy, found).revealed == 4


def test_an_exposure_says_how_it_was_estimated() -> None:
    rows = canary_rows(small_result(), "random_number")
    capped = [row for row in rows if row.capped]
    assert {row.method for row in rows} == {"sampled", "exact"}
    assert all(row.rank == 1 and row.method == "sampled" for row in capped)
    assert capped


def scores_of(inside: list[float], outside: list[float], repetitions: int = 1) -> Scores:
    """Bits of canaries and references of one format."""
    m, n = len(inside), len(outside)
    return Scores(
        ids=np.array([f"x/{i}" for i in range(m + n)]),
        formats=np.full(m + n, "x"),
        roles=np.array(["canary"] * m + ["reference"] * n),
        repetitions=np.array([repetitions] * m + [0] * n),
        log_perplexity_bits=np.array(inside + outside, dtype=float),
    )


def curves_of(scores: Scores, *, pooled: bool = False) -> tuple[Any, ...]:
    return roc_lines(scores, class_styles([1]), pooled=pooled, level=0.95)


def test_lower_log_perplexity_is_more_likely_in() -> None:
    (curve,) = curves_of(scores_of([1, 2, 5], [3, 4, 6, 7]))
    assert curve.name == "x, repetitions 1"
    assert (curve.positives, curve.edge) == (3, 1 / 4)
    area, low, high = curve.area
    assert area == pytest.approx(10 / 12)
    assert low < area < high
    points = list(zip(curve.fpr.tolist(), curve.tpr.tolist(), strict=True))
    assert points[0] == (0, 0)
    assert points[-1] == (1, 1)
    assert (0, 2 / 3) in points


def test_pooled_formats_are_the_classes_that_the_metrics_see() -> None:
    """A format without references leaves out those of the others, which would bend the curve."""
    rng = np.random.default_rng(4)
    coins, references = rng.random(240) < 0.5, 2000
    roles = [*np.where(coins, "canary", "held_out").tolist(), *["reference"] * references]
    scores = Scores(
        ids=np.array([f"x/{i}" for i in range(len(roles))]),
        formats=np.append(np.repeat(np.arange(12), 20), np.repeat([0, 1], references // 2)).astype(
            str
        ),
        roles=np.array(roles),
        repetitions=np.append(np.ones(240, int), np.zeros(references, int)),
        log_perplexity_bits=rng.normal(size=len(roles)),
    )
    (curve,) = curves_of(scores, pooled=True)
    assert (curve.positives, curve.edge) == (coins.sum(), 1 / (~coins).sum())
    _, low, high = curve.area
    assert low < 0.5 < high
    # Places on 20 steps: no threshold parts what is above all candidates of a format from the rest.
    assert curve.fpr.size <= 21


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_thinning_moves_the_curve_by_less_than_an_eye_sees(shift: float) -> None:
    draw = np.random.default_rng(3)
    inside, outside = draw.normal(-shift, 1, 1000), draw.normal(0, 1, 50_000)
    (curve,) = curves_of(scores_of(inside.tolist(), outside.tolist()))
    assert curve.fpr.size <= 402
    assert (np.diff(curve.fpr) >= 0).all()
    assert (np.diff(curve.tpr) >= 0).all()
    whole = roc_curve(-inside, -outside)
    # No point is further from the drawn curve than a hundredth of either axis.
    for fpr, tpr in zip(whole.fpr.tolist(), whole.tpr.tolist(), strict=True):
        assert curve.tpr[curve.fpr <= fpr * 1.13].max() >= tpr
        assert curve.tpr[curve.fpr >= fpr / 1.13].min() <= tpr
    assert curve.area[0] == pytest.approx(whole.area)


def test_the_hull_lies_above_the_curve() -> None:
    draw = np.random.default_rng(5)
    scores = scores_of(draw.normal(-1, 1, 40).tolist(), draw.normal(0, 1, 300).tolist())
    (curve,) = curves_of(scores)
    assert curve.hull is not None
    above = np.interp(curve.fpr, *curve.hull)
    # Where the curve climbs straight up, its lower end is far below.
    assert (above >= curve.tpr - 1e-12).all()
    assert (np.diff(curve.hull[0]) >= 0).all()


def test_a_class_without_others_has_no_curve() -> None:
    assert curves_of(scores_of([1, 2], [])) == ()
