"""A result in words: what its tables hold, also beside a base, and a legend of what is there."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from exposure.charts.made import canary as canary_row
from exposure.charts.made import format_data as format_data_of
from exposure.charts.made import texts
from known import known
from made_results import (
    assumed,
    canary,
    class_row,
    context,
    exact,
    form,
    made,
    privacy,
    sampled,
    small_manifest,
    small_result,
    small_run,
    with_result,
)

from lmexposure.core import Section, inline
from lmexposure.core.render import as_json, as_markdown, as_page
from lmexposure.errors import ManifestError, SettingsError
from lmexposure.studies import NOT_COVERED, DpClaim, Result, privacy_sections
from lmexposure.studies.exposure.charts_exposure import _evenly, calibrated_chart
from lmexposure.studies.exposure.checks import rows_unknown
from lmexposure.studies.exposure.facts import command_of, model_facts, scored_in
from lmexposure.studies.exposure.model_card import evaluation_results
from lmexposure.studies.exposure.rows import class_rows, format_data
from lmexposure.studies.exposure.tables import found_cell, primary_words, promise_section


def every(sections: Sequence[Section]) -> Iterator[Section]:
    """On a terminal."""
    for section in sections:
        if "terminal" in section.on:
            yield section
            yield from every(section.parts)


def sections(result: Result) -> dict[str, Section]:
    """By the beginning of their titles."""
    return {section.title.split(",")[0]: section for section in every(result.document().sections)}


def column(section: Section, head: str) -> list[str]:
    assert section.table is not None
    return [row[section.table.heads.index(head)] for row in section.table.cells]


@pytest.fixture(scope="module")
def found() -> dict[str, Section]:
    return sections(small_result())


def test_every_class_has_its_row_and_guessing_stands_last(found: dict[str, Section]) -> None:
    table = found["Exposure in bits"]
    assert column(table, "repetitions") == ["controls", "1×", "4×", "guessing"]
    assert column(table, "canaries") == ["16", "10", "10", ""]
    assert column(table, "median")[2:] == ["20.82", "1.00"]
    assert column(table, "epsilon (point)")[0] == "n/a"
    assert "1,000,000,000 possible secrets (29.9 bits), 400 references" in table.title


def test_secrets_found_by_guesses_and_by_characters_known() -> None:
    both = [
        section.table.heads
        for section in every(small_result().document().sections)
        if section.title.startswith("Secrets found") and section.table is not None
    ]
    assert both == [
        ["repetitions", "1 guess", "10 guesses", "100 guesses", "1,000 guesses"],
        ["repetitions", "0 known", "1 known", "2 known"],
    ]
    assert found_cell(None) == "n/a"


def terms(result: Result) -> list[str]:
    shown = sections(result)
    lines = [*shown["How to read these tables"].notes, *shown["Extraction"].notes]
    return list(dict.fromkeys(line.split(":")[0] for line in lines))


def test_the_legend_explains_what_is_there_and_nothing_else() -> None:
    bare = made([canary(i, exact(2.0), guesses=None) for i in range(4)], controls=None)
    heads = ["interval", "exact", "p (chance)", "proven lower bound", "skew-normal"]
    assert terms(bare) == [*heads, "epsilon (point)"]
    capped = made([canary(i, sampled(13.288, 11.4, 29.9, capped=True)) for i in range(4)])
    assert terms(capped) == [*heads, "epsilon (point)", "≥"]
    assert {"guesses", "known", "(!)"} <= set(terms(small_result()))


def test_what_is_a_lower_bound_says_so() -> None:
    shown = [sampled(13.288, 11.4, 29.9, capped=True), *(exact(2.0) for _ in range(3))]
    drawn = [canary(i, one) for i, one in enumerate(shown)]
    row = class_row(drawn)
    top = replace(row.median, low=2.0, high=math.log2(10_000))
    summary = [replace(row, median=top)]
    table = sections(made(drawn, summary=summary))["Exposure in bits"]
    assert column(table, "mean")[0].startswith("≥ ")
    assert column(table, "median")[0] == "2.00"
    assert column(table, "interval")[0] == "2.00 .. ≥ 13.29"


def test_an_extrapolation_that_nothing_vouches_for_is_marked() -> None:
    drawn = [canary(i, exact(20.0)) for i in range(4)]
    parts: dict[str, Any] = {"other_medians": {"skew_normal": 31.5, "certificate": None}}
    result = made(drawn, summary=[class_row(drawn, **parts)])
    table = sections(result)["Exposure in bits"]
    assert column(table, "skew-normal") == ["31.50 (!)", ""]
    assert column(table, "proven lower bound") == ["n/a", ""]
    assert "(!)" in terms(result)


def test_a_space_too_large_for_a_float_has_its_size() -> None:
    large = made([canary(0, exact(3.0), size=16**1000)], size=16**1000)
    assert "1.32e+1204 possible secrets (4,000.0 bits)" in sections(large)["Exposure in bits"].title


def test_a_format_without_canaries_has_no_table() -> None:
    result = made([canary(0, exact(3.0))])
    assert class_rows(result, form("pin")) == ()


def test_the_bound_to_quote_and_what_it_rests_on() -> None:
    title, notes = primary_words(privacy(1.23456, 3.45678))
    assert title.startswith("epsilon ≥ 1.235 nats at delta 1e-05, a lower bound (one-run")
    assert notes[0].startswith("any private training: holds by the coins alone")
    assert notes[1].startswith("max attainable 3.457: the most that a perfect attack")


def test_bounds_of_each_class_and_a_legend_of_their_kinds() -> None:
    head, part, legend, quoted = privacy_sections(privacy(1.2, None, claimed=8.0))
    assert "no inclusion probability is declared" in head.title
    assert part.title == "random_number, repetitions 1: 32 inserted, 0 held out, 10,000 references"
    assert part.table is not None
    assert part.table.heads[4] == "max attainable"
    (row,) = part.table.cells
    assert row == [
        "one-run audit, primary",
        "any private training",
        "1e-05",
        "1.200",
        "n/a",
        "0.025",
    ]
    assert part.notes == ("made by hand",)
    assert [line.split(":")[0] for line in legend.notes] == ["primary", "any private training"]
    assert quoted.notes[-1] == "claim of epsilon 8 at delta 0: not decided: so"


def test_without_a_bound_it_says_why() -> None:
    none = privacy(None)
    assert [section.table for section in privacy_sections(none)] == [None] * 3
    why = "No bound on epsilon: no class has both inserted and held out canaries."
    assert primary_words(none)[0] == why
    assert primary_words(None)[0] == "No bound on epsilon: the result holds none."


def test_guessing_that_would_find_as_many_is_in_brackets(found: dict[str, Section]) -> None:
    row = class_rows(small_result(), small_result().formats[0])[-1]
    cell = replace(row.tries[-1], found=8, of=10, by_chance=4.0)
    assert found_cell(cell) == "(8/10)"


def test_a_report_says_in_which_rows_it_was_scored() -> None:
    assert rows_unknown(small_result()) is False
    for record, unknown in ((context(), False), (assumed(), True)):
        result = small_result().model_copy(update={"context": record})
        said = scored_in(record)
        assert rows_unknown(result) is unknown
        assert said in sections(result)["Exposure"].said
        assert inline(said) in as_markdown(result.told())
        assert said in as_page(result.told()).replace("&#39;", "'")
        (verdict,) = [r for r in evaluation_results(result) if r.metric_type == "verdict"]
        assert (verdict.metric_args or {})["scored"] == said


def test_secrets_need_the_manifest_that_was_measured(measured: Result) -> None:
    with pytest.raises(SettingsError, match="give the manifest too, or leave the secrets out"):
        measured.told(show_secrets=True)
    with pytest.raises(ManifestError, match="give the manifest that was measured"):
        measured.with_manifest(small_manifest(seed=5))
    known = measured.with_manifest(small_manifest())
    shown = known.told(show_secrets=True)
    assert all(row["secret"] for row in shown.main.values)
    assert shown.private
    assert shown.secrets
    assert "secret" not in known.told().main.values[0]
    assert "The random number is {digits:9}" in as_page(known.told())


CLAIM = DpClaim(
    method="dp-sgd",
    sampler="poisson",
    accountant="prv",
    unit="document",
    adjacency="add or remove one",
    epsilon=3.9979,
    epsilon_rdp=4.56,
    delta=1e-5,
    noise_multiplier=1.07,
    clip=0.3,
    sample_rate=0.0626,
    steps=160,
    units=1565,
    largest_group=1,
    noise_is_given=False,
    not_covered=NOT_COVERED,
)


def test_all_that_was_promised_is_said_and_what_was_not() -> None:
    section = promise_section(CLAIM)
    said = dict(zip(column(section, "what"), column(section, "value"), strict=True))
    assert said["promised epsilon"] == "3.998 nats at delta 1e-05 (PRV accountant)"
    assert said["unit"] == "one document; add or remove one"
    assert said["units"] == "1,565"
    assert [f"not covered: {line}" for line in NOT_COVERED] == list(section.notes[1:])
    users = {"unit": "user", "largest_group": 7, "noise_is_given": True}
    section = promise_section(CLAIM.model_copy(update=users))
    assert "all documents of one value of 'user'; add or remove one" in column(section, "value")
    assert "does not hold against those who know it" in section.notes[-1]
    assert str(CLAIM).startswith("epsilon 3.998 at delta 1e-05 for each of 1,565 documents after")


LIKELY: dict[str, Any] = {"base": True, "canaries": 5, "controls": 6}


def test_a_table_beside_the_base() -> None:
    table = known(sections(small_result(**LIKELY))["Calibrated exposure in bits"].table)
    assert table.heads == [
        *("repetitions", "canaries", "calibrated", "interval", "mean", "p (chance)"),
        *("under the base", "added", "likelier by", "references likelier by"),
    ]
    rows = {row[0]: dict(zip(table.heads, row, strict=True)) for row in table.cells}
    assert list(rows) == ["controls", "1×", "4×", "guessing"]
    assert rows["4×"]["calibrated"].startswith("≥ ")  # memorised: above all references
    assert float(rows["1×"]["calibrated"]) < 3
    assert rows["guessing"]["mean"] == "1.44"
    assert "Calibrated exposure in bits" not in sections(small_result())


def test_its_heads_are_explained() -> None:
    said = "\n".join(sections(small_result(**LIKELY))["How to read these tables"].notes)
    for head in ("calibrated: ", "under the base: ", "added: ", "likelier by: "):
        assert head in said


def test_the_chart_tells_what_was_likely_anyway() -> None:
    charts = small_result(**LIKELY).document().drawings()
    (chart,) = (chart for chart in charts if chart.kind == "calibrated")
    assert chart.description.startswith(
        "Of 10 canaries, 5 have a calibrated exposure above 4.32 bits, where the middle 90 % of "
        "guessing ends, and 1 lay above that before the training. Medians: controls "
    )
    shown = set(texts(chart))
    assert {"1×", "4×", "controls", "lower bound", "middle 90 % of guessing"} <= shown
    assert "Exposure under the base (bits)" in shown


def test_nothing_is_drawn_without_a_base() -> None:
    plain = small_result()
    forms = [format_data(plain, form, None) for form in plain.formats]
    assert [form.beside_base for form in forms] == [()]
    assert [calibrated_chart(form) for form in forms] == [None]
    assert "alibrated" not in as_page(plain.told()) + as_markdown(plain.told())


def test_of_very_many_dots_some_are_drawn() -> None:
    shown = _evenly(range(5000), 2000)
    assert len(shown) == 2000
    assert (shown[0], shown[-1]) == (0, 4999)
    dots = [canary_row(1.0, base_exposure=1.0, calibrated_exposure=n / 1000) for n in range(5000)]
    chart = known(calibrated_chart(format_data_of(canaries=tuple(dots))))
    assert 1990 < chart.svg().count("<use ") < 2030


def test_page_and_markdown_and_json_have_it() -> None:
    told = small_result(**LIKELY).told()
    page, markdown = as_page(told), as_markdown(told)
    assert "Calibrated exposure beside the base, random_number" in page
    for text in (page, markdown):
        assert "Calibrated exposure in bits" in text
        assert "under the base" in text
    assert '"calibrated_exposure"' in as_json(told)


def test_facts_and_command_name_the_base(tmp_path: Path) -> None:
    run = Result.read(small_run(tmp_path / "run", whole=False, **LIKELY))
    facts = {fact.name: fact.value for fact in model_facts(run.files)}
    assert facts["base"] == "before"
    assert facts["weights of the base, SHA-256"] == "3" * 64
    assert " --base before" in command_of(run.files)
    off = known(run.base).model_copy(update={"switched_off": True})
    switched = with_result(run, base=off)
    assert " --base adapter-off" in command_of(switched.files)
    assert {f.name: f.value for f in model_facts(switched.files)}["base"].endswith("switched off")
