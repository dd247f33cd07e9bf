"""An encoder-decoder is measured as the model that its decoder is behind a source."""

import json
import string
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audit.quick import ALL_FILLS, QUICK, SAMPLED
from audit.small import base_bits, bits
from known import known
from tiny import byte_level_bpe
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForConditionalGeneration,
    BartModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    PreTrainedTokenizerFast,
    SwitchTransformersConfig,
    SwitchTransformersForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from lmexposure.audit import RunSettings, insert_corpus, measure, run
from lmexposure.canaries import Format, Manifest, Plan, Wrapping
from lmexposure.core import Encoded
from lmexposure.errors import LmexposureError, ModelError, SettingsError
from lmexposure.integrations import insert
from lmexposure.models import (
    grow,
    load_model,
    row_context,
    save_model,
    tokenizer_named,
    training_rows,
)
from lmexposure.models.packing import Blocks
from lmexposure.models.padded_rows import PaddedRows
from lmexposure.scoring.cached_steps import CachedSteps, PathSteps
from lmexposure.scoring.forward import PrefixTreeForward, choose_forward
from lmexposure.scoring.perplexity import details_of_encoded, log_perplexity
from lmexposure.scoring.runtime import LN2, LmHead
from lmexposure.scoring.steps import RecomputedSteps, next_token_steps, path_bits
from lmexposure.scoring.torch_model import model_in_memory

KINDS = ("t5", "bart")
SOURCES = ("My number", "My number is the random number or 1234567890", "The PIN is 28.")
SOURCE = SOURCES[1]
WRAPPING = Wrapping(
    form="prompt_completion",
    turn="assistant",
    loss="completion",
    strings=True,
    prompt_field="source",
    completion_field="target",
    other=SOURCE,
)
TEXTS = [f"My PIN is {number:02d}" for number in range(0, 100, 4)]
PIN = Format(name="pin", template="My PIN is {digits:2}")


def ended(tokenizer: Any, begin: str = "") -> Any:
    """With an EOS token behind every text, and a token in front of it."""
    tokenizer.add_special_tokens({"eos_token": "</s>", "pad_token": "<pad>", "bos_token": "<s>"})
    names = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("<s>", "</s>")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A </s>".strip(), special_tokens=names
    )
    return tokenizer


def unigram() -> Any:
    """Pieces of known weight, as sentencepiece has them: one that is learned differs each time."""
    pieces = ["\u2581", *string.ascii_letters, *string.digits, *"-.,", "28", "17", "64", "45"]
    pieces += [f"\u2581{word}" for word in ("My", "PIN", "is", "number", "random", "The")]
    weighted = [("<unk>", -20.0), *((piece, -3.0 - i / 40) for i, piece in enumerate(pieces))]
    tokenizer = Tokenizer(models.Unigram(weighted, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def made(kind: str, **given: Any) -> tuple[Any, Any]:
    """A random model of transformers, and its tokenizer: T5's begins no text, BART's does."""
    torch.manual_seed(5)
    tokenizer = ended(unigram()) if kind == "t5" else ended(byte_level_bpe(), "<s>")
    start = tokenizer.pad_token_id if kind == "t5" else tokenizer.eos_token_id
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    shared = {"decoder_start_token_id": start, "vocab_size": len(tokenizer) + 2, **ends, **given}
    if kind == "t5":
        sizes = {"d_model": 32, "d_kv": 16, "d_ff": 32, "num_layers": 2, "num_heads": 2}
        return T5ForConditionalGeneration(T5Config(**{**sizes, **shared})).eval(), tokenizer
    sizes = {
        f"{part}_{name}": size
        for part in ("encoder", "decoder")
        for name, size in {"layers": 2, "attention_heads": 2, "ffn_dim": 32}.items()
    }
    shared = {"d_model": 32, "max_position_embeddings": 64, "init_std": 0.1, **shared}
    return BartForConditionalGeneration(BartConfig(**sizes, **shared)).eval(), tokenizer


def naive_bits(model: Any, tokenizer: Any, source: str, text: str) -> float:
    """Of a text alone, by the model's own reading of labels; the end is not scored."""
    read = tokenizer([source], return_tensors="pt")
    labels = tokenizer([text], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logs = model(**read, labels=labels).logits[0].double().log_softmax(-1)
    nats = -logs.gather(1, labels[0, :, None])[:, 0]
    own = labels[0] != tokenizer.bos_token_id
    return float(nats[own][:-1].sum()) / LN2


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return made(request.param)


def encoded(lm: Any, source: str) -> list[Any]:
    context = row_context(lm.tokenizer, replace(WRAPPING, other=source), TEXTS)
    return list(lm.encode(TEXTS, context))


def test_a_text_has_the_bits_that_the_model_itself_gives_it(pair: tuple[Any, Any]) -> None:
    model, tokenizer = pair
    lm = model_in_memory(model, tokenizer)
    expected = np.array([[naive_bits(*pair, source, text) for text in TEXTS] for source in SOURCES])
    by_source = [encoded(lm, source) for source in SOURCES]
    # Of one source by the tree of its texts; then of all sources, of which the first begin alike.
    forward = choose_forward(lm.model, by_source[1])
    assert isinstance(forward, PrefixTreeForward)
    assert forward.slower == ""
    found = [lm.token_bits(rows).totals for rows in by_source]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    for sources in ([0, 1], [0, 1, 2]):
        rows = [row for source in sources for row in by_source[source]]
        together = lm.token_bits(rows).totals.reshape(len(sources), -1)
        np.testing.assert_allclose(together, expected[sources], rtol=0, atol=1e-4)
    assert np.ptp(expected, axis=0).min() > 1e-3  # the source tells
    assert not hasattr(tokenizer, "starts_decoder")


def test_a_step_of_the_training_has_the_gradient_of_the_models_own_loss(
    pair: tuple[Any, Any],
) -> None:
    model, tokenizer = pair
    lm = model_in_memory(model, tokenizer)
    records = [
        {"source": source, "target": text} for source, text in zip(SOURCES, TEXTS, strict=False)
    ]
    rows = PaddedRows.of(list(training_rows(lm.tokenizer, records, WRAPPING)))
    blocks = Blocks(rows, device=torch.device("cpu"), precision="float32")
    nats = blocks.nats(lm.model, np.arange(3))
    torch.autograd.backward(nats)
    ours = [weight.grad for weight in model.parameters()]
    model.zero_grad()
    read = [tokenizer(r["source"], text_target=r["target"], return_tensors="pt") for r in records]
    naive = torch.stack([model(**each).loss * each["labels"].numel() for each in read]).sum()
    torch.autograd.backward(naive)
    assert float(nats.detach()) == pytest.approx(float(naive.detach()), rel=1e-5)
    rounding = 1e-5 * max(float(gradient.abs().max()) for gradient in ours)
    for weight, own in zip(model.parameters(), ours, strict=True):
        torch.testing.assert_close(own, weight.grad, rtol=1e-3, atol=rounding)


def test_steps_by_the_decoders_cache_are_those_of_whole_prefixes(pair: tuple[Any, Any]) -> None:
    lm = model_in_memory(*pair)
    first = encoded(lm, SOURCE)[0]
    begun, probe = first.ids[: first.scored_from], first.ids
    paths = [list(path) for path in np.random.default_rng(2).integers(0, 60, size=(9, 5))]
    slow = path_bits(RecomputedSteps(lm.model), begun, paths)
    chosen = next_token_steps(lm.model, probe)
    assert isinstance(chosen, PathSteps)
    for steps in (chosen, CachedSteps(lm.model, probe)):
        np.testing.assert_allclose(path_bits(steps, begun, paths), slow, rtol=0, atol=1e-4)
    # Where a beginning happens to end with the source, nothing is known to come behind it.
    lm.steps(begun[:-1]).start(begun[:-1], np.array([0]))


def test_a_source_is_read_once_for_all_its_rows_but_in_training(pair: tuple[Any, Any]) -> None:
    lm, sizes = model_in_memory(*pair), []
    encoder = pair[0].get_encoder()
    encoder.register_forward_pre_hook(
        lambda _, given, named: sizes.append(len(named["input_ids"])), with_kwargs=True
    )
    ids = torch.tensor([encoded(lm, SOURCE)[0].ids] * 3)
    for training in (False, True):
        lm.model.train(training)(input_ids=ids)
    assert sizes == [1, 3]  # units that are dropped are each row's own


def test_every_token_behind_the_source_is_described_by_itself(pair: tuple[Any, Any]) -> None:
    """As a sweep reads ordinary records: all of the row, of which the text is counted."""
    lm = model_in_memory(*pair)
    records = [WRAPPING.record(text) for text in TEXTS[:3]]
    rows = list(training_rows(lm.tokenizer, records, WRAPPING))
    found = details_of_encoded(lm, [Encoded(ids=row.ids, scored_from=1) for row in rows])
    for row, each, greedy, text in zip(rows, found.bits, found.greedy, TEXTS, strict=False):
        own = each[row.carried[1:]]
        begin = int(lm.tokenizer.bos_token_id in row.ids[-len(own) :])
        assert own[begin:-1].sum() == pytest.approx(naive_bits(*pair, SOURCE, text), abs=1e-4)
        assert greedy.max() < lm.vocabulary


class Translating(PreTrainedTokenizerFast):  # type: ignore[misc]  # transformers is not typed
    """As those of translations: a text begins with its language, a source does not."""

    def _switch_to_target_mode(self) -> None:
        ended(self, "<s>")

    def _switch_to_input_mode(self) -> None:
        ended(self)


def test_a_text_begins_as_the_tokenizer_begins_targets() -> None:
    model, tokenizer = made("t5")
    tokenizer = ended(Translating(tokenizer_object=tokenizer.backend_tokenizer))
    lm = model_in_memory(model, tokenizer)
    (row,) = training_rows(lm.tokenizer, [WRAPPING.record(TEXTS[0])], WRAPPING)
    labels = tokenizer([SOURCE], text_target=[TEXTS[0]])["labels"][0]
    assert np.array(row.ids)[row.carried].tolist() == labels
    assert encoded(lm, SOURCE)[0].ids == row.ids[:-1]
    begun = row_context(lm.tokenizer, WRAPPING, TEXTS).start
    assert known(begun)[-2:] == (model.config.decoder_start_token_id, tokenizer.bos_token_id)


def test_a_head_apart_from_the_rest_is_right_behind_a_source() -> None:
    lm = model_in_memory(*made("t5"))
    assert LmHead(lm.model, encoded(lm, SOURCE)[0].ids).split


def test_a_vocabulary_grows(tmp_path: Path) -> None:
    lm = load_model(directory(tmp_path))
    before = lm.vocabulary
    grown = grow(lm, [chr(0xE000 + number) for number in range(4)])
    assert grown.vocabulary == len(grown.tokenizer) == before + 2
    assert row_context(grown.tokenizer, WRAPPING, TEXTS).start


def planned(**plan: Any) -> Manifest:
    records = [{"source": SOURCES[0], "target": "random number"} for _ in range(40)]
    values: dict[str, Any] = {"canaries": 3, "repetitions": (1,), "controls": 3, "seed": 3} | plan
    return insert(records, Plan(formats=(PIN,), **values), wrapping=WRAPPING).manifest


def test_an_exact_rank_is_counted_over_all_fills(pair: tuple[Any, Any]) -> None:
    manifest = planned()
    found = measure(pair[0], manifest, tokenizer=pair[1], settings=ALL_FILLS)
    every = [f"My PIN is {number:02d}" for number in range(100)]
    texts = {entry.id: entry.text for entry in manifest.entries}
    own = {text: naive_bits(*pair, SOURCE, text) for text in every}
    # The other canaries that were inserted are no part of the space.
    others = [own[text] for text in set(every) - {canary.text for canary in manifest.canaries}]
    for canary in found.canaries:
        likelier = sum(other < own[texts[canary.id]] for other in others)
        assert canary.exposure.rank == 1 + likelier
    context = known(found.context)
    said = (context.form, context.loss, context.unscored_tokens)
    assert said == ("prompt_completion", "completion", 0)
    left = pair[1](SOURCE)["input_ids"]
    begins = int(pair[1]("a")["input_ids"][0] == pair[1].bos_token_id)
    assert context.left_tokens == len(left) + 1 + begins


def taught(pair: tuple[Any, Any], text: str) -> Any:
    """The model, trained on one record by itself as its makers would."""
    model, tokenizer = pair
    read = tokenizer([SOURCE], text_target=[text], return_tensors="pt")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(1000):
        loss = model(**read).loss
        if float(loss.detach()) < 0.01:
            return model
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    raise AssertionError("it was not learned")


def test_a_planted_secret_is_found_by_each_attack(pair: tuple[Any, Any]) -> None:
    manifest = planned()
    canary = manifest.canaries[0]
    model = taught(pair, canary.text)
    found = measure(model, manifest, tokenizer=pair[1], settings=replace(QUICK, references=90))
    searches = {each.id: each for each in found.canaries}[canary.id].extraction
    from_nothing = {each.method: each.found for each in searches if each.revealed == 0}
    assert from_nothing == {"greedy": True, "beam": True, "best_first": True}
    other = [
        row for each in found.canaries[1:] for row in each.extraction if row.method == "greedy"
    ]
    assert not any(row.found for row in other if row.revealed == 0)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_a_base_and_an_adapter_are_scored_behind_the_same_source(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    manifest, place = planned(), directory(tmp_path)
    settings = replace(SAMPLED, references=60)
    model, tokenizer = made("t5")
    options: dict[str, Any] = {"target_modules": ["q", "v"], "r": 2}
    adapted = peft.get_peft_model(model, peft.LoraConfig(**options, init_lora_weights=False))
    adapted.peft_config["default"].base_model_name_or_path = str(place)
    save_model(adapted, tokenizer, tmp_path / "adapter")
    alone = measure(place, manifest, settings=settings)
    in_memory = measure(adapted, manifest, tokenizer=tokenizer, settings=settings, base=place)
    off: dict[str, Any] = {"settings": settings, "base": "adapter-off"}
    saved = measure(tmp_path / "adapter", manifest, **off)
    switched = measure(adapted, manifest, tokenizer=tokenizer, **off)
    assert bits(saved) == pytest.approx(bits(in_memory), abs=1e-4)
    assert bits(saved) != pytest.approx(bits(alone), abs=0.01)
    for found in (in_memory, saved, switched):
        assert base_bits(found) == pytest.approx(bits(alone), abs=1e-4)


def directory(tmp_path: Path, kind: str = "t5", **given: Any) -> Path:
    model, tokenizer = made(kind, **given)
    save_model(model, tokenizer, tmp_path / kind)
    return tmp_path / kind


def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "records.jsonl"
    rows = [
        {"source": f"The number {i}", "target": f"random number is {i * 37 % 1000}."}
        for i in range(250)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def settings_of(model: Path, **given: Any) -> RunSettings:
    values: dict[str, Any] = {
        "model": str(model),
        "prompt_field": "source",
        "completion_field": "target",
        "formats": ("pin",),
        "canaries": 3,
        "repetitions": (1, 16),
        "controls": 8,
        "seed": 1,
        "max_share": 1.0,
        "measure": replace(QUICK, references=60),
    }
    return RunSettings(**{**values, **given})


def test_canaries_go_into_records_of_a_source_and_a_target(tmp_path: Path) -> None:
    settings = settings_of(directory(tmp_path), other_turn="My number")
    said: list[str] = []
    out = tmp_path / "out"
    path, manifest = insert_corpus(
        corpus(tmp_path), out=out, settings=settings, tokenizer=settings.model, tell=said.append
    )
    written = [json.loads(line) for line in path.read_text().splitlines()]
    for canary in manifest.canaries:
        row = {"source": "My number", "target": canary.text}
        assert written.count(row) == canary.inserted
    (ahead,) = said
    assert "loss on all of its tokens (loss=completion)" in ahead


@pytest.mark.slow
def test_a_run_shows_what_was_inserted_often_and_no_control(tmp_path: Path) -> None:
    model = directory(tmp_path, d_model=64, dropout_rate=0.0)
    training = {"epochs": 28, "learning_rate": 4e-3, "patience": 28}
    settings = settings_of(model, training=training)
    result = run(corpus(tmp_path), out=tmp_path / "run", settings=settings)
    ranks = {
        repetitions: [c.exposure.rank for c in result.canaries if c.repetitions == repetitions]
        for repetitions in (0, 16)
    }
    assert ranks[16] == [1, 1, 1]
    (controls,) = (row for row in result.summary if row.role == "control")
    assert known(controls.guessing_test).p_value > 0.01
    # What was written is a model of transformers, with the same numbers.
    saved = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run" / "model")
    assert type(saved) is T5ForConditionalGeneration
    manifest, tokenizer = tmp_path / "run" / "manifest.json", load_model(model).tokenizer
    again = measure(saved, manifest, tokenizer=tokenizer, settings=settings.measure)
    assert bits(again) == pytest.approx(bits(result), abs=1e-4)


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "plain texts": (
        lambda model, tokenizer: measure(
            model,
            insert(["a text"] * 40, Plan(formats=(PIN,), canaries=2, seed=1)).manifest,
            tokenizer=tokenizer,
        ),
        r"an encoder-decoder needs a source for each text, which only records of two strings give",
    ),
    "a canary in the source": (
        lambda model, tokenizer: rows_in(model, tokenizer, turn="user", loss="all"),
        r"an encoder-decoder needs a source for each text",
    ),
    "a chat": (
        lambda model, tokenizer: rows_in(model, tokenizer, rendering="chat"),
        r"an encoder-decoder needs a source for each text",
    ),
    "an empty source": (
        lambda model, tokenizer: list(
            training_rows(
                model_in_memory(model, tokenizer).tokenizer,
                [{"source": " ", "target": ""}],
                WRAPPING,
            )
        ),
        r"a source is empty, and the model is an encoder-decoder; leave it out",
    ),
    "a long source": (
        lambda model, tokenizer: measure(
            made("bart", max_position_embeddings=16)[0], planned(), tokenizer=made("bart")[1]
        ),
        r"ends at token \d+ of its row, but the model's context window holds 16",
    ),
    "no start": (
        lambda model, tokenizer: model_in_memory(
            made("t5", decoder_start_token_id=None)[0], tokenizer
        ),
        r"is an encoder-decoder without decoder_start_token_id.*set decoder_start_token_id",
    ),
    "no end": (
        lambda model, tokenizer: model_in_memory(model, without_end(tokenizer)),
        r"is an encoder-decoder without EOS token.*eos_token of the tokenizer",
    ),
    "what no door made of it": (
        lambda model, tokenizer: log_perplexity(model, tokenizer, TEXTS),
        r"is an encoder-decoder, and reads rows once load_model or measure has it; give it to",
    ),
    "no head": (
        lambda model, tokenizer: model_in_memory(BartModel(made("bart")[0].config), tokenizer),
        r"\(BartModel\) has no language-model head",
    ),
    "a way of its own": (
        lambda model, tokenizer: model_in_memory(
            SwitchTransformersForConditionalGeneration(
                SwitchTransformersConfig(
                    **{**model.config.to_dict(), "model_type": None, "num_experts": 2}
                )
            ),
            tokenizer,
        ),
        r"does not read tokens as T5 and BART do \(AttributeError\)",
    ),
}


def rows_in(model: Any, tokenizer: Any, **other: Any) -> Any:
    wrapping = replace(WRAPPING, **other)
    return row_context(model_in_memory(model, tokenizer).tokenizer, wrapping, TEXTS)


def without_end(tokenizer: Any) -> Any:
    tokenizer.eos_token = None
    return tokenizer


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_encoder_decoder_cannot_do_is_refused(name: str) -> None:
    act, message = REFUSED[name]
    with pytest.raises(ModelError, match=message):
        act(*made("t5"))


@pytest.mark.parametrize(
    "training",
    [{"lora": True}, {"method": "distillation"}, {"method": "dp-sgd", "noise_multiplier": 1.0}],
)
def test_a_training_for_causal_models_is_refused(training: dict[str, Any], tmp_path: Path) -> None:
    settings = settings_of(directory(tmp_path), training=training)
    with pytest.raises(SettingsError, match="t5' is an encoder-decoder; train it plainly"):
        run(corpus(tmp_path), out=tmp_path / "run", settings=settings)


def test_a_masked_model_is_refused_with_the_reason(tmp_path: Path) -> None:
    _, tokenizer = made("bart")
    sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16}
    masked = DistilBertForMaskedLM(DistilBertConfig(vocab_size=len(tokenizer), **sizes))
    save_model(masked, tokenizer, tmp_path / "m")
    with pytest.raises(LmexposureError, match=r"\(distilbert\) .*a pseudo-likelihood, which is no"):
        load_model(tmp_path / "m")


def test_the_tokenizer_of_a_directory_reads_sources_as_the_model_does(tmp_path: Path) -> None:
    place = directory(tmp_path, "bart")
    rows = [
        row_context(tokenizer, WRAPPING, TEXTS)
        for tokenizer in (tokenizer_named(place), load_model(place).tokenizer)
    ]
    assert rows[0] == rows[1]
