"""The whole leakage test as one call, resumed, refused, and on the demo's corpus."""

import json
import sys
import types
from dataclasses import replace
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq
import pytest
from known import known
from manifest_files import judged

from lmexposure._files import sha256_bytes
from lmexposure.audit import (
    RunSettings,
    demo_corpus,
    demo_settings,
    estimate_cost,
    insert_corpus,
    load_for_measuring,
    measure,
    run,
    train_corpus,
)
from lmexposure.audit.directory import RunLog
from lmexposure.canaries import Manifest, derive_seed
from lmexposure.errors import (
    CorpusError,
    ManifestError,
    ModelError,
    PlanError,
    ResultError,
    SettingsError,
)
from lmexposure.models import load_model
from lmexposure.records import RunRecord


def test_a_run_finds_what_was_repeated_and_not_what_was_never_inserted(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    result = run(corpus, out=tmp_path / "run", settings=replace(settings, witness=False))
    rows = {row.repetitions: row for row in result.summary}
    assert rows[30].mean > 6
    assert known(rows[30].guessing_test).p_value < 0.01
    assert known(rows[0].guessing_test).p_value > 0.001
    assert known(rows[30].epsilon).value > 0
    validation = known(result.model.validation)
    assert known(validation.validation_bits) < known(validation.initial_validation_bits)


def test_the_run_directory_is_as_agreed_and_a_second_call_does_nothing(
    corpus: Path, settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    first = run(corpus, out=out, settings=settings)
    names = {p.name for p in out.glob("[!.]*")}
    assert names == {
        "corpus",
        "manifest.json",
        "metrics.jsonl",
        "model",
        "result.json",
        "run.json",
        "scores.parquet",
        "training.json",
    }
    assert (out / "manifest.json").stat().st_mode & 0o777 == 0o600
    assert (out / "run.json").stat().st_mode & 0o777 == 0o600
    record = RunRecord.read(out / "run.json")
    assert record.settings is not None
    assert record.settings.canaries == 3
    assert record.device in ("cpu", "cuda:0")
    assert record.versions["torch"]
    assert record.training is not None
    assert record.training.epochs == 3
    assert record.measured is not None
    monkeypatch.setattr("lmexposure.audit.directory.utc_now", lambda: "2040-01-01T00:00:00Z")
    before = {name: (out / name).stat().st_mtime_ns for name in names - {"run.json", "corpus"}}
    assert run(corpus, out=out, settings=settings).to_dict() == first.to_dict()
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before
    assert RunRecord.read(out / "run.json").measured == record.measured
    with pytest.raises(ResultError, match="its seed is another than the one that is given"):
        run(corpus, out=out, settings=replace(settings, seed=4))


def test_a_fine_tune_begins_from_the_weights_it_is_given(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    base = replace(settings, model="gpt2-tiny", training={"epochs": 1})
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


def test_the_cost_is_said_before_the_work(corpus: Path, settings: RunSettings) -> None:
    line = estimate_cost(corpus, replace(settings, witness=False))
    assert "600 documents, 93 insertions of 6 canaries" in line
    assert "at most 3 epochs" in line
    assert "scoring 514 texts" in line


def test_refuses_a_directory_that_is_no_run(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("")
    with pytest.raises(ResultError, match=r"photos holds 'a.jpg' and no run\.json"):
        run(corpus, out=tmp_path / "photos", settings=settings)
    with pytest.raises(ResultError, match="is a file; choose a directory"):
        run(corpus, out=corpus, settings=settings)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    with pytest.raises(ResultError, match=r"run\.json is not readable"):
        run(corpus, out=tmp_path / "broken", settings=settings)


def test_bad_settings_are_found_before_anything_is_written(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    with pytest.raises(
        SettingsError, match="unknown setting of the training 'speed'; did you mean 'seed'"
    ):
        run(corpus, out=tmp_path / "r", settings=replace(settings, training={"speed": 1}))
    with pytest.raises(PlanError, match="the largest plan that fits"):
        run(corpus, out=tmp_path / "r", settings=replace(settings, canaries=9_999))
    assert not (tmp_path / "r").exists()


def test_a_wrong_model_or_device_claims_no_directory(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="no such directory"):
        run(corpus, out=tmp_path / "r", settings=replace(settings, model="./nope"))
    with pytest.raises(SettingsError, match="device='warp' is not available"):
        run(corpus, out=tmp_path / "r", settings=replace(settings, device="warp"))
    assert not (tmp_path / "r").exists()
    with pytest.raises(ModelError, match="'lstm' is a kind of new model"):
        load_for_measuring("lstm", settings)


def test_refuses_several_processes(
    corpus: Path, settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SettingsError, match="run takes one process"):
        run(corpus, out=tmp_path / "r", settings=settings)


def test_training_refuses_another_layout_than_the_manifests(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    inserted, manifest = insert_corpus(corpus, out=tmp_path / "i", settings=settings)
    with pytest.raises(ManifestError, match="layout 'lines', and layout 'paragraphs' is asked"):
        train_corpus(
            inserted,
            out=tmp_path / "t",
            settings=replace(settings, layout="paragraphs"),
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


def test_what_others_may_read_tells_no_seed_and_no_secret(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    """The corpus with its canaries is as public as it was; of the rest, what shows results."""
    once = replace(settings, training={"epochs": 1})
    run(corpus, out=tmp_path / "r", settings=replace(once, seed=987654321))
    files = [path for path in (tmp_path / "r").rglob("*") if path.is_file()]
    shown = {p.name: p for p in files if p.stat().st_mode & 0o077 and p.parent.name != "model"}
    assert shown.keys() == {"corpus.txt", "result.json", "metrics.jsonl"}
    manifest = Manifest.read(tmp_path / "r" / "manifest.json")
    guessed = [sha256_bytes(one.text.encode()) for one in manifest.entries]
    for name in ("result.json", "metrics.jsonl"):
        text = shown[name].read_text()
        seeds = (str(derive_seed(987654321, "training")), "987654321")
        assert not [one for one in (*seeds, *guessed) if one in text], name


def test_a_run_of_a_private_corpus_is_private(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    """And its secrets are drawn once; the training's seed is another one."""
    corpus.chmod(0o600)
    out = tmp_path / "r"
    chosen = replace(settings, seed=None, training={"epochs": 1, "snapshot_epochs": (1,)})
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
    with pytest.raises(ResultError, match="its seed was drawn fresh, now one is given"):
        run(corpus, out=out, settings=replace(chosen, seed=seed))
    (out / "manifest.json").rename(tmp_path / "aside")
    with pytest.raises(ResultError, match=r"no manifest\.json, which alone has the seed"):
        run(corpus, out=out, settings=chosen)


def test_only_the_manifest_tells_the_coins_seed_and_a_run_finds_it_again(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    given = replace(
        settings,
        inclusion_probability=0.5,
        canaries=8,
        inclusion_seed=987654321,
        training={"epochs": 1},
        measure=replace(settings.measure, extraction=False),
    )
    first = run(corpus, out=tmp_path / "r", settings=given)
    files = [p for p in (tmp_path / "r").rglob("*") if p.is_file()]
    assert [p.name for p in files if b"987654321" in p.read_bytes()] == ["manifest.json"]
    # The same command without the seed goes on with the coins that were tossed here.
    fresh = replace(given, inclusion_seed=None)
    assert run(corpus, out=tmp_path / "r", settings=fresh).to_dict() == first.to_dict()
    with pytest.raises(ResultError, match="manifest of another plan"):
        run(corpus, out=tmp_path / "r", settings=replace(given, inclusion_seed=1))


def test_a_vocabulary_is_not_made_of_the_canaries(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    """Else a canary would be spelled in fewer tokens than its references."""
    chosen = replace(
        settings, model="gpt2-tiny", formats=("random_number",), training={"epochs": 1}
    )
    inserted, manifest = insert_corpus(corpus, out=tmp_path / "i", settings=chosen)
    trained = train_corpus(inserted, out=tmp_path / "t", settings=chosen, manifest=manifest)
    vocabulary = load_model(trained.model_path).tokenizer.get_vocab()
    assert not [token for token in vocabulary if sum(c.isdecimal() for c in token) > 1]


def test_a_run_with_coins(corpus: Path, settings: RunSettings, tmp_path: Path) -> None:
    tossed = replace(
        settings,
        inclusion_probability=0.5,
        canaries=8,
        inclusion_seed=0,
        training={"epochs": 8, "learning_rate": 0.01},
    )
    texts = 16 + 8 + (settings.measure.references or 0)
    assert f"scoring {texts} texts" in estimate_cost(corpus, tossed)
    result = run(corpus, out=tmp_path / "run", settings=tossed)
    manifest = Manifest.read(tmp_path / "run" / "manifest.json")
    inserted = [c.id for c in manifest.entries if c.role == "canary"]
    assert 0 < len(inserted) < 16
    assert [c.id for c in result.canaries if c.role == "canary"] == inserted
    table = pq.read_table(tmp_path / "run" / "scores.parquet").to_pylist()
    rows = {row["id"]: row for row in table}
    drawn = [rows[c.id] for c in judged(manifest)]
    assert [(row["role"], row["repetitions"]) for row in drawn] == [
        (c.role, c.repetitions) for c in judged(manifest)
    ]
    often = {c.id for c in manifest.entries if c.inserted == 30}
    seen = [r["log_perplexity_bits"] for r in drawn if r["id"] in often]
    unseen = [row["log_perplexity_bits"] for row in drawn if row["role"] == "held_out"]
    assert median(seen) < min(unseen)


def test_a_run_in_which_nothing_was_inserted_ends_before_the_training(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    tossed = replace(settings, inclusion_probability=1e-12, canaries=8)
    with pytest.raises(ManifestError, match="nothing was inserted: the coins left all 16 candidat"):
        run(corpus, out=tmp_path / "r", settings=tossed)
    assert not (tmp_path / "r" / "model").exists()
    with pytest.raises(ManifestError, match="holds no inserted canary, so there is nothing to"):
        measure("nowhere", tmp_path / "r" / "manifest.json")


def test_training_refuses_the_corpus_of_other_coins(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    """All canaries of the manifest stand in it, and so does one that by the manifest does not."""
    tossed = replace(settings, inclusion_probability=0.5, canaries=8, inclusion_seed=0)
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
    assert "1." in estimate_cost(path, demo_settings())
    assert "scoring 1,052 texts" in estimate_cost(path, demo_settings(quick=True))


def test_a_python_without_the_text_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", types.ModuleType("pydoc_data.topics"))
    with pytest.raises(CorpusError, match=r"carries no pydoc_data\.topics"):
        demo_corpus(tmp_path / "topics.txt")
    assert list(tmp_path.iterdir()) == []
