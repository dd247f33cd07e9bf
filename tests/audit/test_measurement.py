import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from audit.quick import ALL_FILLS, QUICK
from audit.small import loaded_of, planned, task_of, training
from corpora import sentences
from known import known
from manifest_files import judged
from tiny import byte_level_bpe, model_of, word_piece
from tokenizers import Tokenizer, models, processors
from transformers import PreTrainedTokenizerFast

from lmexposure import __version__
from lmexposure.audit import MeasureSettings, measure
from lmexposure.audit.format_scores import score_format
from lmexposure.canaries import Format, Manifest, Plan, load_format
from lmexposure.core import claimed
from lmexposure.errors import (
    FileError,
    LmexposureError,
    ManifestError,
    ModelError,
    NumericalError,
    PlanError,
    ResultError,
)
from lmexposure.integrations import insert
from lmexposure.models import LoadedModel, new_model
from lmexposure.scoring import log_perplexity
from lmexposure.studies import Result


def manifest_of(*formats: Format, seed: int = 1) -> Manifest:
    plan = {"canaries": 4, "repetitions": (1, 2), "controls": 6, "seed": seed}
    witness = formats[0].name != "bare"  # whose fills are in any number
    return planned(*formats, documents=50, **plan, witness=witness)


def new_lstm(manifest: Manifest) -> LoadedModel:
    characters = "".join(form.characters for form in manifest.plan.formats)
    return new_model("lstm", sentences(50), seed=3, separator="\n", extra_characters=characters)


MANIFEST = manifest_of(load_format("random_number"))
UNTRAINED = new_lstm(MANIFEST)
SAMPLED = replace(QUICK, estimate="sampled", extraction=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one measurement of it leaves, to be read; who changes it takes a copy."""
    out = tmp_path_factory.mktemp("whole")
    measure(UNTRAINED, MANIFEST, out=out, settings=QUICK)
    return out


@pytest.fixture
def measured(whole: Path, tmp_path: Path) -> Path:
    """A copy of `whole`."""
    return shutil.copytree(whole, tmp_path / "r")


def test_the_numbers_are_those_of_the_rooms_below(whole: Path) -> None:
    result = Result.read(whole / "result.json")
    one = MANIFEST.formats["random_number"]
    texts = [one.text(i) for i in MANIFEST.references("random_number", 400)]
    null = log_perplexity(UNTRAINED.model, UNTRAINED.tokenizer, texts, context=None)
    for canary, found in zip(judged(MANIFEST), result.canaries, strict=True):
        bits = log_perplexity(UNTRAINED.model, UNTRAINED.tokenizer, [canary.text], context=None)[0]
        rank = 1 + int((null <= bits).sum())
        assert (found.id, found.repetitions) == (canary.id, canary.repetitions)
        assert found.log_perplexity_bits == pytest.approx(bits, abs=1e-3)
        assert found.estimates["sampled"].rank == rank
        assert found.estimates["sampled"].value == pytest.approx(math.log2(400 / rank))
        methods = {"importance", "sampled", "certificate", "skew_normal"}
        assert set(found.estimates) - {"exact"} == methods
        best = found.estimates.get("exact", found.estimates["importance"])
        assert found.exposure == best
        assert known(found.estimates["certificate"].value) <= known(found.exposure.high)


def test_an_untrained_model_tells_nothing(whole: Path) -> None:
    result = Result.read(whole / "result.json")
    rows = {row.repetitions: row for row in result.summary}
    assert list(rows) == [0, 1, 2]
    assert all(known(row.guessing_test).p_value > 0.001 for row in rows.values())
    assert rows[0].epsilon is None
    assert all(not e.found for c in result.canaries for e in c.extraction if e.revealed == 0)
    searched = [len(c.extraction) for c in result.canaries if c.role == "control"]
    assert searched == [3] * 6  # greedy, beam and best-first, with nothing known


def untrained_on(form: Format) -> LoadedModel:
    return new_model(
        "lstm", sentences(50), seed=3, separator=None, extra_characters=form.characters
    )


TWO = Format(name="two", template="My code is {digits:2}")


def test_files_hold_the_same_without_secrets(whole: Path) -> None:
    result = measure(UNTRAINED, MANIFEST, settings=QUICK)
    saved = Result.read(whole / "result.json")
    assert saved == result.model_copy(update={"scores_sha256": saved.scores_sha256})
    table = pq.read_table(whole / "scores.parquet").to_pydict()
    assert table["role"].count("reference") == 400
    bits = dict(zip(table["id"], table["log_perplexity_bits"], strict=True))
    assert all(bits[c.id] == c.log_perplexity_bits for c in result.canaries)
    assert not (whole / ".work").exists()
    everything = b"".join(p.read_bytes() for p in whole.iterdir())
    assert not any(c.text[-9:].encode() in everything for c in MANIFEST.entries)


def test_the_same_inputs_are_measured_once(measured: Path) -> None:
    MANIFEST.write(measured / "m.json")
    before = (measured / "result.json").stat().st_mtime_ns
    again = measure(UNTRAINED, measured / "m.json", out=measured, settings=QUICK)
    assert again == measure(UNTRAINED, MANIFEST, out=measured, settings=QUICK)
    assert again.to_dict() == Result.read(measured / "result.json").to_dict()
    assert (measured / "result.json").stat().st_mtime_ns == before
    assert again.lmexposure == __version__
    other = replace(QUICK, bootstrap_seed=4)
    with pytest.raises(ResultError, match="holds the result of another model, manifest or sett"):
        measure(UNTRAINED, MANIFEST, out=measured, settings=other)


@pytest.mark.slow
def test_the_date_is_that_of_the_end_of_the_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In run.json alone, so that the bytes of a result are those of its inputs."""
    record, written = tmp_path / "r" / "run.json", []
    for day in (1, 2, 3):
        date = f"2026-01-0{day}T00:00:00Z"
        monkeypatch.setattr("lmexposure.audit.directory.utc_now", lambda date=date: date)
        measure(UNTRAINED, MANIFEST, out=tmp_path / "r", settings=QUICK)
        written.append((tmp_path / "r" / "result.json").read_bytes())
        found = Result.read(tmp_path / "r")
        known = "2026-01-03T00:00:00Z" if day == 3 else "2026-01-01T00:00:00Z"
        assert (found.provenance.measured, found.files.whole) == (known, False)
        assert found.files.record is not None
        assert found.files.record.measure == replace(QUICK, threads=1)
        if day == 2:  # what follows is measured anew
            (tmp_path / "r" / "result.json").unlink()
    assert len(set(written)) == 1
    record.write_text(record.read_text().replace("2026-01-03", "2026-01-04"))
    measure(UNTRAINED, MANIFEST, out=tmp_path / "r", settings=QUICK)
    assert "it is made again, without the date of the measuring" in caplog.text
    assert Result.read(tmp_path / "r").provenance.measured is None
    assert record.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", b'{"name": "what somebody noted"}'),
        ("run.json", b"not JSON at all"),
        ("scores.parquet", b"of another program"),
    ],
)
def test_a_file_of_another_program_is_not_written_over(
    tmp_path: Path, name: str, content: bytes
) -> None:
    """Found out before the work: a result beside such a run.json could not be read."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=f"{name} is there already, and lmexposure did not write"):
        measure(UNTRAINED, MANIFEST, out=tmp_path, settings=QUICK)
    assert [path.name for path in tmp_path.glob("[!.]*")] == [name]
    assert (tmp_path / name).read_bytes() == content


@pytest.mark.parametrize("said", ["100000000000", "true", "0"])
def test_a_number_of_threads_that_no_machine_has_is_not_taken_over(
    whole: Path, tmp_path: Path, said: str
) -> None:
    inputs = Result.read(whole / "result.json").inputs_sha256
    with claimed(Result, tmp_path) as held, held.work({"inputs": inputs}) as work:
        work.part("threads").write(f'{{"threads": {said}}}'.encode())
    assert measure(UNTRAINED, MANIFEST, out=tmp_path, settings=QUICK).settings.threads == 1


@pytest.mark.parametrize("stop_at", ["scoring random_number", "extracting random_number"])
def test_an_interrupted_measurement_goes_on(whole: Path, tmp_path: Path, stop_at: str) -> None:
    def stop(what: str, done: int, total: int, note: str = "") -> None:
        if what == stop_at and done >= min(total, 3 if "extracting" in what else total):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(UNTRAINED, MANIFEST, out=tmp_path / "r", settings=QUICK, progress=stop)
    assert not (tmp_path / "r" / "result.json").exists()
    seen: list[str] = []
    threads: set[int] = set()

    def watch(what: str, done: int, total: int, note: str = "") -> None:
        seen.append(what)
        threads.add(torch.get_num_threads())

    # With other threads the last bits of scores may be others: it goes on with those that it had.
    others = replace(QUICK, threads=2)
    again = measure(UNTRAINED, MANIFEST, out=tmp_path / "r", settings=others, progress=watch)
    assert threads == {again.settings.threads} == {1}
    assert again.to_dict() == Result.read(whole / "result.json").to_dict()
    for name in ("result.json", "scores.parquet"):
        assert (tmp_path / "r" / name).read_bytes() == (whole / name).read_bytes()
    assert ("scoring random_number" in seen) == (stop_at == "scoring random_number")


def test_a_tokenizer_that_cannot_be_followed_leaves_extraction_out_and_says_so() -> None:
    shouted = Format(
        name="w", template="my {choice:w} is {digits:2}", lists={"w": ["PIN", "NUMBER"]}
    )
    result = measure(loaded_of("gpt2", word_piece()), manifest_of(shouted), settings=ALL_FILLS)
    assert any("no extraction" in line for line in result.warnings)
    searches = {row.method for c in result.canaries for row in c.extraction}
    assert searches == {"best_first"}  # its tokens are known by encoding every fill


CASED = Format(name="w", template="my {choice:w} is {digits:2}", lists={"w": ["PIN", "pin"]})


def test_what_cannot_be_measured_is_refused() -> None:
    ids = [c.id for c in MANIFEST.entries if c.role == "canary"]
    nothing = insert(sentences(50), MANIFEST.plan.without(*ids)).manifest
    no_digits = new_model("lstm", ["no digits"], seed=0, separator="\n")
    pieces, alike = loaded_of("gpt2", word_piece()), "but the tokenizer gives both the same tokens"
    refused: list[tuple[LoadedModel, Manifest, type[LmexposureError], str]] = [
        (UNTRAINED, nothing, ManifestError, "no inserted canary"),
        (UNTRAINED, manifest_of(TWO), PlanError, "ask for at most 86"),
        (no_digits, MANIFEST, ModelError, "format 'random_number': text 0 of 414"),
        # They would share one token path: no disjoint events, and no secrets of their own.
        (pieces, manifest_of(CASED), ModelError, alike),
    ]
    for loaded, manifest, error, match in refused:
        settings = ALL_FILLS if loaded is pieces else QUICK
        with pytest.raises(error, match=match):
            measure(loaded, manifest, settings=settings)


def test_nan_weights_are_an_error_and_never_a_low_number(tmp_path: Path) -> None:
    broken = new_lstm(MANIFEST)
    with torch.no_grad():
        broken.model.lm_head.bias[4] = float("nan")
    with pytest.raises(NumericalError, match="NaN or infinite"):
        measure(broken, MANIFEST, out=tmp_path, settings=QUICK)
    assert not (tmp_path / "result.json").exists()


def test_the_config_belongs_to_the_inputs(tmp_path: Path) -> None:
    """The same weights under another number of heads are another model."""
    loaded = loaded_of("gpt2", byte_level_bpe())
    measure(loaded, MANIFEST, out=tmp_path, settings=SAMPLED)
    loaded.model.config.n_head = 4
    with pytest.raises(ResultError, match="another model"):
        measure(loaded, MANIFEST, out=tmp_path, settings=SAMPLED)


def test_a_model_that_did_not_learn_is_inconclusive() -> None:
    losses = training(validation_bits=5.0, initial_validation_bits=5.001, improved=False)
    result = measure(UNTRAINED, MANIFEST, settings=SAMPLED, validation=losses)
    assert result.warnings[0].startswith("INCONCLUSIVE: the model did not learn")
    assert "(validation 5.000 bits per token, 5.001 before training)" in result.warnings[0]


def test_a_clock_that_decided_numbers_is_named() -> None:
    timed, late = replace(QUICK, budget_seconds=60.0), training(stopped="max_seconds")
    result = measure(UNTRAINED, MANIFEST, settings=timed, validation=late)
    clocks = [line for line in result.warnings if "by the clock" in line]
    assert [line.split()[0] for line in clocks] == ["max_seconds", "budget_seconds=60"]
    assert all("another machine" in line for line in clocks)


@pytest.mark.slow
def test_chance_stands_beside_extraction() -> None:
    form = Format(name="three", template="My code is {digits:3}")
    result = measure(untrained_on(form), manifest_of(form), settings=ALL_FILLS)
    rows = [r for c in result.canaries if c.role == "canary" for r in c.extraction]
    assert {r.revealed for r in rows} == {0, 1, 2}  # never all three
    beams = {r.revealed: r for r in rows if r.method == "beam"}
    assert [beams[k].fills_left for k in range(3)] == [1000, 100, 10]
    assert [beams[k].by_chance for k in range(3)] == [0.1, 1.0, 1.0]
    assert all(r.found for r in rows if r.by_chance == 1.0)


def uniform_over(characters: str, form: Format) -> LoadedModel:
    """A model to which all of these characters are equally likely, and nothing else is."""
    loaded = untrained_on(form)
    allowed = loaded.tokenizer.convert_tokens_to_ids(list(characters))
    with torch.no_grad():
        loaded.model.lm_head.weight.zero_()
        loaded.model.lm_head.bias.fill_(-30.0)
        loaded.model.lm_head.bias[allowed] = 0.0
    return loaded


def test_no_certificate_where_a_part_of_the_secret_went_unscored() -> None:
    """Without it, a uniform model would be certified 3.3 bits of exposure."""
    form = Format(name="bare", template="{digits:3}")
    loaded = uniform_over("0123456789", form)
    loaded.tokenizer.eos_token = None
    settings = replace(ALL_FILLS, extraction=False)
    result = measure(loaded, manifest_of(form), settings=settings)
    assert all("certificate" not in c.estimates for c in result.canaries)
    assert any("no certificate" in line for line in result.warnings)
    assert any("first token of a text was not scored" in line for line in result.warnings)


def test_an_unwritable_place_is_found_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    seen: list[str] = []
    given: dict[str, Any] = {"settings": QUICK, "progress": lambda what, *_: seen.append(what)}
    with pytest.raises(FileError, match="cannot write"):
        measure(UNTRAINED, MANIFEST, out=tmp_path / "file", **given)
    assert seen == []


def test_lost_scores_are_made_again(whole: Path, measured: Path) -> None:
    (measured / "scores.parquet").unlink()
    again = measure(UNTRAINED, MANIFEST, out=measured, settings=QUICK)
    assert again.to_dict() == Result.read(whole / "result.json").to_dict()
    assert (measured / "scores.parquet").read_bytes() == (whole / "scores.parquet").read_bytes()


@pytest.mark.parametrize(("left_out", "exhaustive"), [((), True), (("two/x1/0000",), False)])
def test_a_canary_left_out_makes_the_references_no_longer_all_there_are(
    left_out: tuple[str, ...], exhaustive: bool
) -> None:
    plan = Plan(formats=(TWO,), canaries=2, repetitions=(1,), controls=2, seed=1)
    manifest = insert(sentences(50), plan.without(*left_out)).manifest
    settings = replace(ALL_FILLS, extraction=False)
    result = measure(untrained_on(TWO), manifest, settings=settings)
    assert result.formats[0].exhaustive == exhaustive


def test_fills_that_merge_with_the_context_are_scored_like_the_others() -> None:
    """Where "\\n2" is one token, all totals hold the context's cost, or none does."""
    merged = Tokenizer(models.BPE(vocab=VOCABULARY, merges=[("\n", "2")]))
    merged.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=merged, bos_token="<s>")
    loaded = LoadedModel(model=model_of("gpt2", len(tokenizer)), tokenizer=tokenizer, name="m")
    form = Format(name="f", template="{digits:2}!")
    inserted = insert(
        ["a"] * 50, Plan(formats=(form,), canaries=4, repetitions=(1,), controls=0, seed=0)
    )[1]
    lines = replace(inserted.corpus, separator="\n")
    manifest = replace(inserted, corpus=lines)
    scores = score_format(task_of(loaded, manifest, MeasureSettings()), "f")
    assert set(scores.tokens.tolist()) == {3, 4}  # "\\n2" "8" "!", or "\\n" "7" "8" "!"


VOCABULARY = {token: i for i, token in enumerate(["<s>", *"0123456789!\n", "\n2"])}


def test_a_quick_look_says_what_is_coarser() -> None:
    settings = replace(MeasureSettings().quicker, draws=500, budget_steps=2_000, permutations=999)
    result = measure(UNTRAINED, MANIFEST, settings=settings)
    assert result.settings.quick is True
    assert result.formats[0].references == 1_000
    assert result.warnings[0].startswith("a quick look, with 1,000 references instead of 10,000")
    assert "measure in full" in result.warnings[0]
    assert {row.revealed for c in result.canaries for row in c.extraction} == {0}
