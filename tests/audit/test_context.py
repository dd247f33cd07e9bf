"""In which rows a measurement scores: where that is known from, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from audit.quick import ALL_FILLS
from audit.small import bits, loaded_of, task_of, training
from audit.wrapped import TWO, naive_bits, plain_manifest, wrapped_manifest
from chats import TEMPLATE, chat_tokenizer
from known import known
from made_results import trained_record
from manifest_files import judged
from studies.test_rows_record import record as rows_record
from tiny import characters, one_by_one

from lmexposure import check
from lmexposure._integrity import write_hashed
from lmexposure.audit import MeasureSettings, measure, rows_beside, scoring_context
from lmexposure.audit.workload import Paces, measurement_phases
from lmexposure.canaries import Format, Manifest, Wrapping
from lmexposure.core import Thresholds
from lmexposure.errors import LmexposureError, ManifestError, ModelError, ResultError, SettingsError
from lmexposure.models import encode_in_context, tokenizer_sha256
from lmexposure.scoring import log_perplexity
from lmexposure.studies import RowsRecord

CHAT = chat_tokenizer()
LOADED = loaded_of("llama", CHAT)
ANSWER = Wrapping(turn="assistant", loss="assistant")
FEW = replace(ALL_FILLS, extraction=False, permutations=99)


def rows_of(manifest: Manifest, **changes: Any) -> RowsRecord:
    known = {"manifest_sha256": manifest.sha256, "tokenizer_sha256": tokenizer_sha256(CHAT)}
    around = {"start": (CHAT.eos_token_id,), "before": "", "behind": "", "loss": "all"}
    return rows_record(**{**known, **around, **changes})


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrapping", [ANSWER, Wrapping(turn="user"), Wrapping(turn="assistant", form="conversations")]
)
def test_canaries_in_chats_are_scored_and_ranked_there(wrapping: Wrapping) -> None:
    """Log-perplexities and ranks over all fills are those of a naive scorer of whole rows."""
    manifest = wrapped_manifest(wrapping, CHAT)
    result = measure(LOADED, manifest, settings=FEW)
    naive = [naive_bits(LOADED.model, CHAT, wrapping, TWO.text(i)) for i in range(TWO.size)]
    planted = {canary.index for canary in manifest.canaries}
    for canary, found in zip(judged(manifest), result.canaries, strict=True):
        own = naive[canary.index]
        assert found.log_perplexity_bits == pytest.approx(own, abs=1e-3)
        others = [value for i, value in enumerate(naive) if i not in planted | {canary.index}]
        assert found.exposure.method == "exact"
        assert found.exposure.rank == 1 + sum(value <= own for value in others)
    context = known(result.context)
    assert (context.source, context.form, context.turn) == (
        "manifest",
        wrapping.form,
        wrapping.turn,
    )
    assert context.left_tokens > 0 < context.right_tokens
    assert not result.warnings


@pytest.mark.slow
def test_ranks_by_draws_walks_and_searches_are_taken_in_the_chat() -> None:
    four = Format(name="four", template="My PIN is {digits:4}.")
    manifest = wrapped_manifest(ANSWER, CHAT, (four,))
    settings = MeasureSettings(
        references=200, draws=500, guesses=20, revealed=3, bootstraps=39, permutations=99
    )
    result = measure(LOADED, manifest, settings=settings)
    canary = result.canaries[0]
    assert {"exact", "importance", "sampled", "certificate"} <= set(canary.estimates)
    search = result.formats[0].search
    assert search is not None
    assert search.shared_tokens > 24  # the template's are before the format's
    assert {found.method for found in canary.extraction} == {"greedy", "beam", "best_first"}
    estimates = canary.estimates
    assert known(estimates["importance"].low) <= known(estimates["exact"].value) + 1e-9


def test_the_template_of_the_insertion_is_that_of_the_model() -> None:
    other = chat_tokenizer()
    other.chat_template = TEMPLATE.replace("<|{{ m.role }}|>", "[{{ m.role }}]")
    manifest = wrapped_manifest(ANSWER, other)
    with pytest.raises(ManifestError, match=r"rows than they were trained in; give the template"):
        measure(LOADED, manifest, settings=FEW)


def test_a_tokenizer_that_was_not_known_at_insertion_is_a_warning() -> None:
    unknown = scoring_context(LOADED, wrapped_manifest(ANSWER))
    assert unknown.warnings[0].startswith("the insertion was not given the training's tokenizer")
    trained_here = scoring_context(LOADED, wrapped_manifest(ANSWER), own_training=True)
    assert (trained_here.record.source, trained_here.warnings) == ("training", ())
    strings = Wrapping(turn="assistant", form="instruction", loss="completion")
    assert scoring_context(LOADED, wrapped_manifest(strings)).warnings == ()
    other = wrapped_manifest(ANSWER, CHAT, special_tokens=("<other>",))
    (warning,) = scoring_context(LOADED, other).warnings
    assert warning.startswith("the special tokens of the model's tokenizer are not those")


def test_a_template_that_changes_a_text_names_the_format() -> None:
    lowers = chat_tokenizer()
    lowers.chat_template = TEMPLATE.replace("{{ m.content }}", "{{ m.content | lower }}")
    loaded = replace(LOADED, tokenizer=lowers)
    with pytest.raises(ModelError, match=r"format 'two': text 0 .* the chat template rewrites it"):
        scoring_context(loaded, wrapped_manifest(ANSWER))


@pytest.mark.slow
@pytest.mark.parametrize("left", ["eos", "none", "Then: "])
def test_the_left_context_is_as_it_was_said(left: str) -> None:
    manifest = plain_manifest()
    result = measure(LOADED, manifest, settings=replace(FEW, left_context=left))
    context = known(result.context)
    assert context.source == "setting"
    text = manifest.entries[0].text
    if left == "none":
        assert (context.left_tokens, context.unscored_tokens) == (0, 1)
        ids = CHAT(text)["input_ids"]
        with torch.no_grad():
            assert bits(result)[0] == pytest.approx(one_by_one(LOADED.model, ids, 1), abs=1e-3)
    else:
        assert context.left == (CHAT.eos_token if left == "eos" else left)
        expected = log_perplexity(
            LOADED.model, CHAT, [text], context=None if left == "eos" else left
        )
        assert bits(result)[0] == pytest.approx(expected[0], abs=1e-3)
    assert not any("not known" in warning for warning in result.warnings)


PLAIN = plain_manifest()


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        (
            {"left_context": "bos"},
            ModelError,
            "the tokenizer has no BOS token; give 'none', or the",
        ),
        ({"left_context": ""}, SettingsError, "left_context='' is empty; where nothing was in fro"),
        ({"left_context": "BOS"}, SettingsError, "='BOS' would be read as a text .*; give 'bos'"),
        ({"left_context": " eos"}, SettingsError, "would be read as a text that was in front; gi"),
        ({"left_context": "Well\udcff"}, SettingsError, r"holds half a character, as bytes that"),
        (
            {"left_context": "eos", "manifest": wrapped_manifest(ANSWER)},
            SettingsError,
            "left_context='eos' is for plain texts, and the can",
        ),
        (
            {"left_context": "eos", "rows": rows_of(PLAIN)},
            SettingsError,
            r"leave left_context out, or move rows.json aside",
        ),
        (
            {"rows": rows_of(PLAIN, manifest_sha256="a" * 64)},
            ManifestError,
            r"rows.json is of the manifest aaaaaaaaaaaaaaaa, and th",
        ),
        (
            {"rows": rows_of(PLAIN, tokenizer_sha256="a" * 64)},
            ManifestError,
            r"rows.json is of rows of another tokenizer than",
        ),
    ],
)
def test_where_rows_are_known_otherwise_or_may_be_meant_otherwise_it_is_refused(
    options: dict[str, Any], error: type[LmexposureError], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        scoring_context(LOADED, **{"manifest": PLAIN, **options})


def test_rows_of_no_such_type_are_refused() -> None:
    wrong: Any = 3
    with pytest.raises(ManifestError, match="rows is of type int; give what verify"):
        measure(LOADED, PLAIN, rows=wrong)


@pytest.mark.slow
def test_rows_of_the_training_are_what_is_scored(tmp_path: Path) -> None:
    manifest = plain_manifest()
    rows = rows_of(manifest, before="Well. ", behind=" Yes.", unscored=1)
    result = measure(LOADED, manifest, settings=FEW, rows=rows)
    context = known(result.context)
    assert (context.source, context.unscored_tokens) == ("rows", 1)
    assert context.left == f"{CHAT.eos_token}Well. "
    assert result.warnings[0].startswith("of each canary the first 1 token carried no loss")
    manifest.write(tmp_path / "manifest.json")
    assert rows_beside(tmp_path / "manifest.json") is None
    rows.save(tmp_path / "rows.json")
    assert rows_beside(tmp_path / "manifest.json") == rows
    found = measure(LOADED, tmp_path / "manifest.json", settings=FEW)
    assert found == result
    assert measure(LOADED, manifest, settings=FEW, rows=tmp_path / "rows.json") == result
    assert bits(measure(LOADED, manifest, settings=FEW)) != bits(result)


def test_rows_in_chats_are_those_of_the_training_too() -> None:
    manifest = wrapped_manifest(ANSWER)
    rows = rows_of(manifest, before="<|assistant|>\n", behind="<|end|>", loss="assistant")
    found = scoring_context(LOADED, manifest, rows=rows)
    record = found.record
    assert (record.source, record.form, record.loss) == ("rows", "messages", "assistant")
    assert record.left.endswith("<|assistant|>\n")
    assert found.warnings == ()


def test_rows_in_no_single_context_are_a_warning() -> None:
    manifest = plain_manifest()
    rows = rows_of(manifest, start=None, agreeing=0, warnings=("3 of 12 canaries are cut",))
    found = scoring_context(LOADED, manifest, rows=rows)
    assert found.record.source == "assumed"
    assert found.warnings[0] == "rows of the training: 3 of 12 canaries are cut"
    assert found.warnings[1].startswith("the rows of the training deliver the canaries in no singl")
    said = scoring_context(LOADED, manifest, rows=rows, left_context="none")
    assert said.record.source == "setting"


def test_where_nothing_is_known_the_result_and_the_gate_say_so() -> None:
    manifest = plain_manifest()
    result = measure(LOADED, manifest, settings=FEW)
    assert known(result.context).source == "assumed"
    (warning,) = [line for line in result.warnings if "which is assumed" in line]
    assert "canaries are scored with '<|endoftext|>' before them, which is assumed" in warning
    verdict = check(result, Thresholds(min_canaries=1))
    assert any("those rows are not known" in line for line in verdict.untested)


@pytest.mark.slow
def test_what_we_trained_ourselves_is_known(tmp_path: Path) -> None:
    manifest = plain_manifest()
    learned = training()
    ours = measure(LOADED, manifest, settings=FEW, validation=learned)
    foreign = measure(LOADED, manifest, settings=FEW)
    assert known(ours.context).source == "training"
    assert not any("which is assumed" in line for line in ours.warnings)
    # Of a training elsewhere no more is known of the rows than without its record.
    other = learned.model_copy(update={"foreign": True})
    elsewhere = measure(LOADED, manifest, settings=FEW, validation=other)
    assert (elsewhere.context, elsewhere.warnings) == (foreign.context, foreign.warnings)
    assert elsewhere.privacy == foreign.privacy != ours.privacy
    # Numbers and their hash are those of before contexts were recorded.
    assert (ours.inputs_sha256, bits(ours)) == (foreign.inputs_sha256, bits(foreign))
    assert not any("not known" in line for line in check(ours).untested)


@pytest.mark.slow
def test_what_decides_the_rows_decides_the_inputs() -> None:
    manifest = plain_manifest()
    few = replace(FEW, estimate="sampled")
    settings = [few, replace(few, left_context="eos"), replace(few, left_context="none")]
    hashes = {measure(LOADED, manifest, settings=each).inputs_sha256 for each in settings}
    rows = [rows_of(manifest), rows_of(manifest, behind="."), rows_of(manifest, unscored=1)]
    hashes |= {measure(LOADED, manifest, settings=few, rows=each).inputs_sha256 for each in rows}
    assert len(hashes) == 6


def test_without_any_start_token_the_first_token_goes_unscored() -> None:
    tokenizer = characters()
    tokenizer.eos_token = None
    loaded = loaded_of("lstm", tokenizer)
    record = scoring_context(loaded, plain_manifest()).record
    assert (record.left, record.left_tokens, record.unscored_tokens) == ("", 0, 1)


def test_what_lies_in_the_directory_of_a_training_is_known(tmp_path: Path) -> None:
    """Also an earlier snapshot; a file of that name that is no such record says nothing."""
    manifest = plain_manifest()
    for name in ("model", "snapshots/epoch-1"):
        (tmp_path / name).mkdir(parents=True)
    record = tmp_path / "training.json"

    def source(name: str) -> str:
        loaded = replace(LOADED, name=str(tmp_path / name))
        return scoring_context(loaded, manifest).record.source

    record.write_text("{}")
    assert source("model") == "assumed"
    record.unlink()
    write_hashed(record, trained_record({}))
    assert [source(name) for name in ("model", "snapshots/epoch-1", "gone")] == [
        *("training", "training", "assumed")
    ]
    write_hashed(record, trained_record({}) | {"schema": "lmexposure.training/2"})
    for name in ("model", "snapshots/epoch-1"):
        with pytest.raises(ResultError, match=r"json has schema 'lmexposure.training/2', and this"):
            source(name)


def test_the_work_of_a_measurement_counts_the_rows() -> None:
    manifest = wrapped_manifest(ANSWER, CHAT)
    contexts = scoring_context(LOADED, manifest).by_format
    bare, whole = (
        measurement_phases(task_of(LOADED, manifest, FEW, around), Paces())[0]
        for around in ({}, contexts)
    )
    row = encode_in_context(CHAT, [manifest.entries[0].text], context=contexts["two"])[0]
    alone = CHAT(manifest.entries[0].text)["input_ids"]
    assert whole.work - bare.work == len(row.ids) - len(alone)  # what is around a fill is read once
