"""What single texts of a sweep change, in words: page, Markdown, terminal, CSV, chart."""

import csv
import io
import re
from typing import Any

import pytest
from known import known
from made_sweeps import made_sweep, sweep_with

from lmexposure.core import Section, Table, as_csv, as_markdown
from lmexposure.core.render import as_page
from lmexposure.studies import CounterfactualGroup, SweepCounterfactual, SweepResult
from lmexposure.studies.sweep_tables import changes_section


def sections(found: SweepCounterfactual, most: int) -> list[Section]:
    return list(changes_section(found, most, "html", None).parts)


def tables(found: SweepCounterfactual, most: int) -> list[Table]:
    return [known(section.table) for section in sections(found, most)]


def made(**parts: Any) -> SweepResult:
    return made_sweep(changes=True, leaking=1, documents_leaking=1, **parts)


def changes_of(result: SweepResult) -> SweepCounterfactual:
    return known(result.counterfactual)


def with_groups(result: SweepResult, *groups: CounterfactualGroup) -> SweepResult:
    found = SweepCounterfactual(**{**dict(changes_of(result)), "groups": groups})
    return sweep_with(result, counterfactual=found)


def test_the_worst_document_comes_first_with_all_that_is_known_of_it() -> None:
    result = made()
    first = sections(changes_of(result), 5)[0]
    assert first.title == "Ordinary documents, the most memorised first"
    documents, canaries, influence = tables(changes_of(result), 5)
    group = known(changes_of(result).group("population"))
    text, row = group.texts[0], dict(zip(documents.heads, documents.cells[0], strict=True))
    means = known(text.memorised)
    assert row == {
        "text": "document/0000",
        "models in": str(text.models_in),
        "models out": str(text.models_out),
        "score in": f"{means.mean_in:.3f}",
        "score out": f"{means.mean_out:.3f}",
        "memorised": f"{means.difference:+.3f}",
        "interval": f"{means.low:.3f} .. {means.high:.3f}",
        "log ratio": f"{4 * means.difference:+.2f}",
        "p (any text)": "0.0100",
        "by halves": f"{group.by_halves[0]:+.3f}",
        "epsilon ≥": "0.250",
    }
    assert 19 < means.difference < 21
    assert len(documents.cells) == len(canaries.cells) == 5
    assert canaries.heads[-3:] == ["greedy in", "greedy out", "interval of the difference"]
    assert canaries.cells[0][-3:] == ["0.500", "0.125", "0.100 .. 0.600"]
    assert influence.cells[0][:2] == ["document/0000", "document/9999"]


def test_what_is_assumed_is_beside_it() -> None:
    result = made()
    group = changes_of(result).groups[1]
    notes = "\n".join(sections(changes_of(result), 5)[0].notes)
    error = f"sd · √(4/S) = {known(group.spread) * (4 / 64) ** 0.5:.3f} bits a token, with sd = "
    assert error in notes
    assert "assumes that half of the models had a text, that both sides spread alike" in notes
    assert "any of the 40 documents" in notes
    assert "99 permutations of whole models" in notes
    assert "in models that were not used to pick the text" in notes
    assert "likeliest next tokens" not in notes


def test_page_markdown_and_terminal_say_the_same() -> None:
    result = made()
    html, text = as_page(result.told()), as_markdown(result.told())
    said = "1 of 40 documents left a trace that chance does not explain"
    assert said in html
    assert said in text
    assert "1 of 32 canaries left a trace" in html
    assert '<section id="changes"' in html
    assert 'id="influence-table"' in html
    assert "coins were few" in html
    assert "coins were few" in text
    assert "less memorised texts" not in html
    much = as_page(made(canaries=230, population=210).told())
    assert "40 less memorised texts are in the CSV file" in much
    assert "32 less memorised texts are in the CSV file" in text
    shown = [section.id for section in result.document().on("terminal")]
    assert shown == ["worst", "changes", "average", "privacy"]


def test_an_older_result_says_nothing_of_it() -> None:
    told = made_sweep().told()
    assert "What single texts change" not in as_page(told)
    assert "What single texts change" not in as_markdown(told)
    assert len(told.on("terminal")) == 3


def test_the_csv_has_canaries_then_documents() -> None:
    result = made()
    rows = list(csv.DictReader(io.StringIO(as_csv(result.document()))))
    assert [row["id"] for row in rows[:32]] == [text.id for text in result.texts]
    assert len(rows) == 72
    canary, document = rows[0], next(row for row in rows if row["id"] == "document/0000")
    assert (canary["tpr"], canary["reproduced_difference"]) == ("1.0", "0.375")
    assert float(canary["memorised_difference"]) > 19
    assert (document["tpr"], document["reproduced_low"]) == ("", "")
    assert document["kind"] == "population"
    first = changes_of(result).groups[1].texts[0]
    assert float(document["memorised_low"]) == known(first.memorised).low
    assert float(document["p_any_text"]) == first.p
    assert document["models_in"] == str(first.models_in)
    older = list(csv.DictReader(io.StringIO(as_csv(made_sweep().document()))))
    assert len(older) == 32
    assert {row["log_ratio"] for row in older} == {""}


def test_a_text_without_a_number_has_none_anywhere() -> None:
    result = made()
    group, *others = changes_of(result).groups
    none = dict.fromkeys(("memorised", "log_ratio", "p", "reproduced"))
    texts = (*group.texts[:-1], group.texts[-1].model_copy(update=none))
    parts = {"texts": texts, "by_halves": (*group.by_halves[:-1], None), "spread": None}
    bare = with_groups(result, CounterfactualGroup(**{**dict(group), **parts}), *others)
    section = sections(changes_of(bare), 100)[1]
    last = known(section.table).cells[-1]
    assert last[3:10] == ["n/a"] * 7
    assert last[-3:] == ["n/a"] * 3
    assert not any("standard error" in note for note in section.notes)
    assert "of 31 with p at most" in chart(bare)
    assert as_page(bare.told())


def chart(result: SweepResult) -> str:
    (found,) = [c for c in result.document().drawings() if c.name == "sweep-counterfactual"]
    assert len(found.svg()) < 100_000
    assert not re.search(r"\d", found.caption)
    return found.description


def test_the_chart_says_what_it_shows() -> None:
    said = chart(made())
    assert re.search(r"ordinary documents: largest \+\d+\.\d{3} \(document/0000\), median", said)
    assert "1 of 40 with p at most 0.05; canaries: largest" in said


@pytest.mark.parametrize(("canaries", "population", "more"), [(1, 2, 0), (520, 700, 220)])
def test_the_chart_is_drawn_of_little_and_of_much(
    canaries: int, population: int, more: int
) -> None:
    said = chart(made(canaries=canaries, population=population, models=40))
    assert (f"The {more} least memorised are not drawn." in said) == bool(more)


def test_no_number_is_no_chart() -> None:
    result = made(canaries=1, population=1)
    group = changes_of(result).groups[1]
    nothing = tuple(text.model_copy(update={"memorised": None}) for text in group.texts)
    bare = with_groups(result, group.model_copy(update={"texts": nothing}))
    assert "sweep-counterfactual" not in [found.name for found in bare.document().drawings()]
