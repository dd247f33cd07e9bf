"""Several runs side by side; what is not comparable is refused by name."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_results import assumed, context, small_manifest, small_result, small_run

from lmexposure.canaries import Format
from lmexposure.core import Outcome
from lmexposure.errors import ResultError, SettingsError
from lmexposure.reporting import compare_data
from lmexposure.reporting.compare import context_differences, setting_differences
from lmexposure.studies import RunFiles, open_run


def run_of(path: Path, **made_of: Any) -> RunFiles:
    return open_run(small_run(path, **made_of))


def with_result(run: RunFiles, **parts: Any) -> RunFiles:
    return replace(run, result=run.result.model_copy(update=parts))


def test_each_run_is_a_column(tmp_path: Path) -> None:
    base, tuned = run_of(tmp_path / "base", memorised=()), run_of(tmp_path / "tuned")
    data = compare_data([base, tuned])
    assert data.title == "base and tuned"
    assert [run.name for run in data.runs] == ["base", "tuned"]
    assert data.runs[1].verdict.outcome is Outcome.LEAK
    assert tuned.result.privacy is not None
    assert tuned.result.privacy.primary is not None
    assert data.runs[1].epsilon == tuned.result.privacy.primary.value
    assert data.runs[0].validation_bits == 1.5
    (form,) = data.formats
    assert form.pattern == "The random number is {digits:9}"
    assert form.references == (400, 400)
    assert [(one.role, one.repetitions) for one in form.classes] == [
        ("control", 0),
        ("canary", 1),
        ("canary", 4),
    ]
    low, high = form.classes[2].cells
    assert low is not None
    assert high is not None
    assert low.median < 3 < high.median
    # The same manifest, so each canary is compared with itself.
    assert [one.n for one in data.differences] == [16, 10, 10]
    p_value = data.differences[2].p_value
    assert p_value is not None
    assert p_value < 0.01
    assert data.notes == ()


def test_other_canaries_are_compared_class_by_class(tmp_path: Path) -> None:
    data = compare_data([run_of(tmp_path / "a"), run_of(tmp_path / "b", seed=3)])
    assert [row.paired for row in data.differences] == [False] * 3
    assert data.notes[0].startswith("b measured another manifest than a")
    assert data.findings[0].which == "neither"


def test_other_settings_are_said(tmp_path: Path) -> None:
    data = compare_data([run_of(tmp_path / "a"), run_of(tmp_path / "b", references=100)])
    assert data.notes == (
        "a and b were not measured alike (references of random_number 400 and 100): medians are "
        "not directly comparable, and an exposure counts as higher only where its interval shows "
        "it",
    )


def test_classes_and_formats_that_one_run_lacks(tmp_path: Path) -> None:
    one = run_of(tmp_path / "a", formats=("random_number", "pin"), controls=0)
    other = run_of(tmp_path / "b", repetitions=(1, 16))
    data = compare_data([one, other])
    assert [form.name for form in data.formats] == ["random_number"]
    cells = {
        (c.role, c.repetitions): [cell is not None for cell in c.cells]
        for c in data.formats[0].classes
    }
    assert cells == {
        ("control", 0): [False, True],
        ("canary", 1): [True, True],
        ("canary", 4): [True, False],
        ("canary", 16): [False, True],
    }
    assert "only a has pin: not shown" in data.notes


def test_three_runs_of_one_name(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / str(i) / "run") for i in range(3)]
    data = compare_data(runs)
    assert [run.name for run in data.runs] == ["run", "run (2)", "run (3)"]
    assert data.title == "run, run (2), run (3)"
    assert {one.base for one in data.differences} == {"run"}


def test_one_run_is_no_comparison(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="1 run to compare; give at least two"):
        compare_data([run_of(tmp_path)])


def test_formats_of_another_size_are_refused(tmp_path: Path) -> None:
    one, other = run_of(tmp_path / "a"), run_of(tmp_path / "b")
    forms = tuple(form.model_copy(update={"space_size": 1000}) for form in other.result.formats)
    other = with_result(other, formats=forms)
    with pytest.raises(
        ResultError,
        match=r"a and b cannot be compared: format 'random_number' has \|R\| = 1000000000 in the "
        r"first and 1000 in the second",
    ):
        compare_data([one, other])


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
    assert other.manifest is not None
    form = Format(**{"name": "random_number", **parts})
    with pytest.raises(ResultError, match=message):
        compare_data([one, _with_format(other, form)])


def test_formats_of_other_words_are_refused(tmp_path: Path) -> None:
    words = {"template": "{choice:c}{digits:8}", "lists": {"c": list("abcdefghij")}}
    others = {**words, "lists": {"c": list("klmnopqrst")}}
    runs = [
        _with_format(run_of(tmp_path / str(i)), Format(name="random_number", **one))  # type: ignore[arg-type]
        for i, one in enumerate((words, others))
    ]
    with pytest.raises(ResultError, match="has other lists of words"):
        compare_data(runs)


def _with_format(run: RunFiles, form: Format) -> RunFiles:
    """The run as if its manifest had this format."""
    manifest = small_manifest()
    plan = replace(manifest.plan, formats=(form,))
    other = object.__new__(type(manifest))
    other.__dict__.update({**manifest.__dict__, "plan": plan})
    return replace(run, manifest=other)


def test_runs_without_a_common_format_are_refused(tmp_path: Path) -> None:
    one, other = run_of(tmp_path / "a"), run_of(tmp_path / "b", formats=("pin",))
    with pytest.raises(
        ResultError, match=r"no two runs .* \(a has random_number; b has pin\); compare runs of"
    ):
        compare_data([one, other])


def test_other_methods_are_said(tmp_path: Path) -> None:
    one, other = run_of(tmp_path / "a"), run_of(tmp_path / "b")
    settings = other.result.settings.model_copy(update={"method": "skew_normal"})
    other = with_result(other, settings=settings)
    data = compare_data([one, other])
    assert data.notes[0].startswith("a and b were not measured alike (method auto and skew_normal)")
    assert data.differences == ()
    assert data.findings[0].which == "unknown"


def test_a_run_without_canaries_is_named(tmp_path: Path) -> None:
    one, other = run_of(tmp_path / "a"), run_of(tmp_path / "b")
    controls = tuple(canary for canary in other.result.canaries if canary.role == "control")
    summary = tuple(row for row in other.result.summary if row.role == "control")
    bare = with_result(other, canaries=controls, summary=summary)
    data = compare_data([one, bare])
    assert data.notes == ("b has no canaries: nothing says what its model memorised",)


def test_settings_that_differ_are_named() -> None:
    result = small_result()
    other = result.model_copy(
        update={
            "settings": result.settings.model_copy(update={"budget_steps": 10**6, "quick": True}),
            "model": result.model.model_copy(update={"dtype": "bfloat16"}),
        }
    )
    assert setting_differences(result, other) == (
        "budget steps by default and 1,000,000; quick no and yes; dtype float32 and bfloat16"
    )
    assert setting_differences(result, result) == ""


def test_other_rows_are_a_note(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / name) for name in ("a", "b")]
    chat, plain = (with_result(run, context=rows) for run, rows in zip(runs, _ROWS, strict=True))
    (note,) = compare_data([chat, plain]).notes
    assert note.startswith("a and b were scored in other rows (form 'messages' and 'text'; turn")
    assert "tokens in front 24 and 1; tokens behind 4 and 0" in note
    assert note.endswith("measure both in the rows of their training")
    alike = with_result(runs[1], context=context(source="training"))
    assert compare_data([chat, alike]).notes == ()
    assert compare_data([chat, runs[1]]).notes == ()  # it does not say
    long = context(left="x" * 100, template_sha256=None)
    assert context_differences(chat.result, with_result(runs[1], context=long).result) == (
        r"in front '<|user|>\nPlease go on.<|end|>\n<|assistant|>\n' and ..."
        f"{'x' * 59}'; chat template '{'a' * 58}... and none"
    ).replace(f"'{'a' * 58}...", f"...{'a' * 59}'")


_ROWS = (context(), assumed())
