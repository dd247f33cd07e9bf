"""The calls of the front door: settings as keywords, known to Tab and type checkers; no files."""

import inspect
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from audit.small import TOKENIZER, gpt2
from corpora import write_corpus

import lmexposure as lx
from lmexposure._settings import settings_of
from lmexposure.cli.options import EVERY as TAKEN
from lmexposure.errors import ManifestError, SettingsError
from lmexposure.studies import DefencesSettings, SweepSettings, TrainingSettings

ROOT = Path(__file__).parents[1]
STUBS = runpy.run_path(str(ROOT / "scripts" / "documentation" / "stubs.py"))
CALLS: dict[str, Any] = {
    "run": lx.run,
    "sweep": lx.sweep,
    "defences": lx.compare_defences,
    "identifiers": lx.identifiers,
    "verbatim": lx.verbatim,
    "canife": lx.canife,
}
TINY: dict[str, Any] = {"layers": 1, "units": 8, "epochs": 1, "batch_size": 8, "seed": 3}
FEW: dict[str, Any] = {"canaries": 4, "repetitions": (2,), "controls": 4, "formats": ["pin"]}


def test_the_stubs_are_what_is_declared() -> None:
    made = STUBS["stubs"]()
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, "scripts/stubs writes them anew"
    assert set(made) == set((ROOT / "lmexposure").rglob("*.pyi"))


@pytest.mark.parametrize("command", CALLS)
def test_a_call_takes_what_its_command_takes(command: str) -> None:
    declared = TAKEN[command].settings
    shown = inspect.signature(CALLS[command]).parameters
    assert declared.keys() <= shown.keys()
    for name, told in declared.items():
        default = shown[name].default
        assert default == told.default or repr(default) == f"<{told.usual}>", name
    assert command in TAKEN


def test_a_default_of_each_kind_of_model_is_said_in_words() -> None:
    shown = str(inspect.signature(lx.run))
    assert "epochs=<20; fine-tuning 3>, patience=3" in shown
    assert "Ellipsis" not in shown
    kinds = [TrainingSettings.for_model(kind) for kind in ("lstm", "gpt2-tiny", "pretrained")]
    for name in settings_of(TrainingSettings):
        differs = len({getattr(each, name) for each in kinds}) > 1
        assert f"{name}=<" in shown or not differs, name


@pytest.mark.parametrize("call", ["run", "sweep", "compare_defences", "canife", "verbatim"])
def test_an_interrupt_leaves_no_directory(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []

    def interrupted(*_: object, out: Path, **__: object) -> None:
        seen.append(Path(out))
        Path(out, "model").mkdir()
        raise KeyboardInterrupt

    homes = {"run": "audit", "sweep": "sweeps", "compare_defences": "defences"}
    homes |= {"canife": "federated", "verbatim": "regurgitation"}
    made = {"canife": "canife_audit"}.get(call, call)
    monkeypatch.setattr(f"lmexposure.{homes[call]}.{made}", interrupted)
    with pytest.raises(KeyboardInterrupt):
        getattr(lx, call)(*["lstm"] * (call == "verbatim"), __file__)
    assert [path.parent for path in seen] == [tmp_path]
    assert seen[0].name.startswith("lmexposure-")
    assert not list(tmp_path.iterdir())


def test_a_run_without_a_directory_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_corpus(tmp_path / "corpus.txt", 60)
    (tmp_path / "passing").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "passing"))
    monkeypatch.setattr("tempfile.tempdir", None)
    study = lx.run(corpus, **TINY, **FEW, references=40, draws=100, extraction=False)
    assert not list((tmp_path / "passing").iterdir())
    assert study.home is None
    assert study.scores is not None
    assert study.files.record.settings.training["epochs"] == 1  # type: ignore[union-attr]
    secret = study.files.manifest.canaries[0].text.removeprefix("My PIN is ")  # type: ignore[union-attr]
    page = lx.report(study, tmp_path / "report.html", show_secrets=True)
    assert secret in page.read_text("utf-8")
    assert lx.check(study).outcome in ("pass", "leak", "inconclusive")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": 3}, "'epochs' has no effect here; leave it out"),
        ({"referenecs": 3}, "unknown setting 'referenecs'; did you mean 'references'"),
        ({"references": 3}, "references=3 must be a whole number"),
        ({"dtype": "float16"}, "dtype='float16' is for loading a model, and this one is in memory"),
    ],
)
def test_what_has_no_effect_is_refused_before_the_work(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        lx.measure(gpt2(), "no/manifest.json", tokenizer=TOKENIZER, **given)


@pytest.mark.parametrize("model", ["no/model", None])
def test_what_is_no_manifest_is_named(model: str | None) -> None:
    with pytest.raises(ManifestError, match="manifest is of type int; give the manifest that the"):
        lx.measure(model or gpt2(), 3, tokenizer=None if model else TOKENIZER)  # type: ignore[arg-type]


def test_no_number_of_canaries_is_the_usual_one_of_a_sweep() -> None:
    shown = inspect.signature(lx.sweep).parameters["canaries"].default
    for values in ({}, {"canaries": None}):
        assert SweepSettings().override(values).run.per_class == shown == 100
    assert DefencesSettings().override({"canaries": None}).sweep.run.per_class == 48


@pytest.mark.parametrize("name", CALLS)
def test_an_unknown_keyword_is_refused_with_the_nearest(name: str, tmp_path: Path) -> None:
    asked = {"identifiers": ("m", "c"), "verbatim": ("m", "c")}.get(name, ("c",))
    more = {"formats": ["pin"]} if name == "identifiers" else {}
    near = next(iter(TAKEN[name].settings))
    with pytest.raises(SettingsError, match=f"unknown setting '{near}x'; did you mean '{near}'"):
        CALLS[name](*asked, out=tmp_path / "o", **more, **{f"{near}x": 1})
    assert not (tmp_path / "o").exists()


def test_no_path_and_no_list_are_refused() -> None:
    with pytest.raises(SettingsError, match="out='' is no path; give a directory, or None"):
        lx.run("corpus.txt", out="")
    with pytest.raises(SettingsError, match=r"formats='pin' must be a list, such as \['pin'\]"):
        lx.identifiers("m", "c", formats="pin")


def test_rooms_are_there_when_asked_for() -> None:
    listed = "import lmexposure as lx; print(*dir(lx))"
    shown = subprocess.run(
        [sys.executable, "-c", listed], capture_output=True, check=True, text=True
    )
    assert set(STUBS["rooms"]()) <= set(shown.stdout.split())
    assert lx.statistics.exposure is lx.exposure
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lx.nothing  # type: ignore[attr-defined]
