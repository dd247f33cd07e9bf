"""Several runs side by side; what is not comparable is refused by name."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from known import known
from made_results import (
    assumed,
    context,
    small_manifest,
    small_result,
    small_run,
    with_files,
    with_result,
)

from lmexposure.canaries import Format
from lmexposure.core import Document, Section, compare_document
from lmexposure.core.render import as_markdown
from lmexposure.errors import SettingsError
from lmexposure.studies import Result
from lmexposure.studies.exposure.compare import context_differences, setting_differences


def run_of(path: Path, **made_of: Any) -> Result:
    return Result.read(small_run(path, **made_of))


def compared(*runs: Result) -> Document:
    return compare_document([(run.files.name, run) for run in runs])


def section(document: Document, name: str) -> Section:
    return next(one for one in document.sections if one.id == name)


def notes(document: Document) -> tuple[str, ...]:
    return tuple(line for one in document.sections if one.id == "before" for line in one.notes)


def classes(document: Document) -> list[dict[str, str]]:
    """The rows of the first format."""
    table = known(section(document, "exposure").parts[0].table)
    return [dict(zip(table.heads, row, strict=True)) for row in table.cells]


def differences(document: Document) -> list[Any]:
    table = known(section(document, "differences").table)
    return list(table.rows)


def test_each_run_has_its_classes_and_its_verdict(tmp_path: Path) -> None:
    base, tuned = run_of(tmp_path / "base", memorised=()), run_of(tmp_path / "tuned")
    document = compared(base, tuned)
    assert document.finding.startswith("tuned leaks more than base: secrets inserted 4 times are ")
    assert [(row["repetitions"], row["run"], row["references"]) for row in classes(document)] == [
        (name, run, "400") for name in ("controls", "1×", "4×") for run in ("base", "tuned")
    ]
    low, high = classes(document)[4:]
    assert float(low["median"]) < 3 < float(high["median"].removeprefix("≥ "))
    said = section(document, "verdicts").said
    assert [line.split(":")[0] for line in said] == ["base", "tuned"]
    assert said[1].startswith("tuned: Leaks: a secret inserted 4 times is found at guess")
    # The same manifest, so each canary is compared with itself.
    assert [(row.n, row.paired) for row in differences(document)] == [(16, True)] + [(10, True)] * 2
    assert differences(document)[2].p_value < 0.01
    assert notes(document) == ()
    numbers = {row["name"]: row for row in document.main.values}
    assert numbers["median exposure, random_number, 4×"]["tuned"] > 10
    assert numbers["validation loss"]["base"] == 1.5
    text = as_markdown(document)
    assert "| `random_number, 4×` | `tuned` | +" in text
    assert text.count("lmexposure run") == 2


def test_other_canaries_are_compared_class_by_class(tmp_path: Path) -> None:
    document = compared(run_of(tmp_path / "a"), run_of(tmp_path / "b", seed=3))
    assert [row.paired for row in differences(document)] == [False] * 3
    assert notes(document)[0].startswith("b measured another manifest than a")
    assert document.finding.startswith("No difference beyond chance between a and b")


def test_other_settings_are_said(tmp_path: Path) -> None:
    document = compared(run_of(tmp_path / "a"), run_of(tmp_path / "b", references=100))
    assert notes(document) == (
        "a and b were not measured alike (references of random_number 400 and 100): medians are "
        "not directly comparable, and an exposure counts as higher only where its interval shows "
        "it",
    )


def test_classes_and_formats_that_one_run_lacks(tmp_path: Path) -> None:
    one = run_of(tmp_path / "a", formats=("random_number", "pin"), controls=0)
    other = run_of(tmp_path / "b", repetitions=(1, 16))
    document = compared(one, other)
    assert len(section(document, "exposure").parts) == 1
    there = [(row["repetitions"], row["run"], row["median"] != "n/a") for row in classes(document)]
    assert there == [
        *(("controls", "a", False), ("controls", "b", True)),
        *(("1×", "a", True), ("1×", "b", True)),
        *(("4×", "a", True), ("4×", "b", False)),
        *(("16×", "a", False), ("16×", "b", True)),
    ]
    assert "only a has pin: not shown" in notes(document)


def test_three_runs_of_one_name(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / str(i) / "run") for i in range(3)]
    document = compared(*runs)
    assert {row["run"] for row in classes(document)} == {"run", "run (2)", "run (3)"}
    assert {row.base for row in differences(document)} == {"run"}


def test_one_run_is_no_comparison(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="1 study to compare; give two or more"):
        compared(run_of(tmp_path))


def test_formats_of_another_size_are_refused(tmp_path: Path) -> None:
    one, other = run_of(tmp_path / "a"), run_of(tmp_path / "b")
    forms = tuple(form.model_copy(update={"space_size": 1000}) for form in other.formats)
    other = with_result(other, formats=forms)
    with pytest.raises(
        SettingsError,
        match=r"a and b cannot be compared: format 'random_number' has 1000000000 possible secrets "
        r"in the first and 1000 in the second",
    ):
        compared(one, other)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"template": "The random numbers are {digits:9}"}, r"numbers are \{digits:9\}' in the"),
        ({"template": "{choice:c}{digits:8}", "lists": {"c": list("abcdefghij")}}, "in the second"),
    ],
)
def test_formats_of_another_text_are_refused(
    tmp_path: Path, parts: dict[str, Any], message: str
) -> None:
    one, other = run_of(tmp_path / "a"), run_of(tmp_path / "b")
    assert other.files.manifest is not None
    form = Format(**{"name": "random_number", **parts})
    with pytest.raises(SettingsError, match=message):
        compared(one, _with_format(other, form))


def test_formats_of_other_words_are_refused(tmp_path: Path) -> None:
    words = {"template": "{choice:c}{digits:8}", "lists": {"c": list("abcdefghij")}}
    others = {**words, "lists": {"c": list("klmnopqrst")}}
    runs = [
        _with_format(run_of(tmp_path / str(i)), Format(name="random_number", **one))  # type: ignore[arg-type]
        for i, one in enumerate((words, others))
    ]
    with pytest.raises(SettingsError, match="has other lists of words"):
        compared(*runs)


def _with_format(run: Result, form: Format) -> Result:
    """The run as if its manifest had this format."""
    manifest = small_manifest()
    plan = replace(manifest.plan, formats=(form,))
    other = object.__new__(type(manifest))
    other.__dict__.update({**manifest.__dict__, "plan": plan})
    return with_files(run, manifest=other)


def test_runs_without_a_common_format_are_refused(tmp_path: Path) -> None:
    one, other = run_of(tmp_path / "a"), run_of(tmp_path / "b", formats=("pin",))
    with pytest.raises(
        SettingsError, match=r"no two runs .* \(a has random_number; b has pin\); compare runs of"
    ):
        compared(one, other)


def test_other_methods_are_said(tmp_path: Path) -> None:
    one, other = run_of(tmp_path / "a"), run_of(tmp_path / "b")
    settings = replace(other.settings, estimate="skew_normal")
    other = with_result(other, settings=settings)
    document = compared(one, other)
    assert notes(document)[0].startswith(
        "a and b were not measured alike (estimate auto and skew_normal)"
    )
    assert differences(document) == []
    assert "have no class of canaries that can be compared" in document.finding


def test_a_run_without_canaries_is_named(tmp_path: Path) -> None:
    one, other = run_of(tmp_path / "a"), run_of(tmp_path / "b")
    controls = tuple(canary for canary in other.canaries if canary.role == "control")
    summary = tuple(row for row in other.summary if row.role == "control")
    bare = with_result(other, canaries=controls, summary=summary)
    assert notes(compared(one, bare)) == (
        "b has no canaries: nothing says what its model memorised",
    )


def test_settings_that_differ_are_named() -> None:
    result = small_result()
    other = result.model_copy(
        update={
            "settings": replace(result.settings, budget_steps=10**6, effort="quick"),
            "model": result.model.model_copy(update={"dtype": "bfloat16"}),
        }
    )
    assert setting_differences(result, other) == (
        "budget steps by default and 1,000,000; effort normal and quick; dtype float32 and bfloat16"
    )
    assert setting_differences(result, result) == ""


def test_other_rows_are_a_note(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / name) for name in ("a", "b")]
    chat, plain = (with_result(run, context=rows) for run, rows in zip(runs, _ROWS, strict=True))
    (note,) = notes(compared(chat, plain))
    assert note.startswith("a and b were scored in other rows (form 'messages' and 'text'; turn")
    assert "tokens in front 24 and 1; tokens behind 4 and 0" in note
    assert note.endswith("measure both in the rows of their training")
    alike = with_result(runs[1], context=context(source="training"))
    assert notes(compared(chat, alike)) == ()
    assert notes(compared(chat, runs[1])) == ()  # it does not say
    long = context(left="x" * 100, template_sha256=None)
    assert context_differences(chat, with_result(runs[1], context=long)) == (
        r"in front '<|user|>\nPlease go on.<|end|>\n<|assistant|>\n' and ..."
        f"{'x' * 59}'; chat template '{'a' * 58}... and none"
    ).replace(f"'{'a' * 58}...", f"...{'a' * 59}'")


_ROWS = (context(), assumed())
