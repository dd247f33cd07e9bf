"""A comparison of defences in words, on a page, in a table."""

import csv
import io
from pathlib import Path

from known import known
from tiny_defences import made_record, made_row

import lmexposure as lx
from lmexposure.core import as_markdown, write_report
from lmexposure.core.render import as_csv, as_page
from lmexposure.studies import Defences

_NONE = made_row("none", 0.9, ratio=1.0, target=1.0)


def _names(record: Defences, title: str) -> list[str]:
    sections = record.document().sections
    table = next(each.table for each in sections if each.title.startswith(title))
    return [row[0] for row in known(table).cells]


def test_who_shows_least_comes_first_behind_the_undefended() -> None:
    record = made_record(_NONE, made_row("hamp", 0.6), made_row("dp-sgd", 0.1))
    assert _names(record, "Defences at one utility") == ["none", "dp-sgd", "hamp"]
    found = record.finding
    assert "dp-sgd gives away least of the canaries: TPR at FPR 1 % 0.100" in found
    assert "it differs from every other method, and from no defence," in found


def test_no_winner_is_named_that_is_not_told_from_none() -> None:
    """Early stopping .016 beside none .013: the lower number was the undefended one's."""
    record = made_record(made_row("none", 0.013), made_row("early-stop", 0.016))
    found = record.finding
    assert found.startswith(
        "early-stop and none cannot be told apart, so no defence is shown to give"
    )
    assert "TPR at FPR 1 % 0.016, without a defence 0.013" in found
    for text in (found, as_markdown(record.document()), as_page(record.told())):
        assert "gives away least" not in text


def test_no_winner_is_named_that_is_not_told_from_the_second() -> None:
    methods = (made_row("selena", 0.3), made_row("relaxloss", 0.301), made_row("goldfish", 0.305))
    found = made_record(_NONE, *methods).finding
    assert found.startswith(
        "selena, relaxloss and goldfish cannot be told apart, so none of them is shown to give "
        "away least (TPR at FPR 1 % between 0.300 and 0.305, without a defence 0.900)"
    )
    without_interval = made_record(_NONE, made_row("hamp", 0.1), made_row("selena", None))
    assert "hamp and selena cannot be told apart" in without_interval.finding
    apart = made_row("dropout", 0.301, ranked=False, why="less useful")
    assert "selena gives away least" in made_record(_NONE, methods[0], apart).finding


def test_what_misses_the_utility_is_apart_and_not_ranked() -> None:
    missed = made_row("selena", 0.01, ranked=False, why="less useful than the target by 4.0%")
    record = made_record(_NONE, made_row("hamp", 0.8), missed, failed={"dropout": "too costly"})
    assert _names(record, "Defences at one utility") == ["none", "hamp"]
    assert _names(record, "Not at the target") == ["selena"]
    assert _names(record, "Left out") == ["dropout"]
    assert "hamp and none cannot be told apart" in record.finding


def test_nothing_is_ranked_where_nothing_is_at_the_target() -> None:
    missed = made_row("selena", 0.01, ranked=False, why="less useful")
    assert "nothing is ranked" in made_record(_NONE, missed).finding
    unresolved = made_record(made_row("none", None), made_row("hamp", None))
    assert "no attack has a number" in unresolved.finding
    assert not unresolved.document().drawings()
    assert "methods-table" in as_page(unresolved.told())


def test_a_vacuous_epsilon_is_named_as_what_it_is() -> None:
    record = made_record(_NONE, made_row("dp-sgd", 0.1, epsilon=1234.5, delta=1e-5))
    beside = next(each for each in record.document().sections if "cost" in each.title)
    assert any("promises nothing" in note for note in beside.notes)
    assert "| 1,234.5 |" in as_markdown(record.document())


def test_names_are_escaped_in_every_rendering() -> None:
    evil = "<script>alert(1)</script>\x1b[31m"
    record = made_record(_NONE, made_row(evil, 0.3), warnings=(evil,))
    page = as_page(record.told())
    assert "<script>alert" not in page
    assert "\x1b" not in page + as_markdown(record.document()) + as_csv(record.document())


def test_the_chart_and_the_table_for_other_tools_have_every_method(tmp_path: Path) -> None:
    record = made_record(_NONE, made_row("hamp", 0.6))
    (chart,) = record.document().drawings()
    assert "none 0.900" in chart.description
    assert "hamp 0.600" in chart.description
    assert "<svg" in chart.svg()
    rows = list(csv.DictReader(io.StringIO(as_csv(record.document()))))
    assert [row["method"] for row in rows] == ["none", "hamp"]
    assert float(rows[1]["canary_tpr"]) == 0.6
    written = write_report(record, tmp_path, formats=("html", "md", "csv"))
    assert [path.name for path in written] == ["report.html", "report.md", "report.csv"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in written)


def test_the_gate_takes_the_defence_that_shows_least() -> None:
    """By the ends of its interval, .5 to .7; what is shown on both sides is open."""
    record = made_record(_NONE, made_row("hamp", 0.6), made_row("selena", 0.8))
    for most, outcome in ((0.75, "pass"), (0.6, "inconclusive"), (0.4, "leak")):
        verdict = lx.check(record, lx.Thresholds(max_worst_tpr=most))
        assert verdict.outcome == outcome
        assert "of the canaries of hamp at FPR 1 %" in verdict.sentence
    told = "Inconclusive: nothing was judged; see what was not tested."
    assert lx.check(record).sentence == told
    wide = made_row("dropout", 0.31)
    strongest = known(wide.strongest).model_copy(update={"low": 0.02, "high": 0.75})
    wide = wide.model_copy(update={"strongest": strongest})
    record = made_record(_NONE, made_row("hamp", 0.3), wide)
    verdict = lx.check(record, lx.Thresholds(max_worst_tpr=0.15))
    assert verdict.outcome == "inconclusive"
    assert "dropout may be below it" in verdict.sentence
    nothing = made_record(_NONE, made_row("hamp", 0.1, ranked=False, why="less useful"))
    verdict = lx.check(nothing, lx.Thresholds(max_worst_tpr=0.9))
    assert (verdict.outcome, "nothing is ranked" in verdict.sentence) == ("inconclusive", True)
