"""Delivered canaries, counted in real batches, each loss provoked; found in any tokens."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chats import chat_tokenizer
from datasets import Dataset
from forks import together
from tiny import (
    byte_level_bpe,
    characters,
    gpt2_like_bpe,
    model_of,
    sentence_piece_bpe,
    unigram,
    word_piece,
)
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordLevel
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorWithFlattening,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.errors import InputError, ModelError, SettingsError
from lmexposure.integrations import DeliveredCounter, DeliveryReport, Wrapping, insert
from lmexposure.integrations.delivery_report import Hit, TokenSearch

PIN = Format(name="pin", template="My PIN is {digits:6}, keep it.")
# Of the Trainer.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
TEXTS = [f"Some text number {i}. " * (1 + i % 5) for i in range(30)]


@pytest.fixture(scope="module")
def corpus() -> tuple[list[str], Manifest]:
    plan = Plan(formats=(PIN,), canaries=3, repetitions=(1, 4), controls=2, seed=2)
    return insert(TEXTS, plan)


def encoded(tokenizer: Any, texts: list[str], **options: Any) -> Dataset:
    rows = tokenizer([text + tokenizer.eos_token for text in texts], **options)
    return Dataset.from_dict(dict(rows))


def collator(tokenizer: Any) -> Any:
    return DataCollatorForLanguageModeling(tokenizer, mlm=False)


def counted(manifest: Manifest, tokenizer: Any, rows: Any, collate: Any = None) -> DeliveryReport:
    """What the loader of a Trainer gives."""
    counter = DeliveredCounter(manifest, tokenizer)
    loader = DataLoader(rows, batch_size=4, collate_fn=collate or collator(tokenizer), shuffle=True)
    for _ in counter.watch(loader):
        pass
    return counter.report()


def test_packing_that_cuts_is_reported(tokenizer: Any, corpus: Any) -> None:
    texts, manifest = corpus
    stream = list(chain(*encoded(tokenizer, texts)["input_ids"]))
    width = 24
    rows = [stream[i : i + width] for i in range(0, len(stream), width)]
    report = counted(manifest, tokenizer, Dataset.from_dict({"input_ids": rows}))
    # The slow way: a canary is whole where its text stands in a row's text.
    read = [tokenizer.decode(row) for row in rows]
    for one, canary in zip(report.canaries, manifest.entries, strict=True):
        assert one.whole == sum(row.count(canary.text) for row in read)
        assert one.whole + one.cut + one.missing == canary.inserted
    assert sum(one.cut for one in report.canaries) > 0
    assert any("packing cuts canaries" in line for line in report.warnings)


def test_whole_texts_are_found_however_they_are_collated(tokenizer: Any, corpus: Any) -> None:
    """Padded on either side, or flattened; and what was never inserted, or is cut, is said."""
    texts, manifest = corpus
    flat, padded = DataCollatorWithFlattening(), {"padding": True, "padding_side": "left"}
    whole = encoded(tokenizer, texts)
    bare = whole.select_columns(["input_ids"])
    for rows, collate in ((whole, None), (encoded(tokenizer, texts, **padded), None), (bare, flat)):
        report = counted(manifest, tokenizer, rows, collate)
        assert report.complete
        assert [one.whole for one in report.canaries] == [1] * 3 + [4] * 3 + [0] * 2
    cut = encoded(tokenizer, texts, truncation=True, max_length=12).select_columns(["input_ids"])
    report = counted(manifest, tokenizer, cut, flat)
    assert [one.head for one in report.canaries[:6]] == [1] * 3 + [4] * 3
    assert report.warnings[0].startswith("15 copies are cut off at the end of a row")
    spoiled = encoded(tokenizer, [*texts, manifest.entries[-1].text])
    report = counted(manifest, tokenizer, spoiled)
    assert report.warnings[0].startswith("1 controls or held-out canaries are in the batches")


def trainer_of(
    tokenizer: Any, rows: Any, out: Path, *, saved: bool = False, size: int = 8, **options: Any
) -> Trainer:
    arguments = TrainingArguments(
        str(out),
        per_device_train_batch_size=size,
        report_to=[],
        use_cpu=True,
        save_strategy="epoch" if saved else "no",
        disable_tqdm=True,
        **options,
    )
    return Trainer(
        model_of("gpt2", len(tokenizer)),
        arguments,
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=collator(tokenizer),
    )


@pytest.fixture(scope="module")
def short(tokenizer: Any) -> tuple[Dataset, Manifest]:
    """A corpus that fits into the tiny model's window."""
    plan = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=3)
    texts, manifest = insert([f"Some text {i}." for i in range(12)], plan)
    return encoded(tokenizer, texts), manifest


def attached(trainer: Trainer, manifest: Manifest, tokenizer: Any) -> DeliveredCounter:
    counter = DeliveredCounter(manifest, tokenizer)
    counter.attach(trainer)
    return counter


@pytest.mark.parametrize(
    ("options", "epochs"),
    [
        ({"num_train_epochs": 2, "eval_strategy": "epoch"}, 2.0),
        (
            {"num_train_epochs": 2, "gradient_accumulation_steps": 2, "dataloader_num_workers": 2},
            2.0,
        ),
        ({"max_steps": 1}, 1 / 3),
    ],
)
def test_a_trainer_is_counted_while_it_trains(
    tokenizer: Any, short: Any, tmp_path: Path, options: dict[str, Any], epochs: float
) -> None:
    rows, manifest = short
    trainer = trainer_of(tokenizer, rows, tmp_path, **options)
    counter = attached(trainer, manifest, tokenizer)
    assert "no batch was seen" in counter.report().warnings[0]
    with pytest.raises(SettingsError, match=r"attached to this trainer already.*attach it once"):
        counter.attach(trainer)
    trainer.train()
    report = counter.report()
    assert report.epochs == pytest.approx(epochs)
    assert report.batches == round(3 * epochs)
    assert report.complete == (epochs == 2)
    if report.complete:
        assert [one.whole for one in report.canaries] == [2, 2, 6, 6, 0]
    else:
        assert "only 0.333 of an epoch is known to have been seen" in report.warnings[0]


def test_a_training_that_goes_on_counts_its_own_epochs(
    tokenizer: Any, short: Any, tmp_path: Path
) -> None:
    rows, manifest = short
    trainer = trainer_of(tokenizer, rows, tmp_path, num_train_epochs=2, saved=True)
    trainer.train()
    for checkpoint, epochs, fewest in (("checkpoint-3", 2.0, 2), ("checkpoint-6", 1.0, 1)):
        trainer = trainer_of(tokenizer, rows, tmp_path, num_train_epochs=3)
        counter = attached(trainer, manifest, tokenizer)
        trainer.train(resume_from_checkpoint=str(tmp_path / checkpoint))
        report = counter.report()
        assert report.epochs == epochs
        assert [one.whole for one in report.canaries] == [fewest * n for n in (1, 1, 3, 3, 0)]
        assert report.complete, report.warnings
    trainer.train()
    assert counter.report().epochs == 4.0
    assert counter.report().complete
    assert counter.report().batches == 3 * 4


@pytest.mark.parametrize(("steps", "finished"), [(2, 0), (3, 0), (7, 2)])
def test_of_a_stream_the_last_pass_may_be_a_part(
    tokenizer: Any, short: Any, tmp_path: Path, steps: int, finished: int
) -> None:
    rows, manifest = short
    trainer = trainer_of(tokenizer, rows.to_iterable_dataset(), tmp_path, max_steps=steps)
    counter = attached(trainer, manifest, tokenizer)
    trainer.train()
    report = counter.report()
    assert report.epochs == finished
    assert report.complete == bool(finished)
    if not finished:
        assert "say of a stream without a length how many there were" in report.warnings[0]
    if steps == 3:
        assert counter.report(epochs=1).complete


def test_each_pass_through_a_loader_is_an_epoch(tokenizer: Any, corpus: Any) -> None:
    """Half of the repetitions in each of two epochs must not pass for all of one."""
    texts, manifest = corpus
    canaries = [one.text for one in manifest.entries if one.role == "canary"]
    half = [text for text in texts if text not in canaries]
    half += [t for t, one in zip(canaries, manifest.entries, strict=False) for _ in range(2)][6:]
    counter = DeliveredCounter(manifest, tokenizer)
    rows = encoded(tokenizer, half)
    loader = counter.watch(DataLoader(rows, batch_size=4, collate_fn=collator(tokenizer)))
    assert (len(loader), loader.batch_size) == (-(-len(rows) // 4), 4)
    for _ in range(2):
        list(loader)
    next(iter(loader))
    report = counter.report()
    assert report.epochs == 2
    assert [one.whole for one in report.canaries] == [0, 0, 0, 4, 4, 4, 0, 0]
    assert [one.missing for one in report.canaries] == [2, 2, 2, 4, 4, 4, 0, 0]


@pytest.mark.slow
def test_counts_of_several_processes_are_added_up(tmp_path: Path) -> None:
    from integrations import train_in_processes  # which takes parts of this module

    together(2, train_in_processes.count, tmp_path, said=tmp_path / "said.txt")
    for process in range(2):
        said = json.loads((tmp_path / f"{process}.json").read_text())
        assert said["processes"] == 2
        assert said["complete"], said["warnings"]
        assert (said["epochs"], said["batches"]) == (2.0, 2 * 2 * 3)
        assert [one["whole"] for one in said["canaries"]] == [2, 2, 6, 6, 0]


def test_a_collator_counts(tokenizer: Any, short: Any) -> None:
    rows, manifest = short
    counter = DeliveredCounter(manifest, tokenizer)
    collate = counter.collator(collator(tokenizer))
    for _ in range(2):
        for _ in DataLoader(rows, batch_size=3, collate_fn=collate):
            pass
    assert counter.report(epochs=2).complete
    assert "copies too many" in counter.report(epochs=1).warnings[0]
    assert "copies never came" in counter.report(epochs=3).warnings[0]


def test_a_collator_in_a_worker_process_is_refused(tokenizer: Any, short: Any) -> None:
    rows, manifest = short
    collate = DeliveredCounter(manifest, tokenizer).collator(collator(tokenizer))
    loader = DataLoader(
        rows, batch_size=3, collate_fn=collate, num_workers=1, multiprocessing_context="fork"
    )
    batches: Any = iter(loader)
    with pytest.raises(SettingsError, match="runs in a worker process of the loader, where its"):
        next(batches)
    batches._shutdown_workers()  # else it lives on, and holds what other tests have open


def test_labels_tell_where_loss_is(tokenizer: Any, short: Any) -> None:
    manifest = short[1]
    canary = manifest.entries[0]
    ids = tokenizer(canary.text)["input_ids"]
    secret = tokenizer.decode(ids).index(canary.text[10])
    for masked, kind in ((len(ids), "without_loss"), (secret + 2, "partly_without_loss")):
        counter = DeliveredCounter(manifest, tokenizer)
        labels = [-100] * masked + ids[masked:]
        counter.observe([ids], labels=[labels], attention_mask=[[1] * len(ids)])
        found = counter.report(epochs=1).canaries[0]
        assert (found.whole, getattr(found, kind), found.learnable) == (1, 1, 0)


@pytest.mark.slow
def test_rows_are_held_against_what_is_scored(tokenizer: Any, short: Any) -> None:
    manifest = short[1]
    own = tokenizer(manifest.entries[0].text)["input_ids"]
    end, some = tokenizer.eos_token_id, tokenizer("Some text.")["input_ids"]
    alone, behind = Wrapping(), Wrapping(context=None)
    for row, wrapping, otherwise in (
        ([*own, end], alone, 0),
        ([end, *own, end], alone, 1),
        ([*some, *own], alone, 1),
        ([end, *own], behind, 0),
        ([*some, end, *own], behind, 0),  # documents packed into one row
        ([*some, *own], behind, 1),
        ([*own, end], behind, 1),
    ):
        counter = DeliveredCounter(manifest, tokenizer, wrapping=wrapping)
        counter.observe([row], attention_mask=[[1] * len(row)])
        found = counter.report(epochs=1).canaries[0]
        assert (found.whole, found.otherwise) == (1, otherwise)
    counter = DeliveredCounter(manifest, tokenizer, wrapping=Wrapping(turn="assistant"))
    chat = Wrapping(turn="assistant").messages(manifest.entries[0].text)
    ids = tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True)["input_ids"]
    fewer = [-100] * 6 + ids[6:]  # loss on what stands before does not matter
    counter.observe([ids, ids], labels=[ids, fewer], attention_mask=[[1] * len(ids)] * 2)
    assert counter.report(epochs=1).canaries[0].otherwise == 0


def test_tensors_and_shared_positions_are_read(tokenizer: Any, short: Any) -> None:
    manifest = short[1]
    ids = torch.tensor([tokenizer(manifest.entries[0].text)["input_ids"]] * 2)
    counter = DeliveredCounter(manifest, tokenizer)
    wide = torch.ones(2, 1, ids.shape[1], ids.shape[1])
    counter.observe(ids, ids, wide, torch.arange(ids.shape[1])[None])
    # Positions in images and frames say nothing of documents.
    counter.observe(ids, ids, None, torch.zeros(3, 2, ids.shape[1]))
    assert [one.whole for one in counter.report(epochs=1).canaries] == [4, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda c: c.observe([]), InputError, r"must hold rows of tokens, shape \(B, T\)"),
        (lambda c: c.observe(np.zeros(4)), InputError, r"hold rows of tokens, shape \(B, T\)"),
        (
            lambda c: c.observe([[1, 2, 3]], labels=[[1, 2]]),
            InputError,
            "labels and input_ids have different shapes.*rows of an encoder-decoder have none",
        ),
        (
            lambda c: list(c.watch([{"inputs_embeds": 1}])),
            InputError,
            "a batch has no input_ids; it has inputs_embeds: call",
        ),
        (lambda c: c.report(-1.0), SettingsError, "epochs=.* must be a number of at least 0"),
        (lambda c: c.report(np.nan), SettingsError, "epochs=.* must be a number of at least 0"),
        (
            lambda c: (c.observe([[1, 2, 3]]), c.report()),
            SettingsError,
            r"1 batches were observed, and of how many epochs is not known.*epochs=\.\.\.",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused(
    tokenizer: Any, short: Any, call: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(DeliveredCounter(short[1], tokenizer))


def test_counts_of_a_process_group_are_added_up(tokenizer: Any, short: Any, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        report = counted(short[1], tokenizer, short[0])
    finally:
        torch.distributed.destroy_process_group()
    assert (report.complete, report.batches) == (True, 5)


KINDS = [byte_level_bpe, characters, gpt2_like_bpe, sentence_piece_bpe, unigram, word_piece]
CANARIES = {"a": "My PIN is 0042.", "b": "My PIN is 2817.", "c": "My PIN is 2801."}
OTHERS = [f"My PIN is {i:04d}." for i in (1234, 5678, 9012, 3456)]


def search_of(tokenizer: Any, canaries: dict[str, str] = CANARIES) -> TokenSearch:
    return TokenSearch(tokenizer, {"pin": canaries}, {"pin": OTHERS})


def tokens(tokenizer: Any, text: str) -> Any:
    return np.array(tokenizer(text, add_special_tokens=False)["input_ids"], dtype=np.int64)


def kinds(hits: list[Hit]) -> list[tuple[str, str]]:
    return [(hit.id, hit.kind) for hit in hits]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    "row", ["{}", "{} ", " {}", "is 28 {} 0042.", "My {} My PIN", "number 2817 PIN {}", "{}{}"]
)
def test_whole_canaries_are_found_in_any_context(make: Any, row: str) -> None:
    tokenizer = make()
    search = search_of(tokenizer)
    for name, text in CANARIES.items():
        ids = tokens(tokenizer, row.replace("{}", text))
        whole = [hit for hit in search.hits(ids) if hit.kind == "whole"]
        assert [hit.id for hit in whole] == [name] * row.count("{}")
        for hit in whole:
            secret = tokenizer.decode(ids[hit.secret : hit.end]).replace(" ", "")
            assert text[-5:-1] in secret
            assert "PIN" not in secret


@pytest.mark.parametrize("make", KINDS)
def test_other_fills_and_other_text_are_not_canaries(make: Any) -> None:
    tokenizer = make()
    search = search_of(tokenizer)
    for text in [*OTHERS, "My PIN is", "random number is 0042.", "My PIN is 0043. ok"]:
        whole = [hit for hit in search.hits(tokens(tokenizer, text)) if hit.id != "pin"]
        assert whole == []


def test_every_cut_of_a_row_is_told_apart() -> None:
    tokenizer = characters()
    search = search_of(tokenizer)
    row = f"number is {CANARIES['b']}"
    start = row.index("My")
    for end in range(start + 1, len(row)):
        seen = row[start:end]
        found = kinds(search.hits(tokens(tokenizer, row[:end])))
        if len(seen) < len("My PIN is "):
            assert found == []  # anything may begin like that
        elif len(seen) <= len("My PIN is 28"):
            assert found == [("pin", "head")]  # b or c
        else:
            assert found == [("b", "head")]


def test_a_row_that_begins_within_a_canary() -> None:
    tokenizer = characters()
    search = search_of(tokenizer)
    row = f"{CANARIES['b']} number is"
    for begin in range(1, len(CANARIES["b"])):
        left = len(CANARIES["b"]) - begin
        found = kinds(search.hits(tokens(tokenizer, row[begin:])))
        assert found == ([("b", "tail")] if left >= 4 else [])


def test_a_format_without_a_beginning_is_found_as_well() -> None:
    tokenizer = characters()
    canaries = {"a": "281265", "b": "004217"}
    search = TokenSearch(tokenizer, {"pin": canaries}, {"pin": ["571826", "960714"]})
    assert kinds(search.hits(tokens(tokenizer, "is 281265 is"))) == [("a", "whole")]
    assert kinds(search.hits(tokens(tokenizer, "is 00421"))) == [("b", "head")]
    assert kinds(search.hits(tokens(tokenizer, "81265 is"))) == [("a", "tail")]
    assert kinds(search.hits(tokens(tokenizer, "is 0042"))) == [("b", "head")]
    assert kinds(search.hits(tokens(tokenizer, "is 004"))) == []


def test_the_longer_of_two_canaries_counts() -> None:
    tokenizer = characters()
    search = TokenSearch(tokenizer, {"n": {"a": "PIN 28", "b": "PIN 2812"}}, {"n": ["PIN 5"]})
    assert kinds(search.hits(tokens(tokenizer, "is PIN 2812 is"))) == [("b", "whole")]
    assert kinds(search.hits(tokens(tokenizer, "is PIN 28 is"))) == [("a", "whole")]


def test_special_tokens_at_the_ends_are_no_part_of_the_row() -> None:
    tokenizer = chat_tokenizer()
    search = search_of(tokenizer)
    end = [tokenizer.eos_token_id] * 3
    cut = tokens(tokenizer, CANARIES["a"])[:-2]
    (hit,) = search.hits(np.array([*end, *cut, *end]))
    assert (hit.id, hit.kind, hit.end) == ("a", "head", 3 + len(cut))
    assert search.hits(np.array(end)) == []


def test_numbers_without_a_token_break_a_canary() -> None:
    tokenizer = chat_tokenizer()
    search = search_of(tokenizer)
    ids = tokens(tokenizer, CANARIES["a"]).tolist()
    assert kinds(search.hits(np.array([10**6, -1, *ids, 10**6]))) == [("a", "whole")]


def test_an_unknown_character_is_refused() -> None:
    with pytest.raises(ModelError, match="the tokenizer has no token for character 3"):
        search_of(word_piece(), {"a": "My ж."})


def test_a_tokenizer_that_writes_texts_otherwise_elsewhere_is_refused() -> None:
    tokenizer = byte_level_bpe()
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace(Regex("^My"), "Your")
    with pytest.raises(ModelError, match="writes a canary of format 'pin' otherwise in another"):
        search_of(tokenizer)


def test_no_tokenizer_is_refused() -> None:
    with pytest.raises(ModelError, match="NoneType is no tokenizer of transformers; give that of"):
        TokenSearch(None, {"pin": {"a": "My PIN is 4711."}}, {"pin": []})


def test_canaries_that_are_written_alike_are_refused() -> None:
    """The one would be counted for the other."""
    tokenizer = chat_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    with pytest.raises(ModelError, match="two canaries of format 'pin' alike, so that they cannot"):
        TokenSearch(tokenizer, {"pin": {"a": "My PIN is A.", "b": "My PIN is a."}}, {"pin": []})


def test_a_vocabulary_with_gaps_is_read_to_its_end() -> None:
    letters = ["[UNK]", *sorted(set("".join([*CANARIES.values(), *OTHERS])))]
    numbers = {letter: 3 * number for number, letter in enumerate(letters)}
    inner = Tokenizer(WordLevel(numbers, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]")
    assert max(tokenizer.get_vocab().values()) > len(tokenizer)
    (hit,) = search_of(tokenizer).hits(tokens(tokenizer, CANARIES["b"]))
    assert (hit.id, hit.kind) == ("b", "whole")
