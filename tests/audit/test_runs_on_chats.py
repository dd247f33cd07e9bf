"""Runs on chats: inserted, trained on by adapters, measured in the wrapping, resumed, refused."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from audit.quick import QUICK
from hashes import sha256_tree
from known import known
from models.small_chats import save_base
from published_templates import PUBLISHED, tiny_model_for, tokenizer_for

from lmexposure.audit import RunSettings, insert_corpus, measure, run, train_corpus
from lmexposure.audit.training import training_settings
from lmexposure.canaries import Manifest
from lmexposure.errors import CorpusError, LmexposureError, ManifestError, ModelError, SettingsError
from lmexposure.models import chat_rows, load_model, template_sha256, weights_sha256
from lmexposure.studies import RunRecord


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "model")


def _chat(i: int) -> dict[str, Any]:
    said = [("user", f"question {i}"), ("assistant", f"answer {i * 37 % 11}")]
    return {"messages": [{"role": role, "content": text} for role, text in said]}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(_chat(i)) + "\n" for i in range(60)))
    return path


@pytest.fixture
def settings(base: Path) -> RunSettings:
    return RunSettings(
        model=str(base),
        formats=("pin",),
        canaries=2,
        repetitions=(1, 25),
        controls=4,
        seed=3,
        training={"lora": True, "epochs": 3, "learning_rate": 0.01},
        measure=replace(QUICK, references=300, estimate="sampled", extraction=False),
    )


@pytest.mark.slow
def test_a_run_on_chats_inserts_trains_an_adapter_and_measures_in_the_wrapping(
    corpus: Path, settings: RunSettings, base: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    result = run(corpus, out=out, settings=settings)
    rows = {row.repetitions: row for row in result.summary}
    assert rows[25].mean > 4 > rows[0].mean
    context = known(result.context)
    assert (context.source, context.form, context.turn) == ("training", "messages", "assistant")
    manifest = Manifest.read(out / "manifest.json")
    record = known(manifest.corpus.wrapping)
    trained = load_model(out / "model")
    wrapping = known(manifest.wrapping)
    assert record.template_sha256 == template_sha256(trained.tokenizer, wrapping)
    assert (out / "model" / "adapter_model.safetensors").is_file()
    assert "packs documents" not in str(known(result.privacy).notes)
    options = known(RunRecord.read(out / "run.json").settings)
    assert options.training["lora"] is True
    before = sha256_tree(out / "model")
    assert run(corpus, out=out, settings=settings).to_dict() == result.to_dict()
    assert sha256_tree(out / "model") == before
    # Beside the model before it, in the same rows.
    found = measure(
        out / "model", out / "manifest.json", base="adapter-off", settings=settings.measure
    )
    beside, model = known(found.base), load_model(base)
    assert (beside.switched_off, beside.path) == (True, base.as_posix())
    assert beside.weights_sha256 == weights_sha256(model.model)
    of_base = {row.repetitions: row for row in beside.classes}
    assert of_base[25].calibrated_mean > 4 > of_base[0].calibrated_mean
    assert of_base[25].gained_bits > of_base[25].reference_gained_bits > 0
    assert of_base[25].exposure.value < 4  # the base never saw them
    alone = measure(model, out / "manifest.json", settings=settings.measure)
    np.testing.assert_allclose(
        [canary.log_perplexity_bits for canary in beside.canaries],
        [known(canary.log_perplexity_bits) for canary in alone.canaries],
        atol=1e-3,
    )
    shown = [[canary.exposure.value for canary in each.canaries] for each in (found, result)]
    assert shown[0] == shown[1]


ASKED = "\n\nHuman: question\n\nAssistant:"
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "named": (
        {"the question": "question", "answer": "answer"},
        {"prompt_field": "the question", "completion_field": "answer"},
        "answer",
    ),
    "strings": ({"chosen": f"{ASKED} yes", "rejected": f"{ASKED} no"}, {}, "chosen"),
    "chats": (
        {"chosen": _chat(1)["messages"], "rejected": _chat(2)["messages"]},
        {},
        "chosen[1].content",
    ),
    "prompts": ({"prompt": _chat(1)["messages"][:1]}, {"loss": "all"}, "prompt[0].content"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_a_run_on_records_of_other_fields_finds_what_they_taught(
    settings: RunSettings, tmp_path: Path, name: str
) -> None:
    record, said, place = OTHERS[name]
    corpus = tmp_path / "rows.jsonl"
    corpus.write_text("".join(json.dumps({**record, "id": i}) + "\n" for i in range(60)))
    chosen, out = replace(settings, **said), tmp_path / "run"
    result = run(corpus, out=out, settings=chosen)
    rows = {row.repetitions: row for row in result.summary}
    assert rows[25].mean > 4 > rows[0].mean
    manifest = Manifest.read(out / "manifest.json")
    assert manifest.corpus.text_field == place
    for other in ("prompt_field", "completion_field"):
        with pytest.raises(ManifestError, match=f"{other}='x', but the canaries of the manifest"):
            train_corpus(
                out / "corpus" / "rows.jsonl",
                out=tmp_path / other,
                settings=replace(chosen, **dict[str, Any]({other: "x"})),
                manifest=manifest,
            )


def test_chats_are_trained_on_without_a_manifest(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    few = replace(settings, training={"epochs": 1})
    trained = train_corpus(corpus, out=tmp_path / "whole", settings=few)
    assert trained.steps == -(-57 // 8)
    by_adapters = train_corpus(corpus, out=tmp_path / "lora", settings=settings)
    assert (by_adapters.model_path / "adapter_config.json").is_file()
    said = json.loads((tmp_path / "lora" / "training.json").read_text())["settings"]
    assert (said["lora"], said["learning_rate"], said["block_size"]) == (True, 0.01, 96)


def test_defaults_of_adapters_and_of_records(settings: RunSettings) -> None:
    lora = replace(settings, training={"lora": True})
    assert training_settings(lora).learning_rate == 2e-4
    assert training_settings(replace(settings, training={})).learning_rate == 5e-5
    assert training_settings(lora, 4096, records=True).block_size == 1024
    assert training_settings(lora, 512, records=True).block_size == 512
    asked = replace(settings, training={"block_size": 64})
    assert training_settings(asked, 512, records=True).block_size == 64


def test_a_model_that_knows_no_chats_is_refused_before_anything_is_written(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    new, bare = replace(settings, model="lstm", training={}), save_base(tmp_path / "bare")
    (bare / "chat_template.jinja").unlink()
    without = replace(settings, model=str(bare))
    template = "needs a chat template and the tokenizer has none; give"
    knows_none = r"model='lstm' is a new model, whose tokenizer knows no .* give a pretrained one"
    refused: list[tuple[Any, RunSettings, type[LmexposureError], str]] = [
        (run, new, ModelError, knows_none),
        (train_corpus, new, ModelError, knows_none),
        (run, replace(new, training={"lora": True}), SettingsError, "lora=True is for a pretrain"),
        (run, without, ModelError, template),
        (train_corpus, without, ModelError, template),
    ]
    for call, chosen, error, match in refused:
        with pytest.raises(error, match=match):
            call(corpus, out=tmp_path / "run", settings=chosen)
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_a_training_keeps_to_its_manifest(
    corpus: Path, settings: RunSettings, base: Path, tmp_path: Path
) -> None:
    copy, manifest = insert_corpus(
        corpus, out=tmp_path / "i", settings=settings, tokenizer=str(base)
    )
    again: dict[str, Any] = {"out": tmp_path / "t", "manifest": manifest}
    with pytest.raises(ManifestError, match="loss='all', but the canaries of the manifest were in"):
        train_corpus(copy, settings=replace(settings, loss="all"), **again)
    other = save_base(tmp_path / "other")
    template = other / "chat_template.jinja"
    template.write_text(template.read_text() + "{# the same, but for this remark #}")
    with pytest.raises(
        ManifestError, match=r"chat template of .* is not the one that the manifest"
    ):
        train_corpus(copy, settings=replace(settings, model=str(other)), **again)
    control = {"messages": [{"role": "assistant", "content": manifest.controls[0].text}]}
    copy.write_text(copy.read_text() + json.dumps(control) + "\n")
    with pytest.raises(ManifestError, match="is in the corpus, but by the manifest it was not ins"):
        train_corpus(copy, settings=settings, **again)


def test_texts_are_no_chats(settings: RunSettings, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a line\n" * 40)
    with pytest.raises((CorpusError, SettingsError), match="texts"):
        train_corpus(lines, out=tmp_path / "t", settings=replace(settings, turn="user"))


def _on(monkeypatch: pytest.MonkeyPatch, day: str) -> None:
    """Let today be this day, for our rows as for the template's own."""

    today = SimpleNamespace(today=lambda: date.fromisoformat(day))
    monkeypatch.setattr(chat_rows, "date", today)


@pytest.fixture
def dated(settings: RunSettings, tmp_path: Path) -> RunSettings:
    """Settings with a model whose template writes the date."""
    place, tokenizer = tmp_path / "dated", tokenizer_for("llama3_2")
    tiny_model_for(tokenizer).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return replace(settings, model=str(place), training={"lora": True, "epochs": 1})


@pytest.mark.slow
def test_a_run_has_the_day_of_its_first_row_whenever_it_goes_on(
    corpus: Path, dated: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _on(monkeypatch, "2026-01-31")
    files: dict[str, Any] = {"out": tmp_path / "run", "settings": dated}
    context = known(run(corpus, **files).context)
    assert (context.source, context.chat_date) == ("training", "2026-01-31")
    assert "31 Jan 2026" in context.left
    before = sha256_tree(tmp_path / "run" / "model")
    _on(monkeypatch, "2026-02-01")
    assert known(run(corpus, **files).context) == context
    assert sha256_tree(tmp_path / "run" / "model") == before
    (tmp_path / "run" / "result.json").unlink()
    assert known(run(corpus, **files).context) == context


@pytest.mark.slow
def test_a_training_says_its_day_and_a_measurement_reads_it(
    corpus: Path,
    dated: RunSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    inserted, manifest = insert_corpus(corpus, out=tmp_path / "in", settings=dated)
    assert known(manifest.wrapping).chat_date is None
    _on(monkeypatch, "2026-01-31")
    trained = train_corpus(
        inserted, out=tmp_path / "trained", settings=dated, manifest=manifest
    ).model_path
    assert "all rows have that of today; to go on" in caplog.text
    assert "the chat date: 2026-01-31" in caplog.text
    _on(monkeypatch, "2026-02-01")
    result = measure(trained, tmp_path / "in" / "manifest.json", settings=dated.measure)
    assert known(result.context).chat_date == "2026-01-31"
    again = replace(dated, chat_date="2026-01-31")
    caplog.clear()
    train_corpus(inserted, out=tmp_path / "trained", settings=again, manifest=manifest)
    assert "writes the date" not in caplog.text


@pytest.mark.slow
def test_a_template_of_ones_own_goes_with_the_trained_model(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    template = tmp_path / "own.jinja"
    template.write_text(PUBLISHED["zephyr"])
    chosen = replace(settings, chat_template=str(template), training={"lora": True, "epochs": 1})
    context = known(run(corpus, out=tmp_path / "run", settings=chosen).context)
    assert "<|assistant|>\n" in context.left
    saved = (tmp_path / "run" / "model" / "chat_template.jinja").read_text()
    assert saved == PUBLISHED["zephyr"]
