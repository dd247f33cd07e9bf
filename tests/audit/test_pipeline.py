"""The whole leakage test as one call, resumed, refused, and on the demo's corpus."""

import json
import sys
import types
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import pytest
from audit.quick import RUN
from corpora import write_corpus
from known import known
from manifest_files import judged

import lmexposure as lx
from lmexposure._files import sha256_bytes
from lmexposure.audit import (
    RunSettings,
    demo_corpus,
    demo_settings,
    estimate_cost,
    insert_corpus,
    measure,
    run,
    train_corpus,
)
from lmexposure.audit.directory import RunLog
from lmexposure.canaries import Manifest, derive_seed
from lmexposure.errors import (
    CorpusError,
    FileError,
    LmexposureError,
    ManifestError,
    ModelError,
    PlanError,
    ResultError,
    SettingsError,
)
from lmexposure.models import load_model
from lmexposure.scoring import load_for_measuring
from lmexposure.studies import Result, RunRecord

SEED = 987654321
LEARNED = replace(RUN, seed=SEED, witness=False, training={"epochs": 5, "learning_rate": 0.01})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Result]:
    """A corpus, the directory of its run, and the result."""
    home = tmp_path_factory.mktemp("finished")
    corpus = write_corpus(home / "corpus.txt")
    return corpus, home / "run", run(corpus, out=home / "run", settings=LEARNED)


def test_a_run_finds_what_was_repeated_and_not_what_was_never_inserted(
    finished: tuple[Path, Path, Result],
) -> None:
    result = finished[2]
    rows = {row.repetitions: row for row in result.summary}
    assert rows[30].mean > 6
    assert known(rows[30].guessing_test).p_value < 0.01
    assert known(rows[0].guessing_test).p_value > 0.001
    assert known(rows[30].epsilon).value > 0
    validation = known(result.model.validation)
    assert known(validation.validation_bits) < known(validation.initial_validation_bits)


def test_the_run_directory_is_as_agreed_and_a_second_call_does_nothing(
    finished: tuple[Path, Path, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, out, first = finished
    kept = {"manifest.json", "metrics.jsonl", "model", "result.json", "scores.parquet"}
    kept |= {"training.json"}
    assert {p.name for p in out.glob("[!.]*")} == kept | {"corpus", "run.json"}
    for name in ("manifest.json", "run.json"):
        assert (out / name).stat().st_mode & 0o777 == 0o600
    record = RunRecord.read(out / "run.json")
    assert known(record.settings).canaries == 3
    assert record.device in ("cpu", "cuda:0")
    assert record.versions["torch"]
    assert known(record.training).epochs == 5
    assert record.measured is not None
    monkeypatch.setattr("lmexposure.audit.directory.utc_now", lambda: "2040-01-01T00:00:00Z")
    before = {name: (out / name).stat().st_mtime_ns for name in kept}
    assert run(corpus, out=out, settings=LEARNED).to_dict() == first.to_dict()
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before
    assert RunRecord.read(out / "run.json").measured == record.measured
    with pytest.raises(ResultError, match="its seed was another"):
        run(corpus, out=out, settings=replace(LEARNED, seed=4))


def test_what_others_may_read_tells_no_seed_and_no_secret(
    finished: tuple[Path, Path, Result],
) -> None:
    """The corpus with its canaries is as public as it was; of the rest, what shows results."""
    files = [path for path in finished[1].rglob("*") if path.is_file()]
    shown = {p.name: p for p in files if p.stat().st_mode & 0o077 and p.parent.name != "model"}
    assert shown.keys() == {"corpus.txt", "result.json", "metrics.jsonl"}
    manifest = Manifest.read(finished[1] / "manifest.json")
    guessed = [sha256_bytes(entry.text.encode()) for entry in manifest.entries]
    for name in ("result.json", "metrics.jsonl"):
        text = shown[name].read_text()
        seeds = (str(derive_seed(SEED, "training")), str(SEED))
        assert not [value for value in (*seeds, *guessed) if value in text], name


@pytest.mark.slow
def test_a_fine_tune_begins_from_the_weights_it_is_given(corpus: Path, tmp_path: Path) -> None:
    quick = replace(RUN.measure, extraction=False, estimate="sampled")
    base = replace(RUN, model="gpt2-tiny", training={"epochs": 1}, measure=quick)
    train_corpus(corpus, out=tmp_path / "base", settings=base)
    begun = load_model(tmp_path / "base" / "model")
    tuned = replace(base, model=str(tmp_path / "base" / "model"), training={"epochs": 1})
    result = run(corpus, out=tmp_path / "tuned", settings=tuned)
    assert result.model.type == "gpt2"
    assert result.model.weights_sha256 != begun.to_dict()["weights_sha256"]
    first = json.loads((tmp_path / "tuned" / "metrics.jsonl").read_text().splitlines()[0])
    last = json.loads((tmp_path / "base" / "metrics.jsonl").read_text().splitlines()[-1])
    assert first["validation_bits_per_token"] == pytest.approx(
        last["validation_bits_per_token"], rel=0.2
    )


def test_the_cost_is_said_before_the_work(corpus: Path) -> None:
    line = estimate_cost(corpus, replace(RUN, witness=False))
    assert "600 documents, 93 insertions of 6 canaries" in line
    assert "at most 3 epochs" in line
    assert "scoring 514 texts" in line


def test_refuses_a_directory_that_is_no_run(corpus: Path, tmp_path: Path) -> None:
    for name, content, match in (
        ("a.jpg", "", r"holds 'a.jpg' and no run\.json"),
        ("run.json", "{", r"run\.json is not readable"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(content)
        with pytest.raises(ResultError, match=match):
            run(corpus, out=tmp_path / name, settings=RUN)
    with pytest.raises(ResultError, match="is a file; choose a directory"):
        run(corpus, out=corpus, settings=RUN)


def test_what_cannot_be_run_is_found_before_anything_is_written(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[tuple[dict[str, Any], type[LmexposureError], str]] = [
        ({"training": {"speed": 1}}, SettingsError, "the training 'speed'; did you mean 'seed'"),
        ({"canaries": 9_999}, PlanError, "the largest plan that fits"),
        ({"model": "./nope"}, ModelError, "no such directory"),
        ({"device": "warp"}, SettingsError, "device='warp' is not available"),
    ]
    for changes, error, match in refused:
        with pytest.raises(error, match=match):
            run(corpus, out=tmp_path / "r", settings=replace(RUN, **changes))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SettingsError, match="run takes one process"):
        run(corpus, out=tmp_path / "r", settings=RUN)
    assert not (tmp_path / "r").exists()
    with pytest.raises(ModelError, match="'lstm' is a kind of new model"):
        load_for_measuring("lstm", RUN)


def test_training_refuses_another_layout_than_the_manifests(corpus: Path, tmp_path: Path) -> None:
    inserted, manifest = insert_corpus(corpus, out=tmp_path / "i", settings=RUN)
    with pytest.raises(ManifestError, match="layout 'lines', and layout 'paragraphs' is asked"):
        train_corpus(
            inserted,
            out=tmp_path / "t",
            settings=replace(RUN, layout="paragraphs"),
            manifest=manifest,
        )


def test_a_record_keeps_the_first_time_of_a_step(tmp_path: Path) -> None:
    log = RunLog.open(tmp_path / "r", RunSettings(seed=1))
    with log.step("train"):
        pass
    log.timings["train"] = 50.0
    log.write()
    again = RunLog.open(tmp_path / "r", RunSettings(seed=1))
    with again.step("train"):
        pass
    assert again.timings["train"] == 50.0


def test_a_run_of_a_private_corpus_is_private(corpus: Path, tmp_path: Path) -> None:
    """And its secrets are drawn once; the training's seed is another one."""
    corpus.chmod(0o600)
    out = tmp_path / "r"
    chosen = replace(RUN, seed=None, training={"epochs": 1, "snapshot_epochs": (1,)})
    first = run(corpus, out=out, settings=chosen)
    open_to_others = {
        path.name for path in out.rglob("*") if path.is_file() and path.stat().st_mode & 0o077
    }
    assert open_to_others == {"result.json", "metrics.jsonl"}
    seed = Manifest.read(out / "manifest.json").plan.seed
    files = [path for path in out.rglob("*") if path.is_file()]
    assert [p.name for p in files if str(seed).encode() in p.read_bytes()] == ["manifest.json"]
    trained = json.loads((out / "training.json").read_text())
    assert trained["settings"]["seed"] == derive_seed(0, "training")
    assert run(corpus, out=out, settings=chosen).to_dict() == first.to_dict()
    with pytest.raises(ResultError, match="its seed was not given, and now it is"):
        run(corpus, out=out, settings=replace(chosen, seed=seed))
    (out / "manifest.json").rename(tmp_path / "aside")
    with pytest.raises(ResultError, match=r"no manifest\.json, which alone has the seed"):
        run(corpus, out=out, settings=chosen)


def test_a_vocabulary_is_not_made_of_the_canaries(corpus: Path, tmp_path: Path) -> None:
    """Else a canary would be spelled in fewer tokens than its references."""
    chosen = replace(RUN, model="gpt2-tiny", formats=("random_number",), training={"epochs": 1})
    inserted, manifest = insert_corpus(corpus, out=tmp_path / "i", settings=chosen)
    trained = train_corpus(inserted, out=tmp_path / "t", settings=chosen, manifest=manifest)
    vocabulary = load_model(trained.model_path).tokenizer.get_vocab()
    assert not [token for token in vocabulary if sum(c.isdecimal() for c in token) > 1]


@pytest.mark.slow
def test_a_run_with_coins(corpus: Path, tmp_path: Path) -> None:
    """Only the manifest tells the seed of the coins, and a run finds it again."""
    tossed = replace(
        RUN,
        inclusion_probability=0.5,
        canaries=8,
        inclusion_seed=SEED,
        training={"epochs": 8, "learning_rate": 0.01},
        measure=replace(RUN.measure, extraction=False),
    )
    texts = 16 + 8 + (RUN.measure.references or 0)
    assert f"scoring {texts} texts" in estimate_cost(corpus, tossed)
    out = tmp_path / "run"
    result = run(corpus, out=out, settings=tossed)
    files = [p for p in out.rglob("*") if p.is_file()]
    assert [p.name for p in files if str(SEED).encode() in p.read_bytes()] == ["manifest.json"]
    manifest = Manifest.read(out / "manifest.json")
    inserted = [c.id for c in manifest.entries if c.role == "canary"]
    assert 0 < len(inserted) < 16
    assert [c.id for c in result.canaries if c.role == "canary"] == inserted
    rows = {row["id"]: row for row in pq.read_table(out / "scores.parquet").to_pylist()}
    drawn = [rows[c.id] for c in judged(manifest)]
    assert [(row["role"], row["repetitions"]) for row in drawn] == [
        (c.role, c.repetitions) for c in judged(manifest)
    ]
    often = {c.id for c in manifest.entries if c.inserted == 30}
    seen = [r["log_perplexity_bits"] for r in drawn if r["id"] in often]
    unseen = [row["log_perplexity_bits"] for row in drawn if row["role"] == "held_out"]
    assert median(seen) < min(unseen)
    # The same command without the seed goes on with the coins that were tossed here.
    fresh = replace(tossed, inclusion_seed=None)
    assert run(corpus, out=out, settings=fresh).to_dict() == result.to_dict()
    with pytest.raises(ResultError, match="manifest of another plan"):
        run(corpus, out=out, settings=replace(tossed, inclusion_seed=1))


def test_a_run_in_which_nothing_was_inserted_ends_before_the_training(
    corpus: Path, tmp_path: Path
) -> None:
    tossed = replace(RUN, inclusion_probability=1e-12, canaries=8)
    with pytest.raises(ManifestError, match="nothing was inserted: the coins left all 16 candidat"):
        run(corpus, out=tmp_path / "r", settings=tossed)
    assert not (tmp_path / "r" / "model").exists()
    with pytest.raises(ManifestError, match="holds no inserted canary, so there is nothing to"):
        measure("nowhere", tmp_path / "r" / "manifest.json")


def test_training_refuses_the_corpus_of_other_coins(corpus: Path, tmp_path: Path) -> None:
    """All canaries of the manifest stand in it, and so does one that by the manifest does not."""
    tossed = replace(RUN, inclusion_probability=0.5, canaries=8, inclusion_seed=0)
    _, manifest = insert_corpus(corpus, out=tmp_path / "a", settings=tossed)
    more, _ = insert_corpus(
        corpus, out=tmp_path / "b", settings=replace(tossed, inclusion_probability=0.9)
    )
    with pytest.raises(ManifestError, match=r"pin/x\d+/000\d is in the corpus, but by the man"):
        train_corpus(more, out=tmp_path / "t", settings=tossed, manifest=manifest)
    assert not (tmp_path / "t").exists()


def test_the_corpus_is_real_english_of_this_python(tmp_path: Path) -> None:
    path = demo_corpus(tmp_path / "source" / "topics.txt")
    text = path.read_text(encoding="utf-8")
    assert 300_000 < len(text) < 2_000_000
    assert 'The "with" statement' in text
    short = demo_corpus(tmp_path / "short.txt", short=True)
    assert text.startswith(short.read_text(encoding="utf-8"))
    assert "3,000 documents" in estimate_cost(short, demo_settings())
    assert "scoring 10,052 texts" in estimate_cost(short, demo_settings(clean=True))
    assert "scoring 1,052 texts" in estimate_cost(
        short, demo_settings().override({"effort": "quick"})
    )


def test_a_python_without_the_text_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", types.ModuleType("pydoc_data.topics"))
    with pytest.raises(CorpusError, match=r"carries no pydoc_data\.topics"):
        demo_corpus(tmp_path / "topics.txt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_private_run_is_held_against_what_its_training_promised(
    corpus: Path, tmp_path: Path
) -> None:
    """No claim was given to hold it against: run.json has none, and is of this run all the same."""
    private = replace(RUN, training={"epochs": 1, "method": "dp-sgd", "epsilon": 8.0})
    result = run(corpus, out=tmp_path / "r", settings=private)
    assert result.settings.claimed_epsilon == pytest.approx(8.0, abs=0.3)
    record = RunRecord.read(tmp_path / "r" / "run.json")
    assert record.measure.claimed_epsilon is None
    assert lx.open(tmp_path / "r") == result
    before = (tmp_path / "r" / "manifest.json").read_bytes()
    with pytest.raises(FileError, match="is a file of the study itself, and would be replaced"):
        lx.report(tmp_path / "r", tmp_path / "r" / "manifest.json")
    assert (tmp_path / "r" / "manifest.json").read_bytes() == before
    other = replace(result.settings, claimed_epsilon=3.0, delta=0.0)
    result.model_copy(update={"settings": other}).write(tmp_path / "r" / "result.json")
    with pytest.raises(ResultError, match=r"run\.json is of another run than"):
        lx.open(tmp_path / "r")
    told = run(corpus, out=tmp_path / "told", settings=replace(RUN, training={"epochs": 1}))
    record.write(tmp_path / "told" / "run.json")
    assert told.settings.claimed_epsilon is None
    with pytest.raises(ResultError, match=r"run\.json is of another run than"):
        lx.open(tmp_path / "told")
