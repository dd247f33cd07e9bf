"""What other trainers prepared, by their own code: counts, causes and rows, by a naive reader too.

`tests/prepared/README.md` says how the directories were made.
"""

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict, load_from_disk
from tiny import byte_level_bpe
from trl import pack_dataset

from lmexposure.canaries import Format, Manifest, Plan, insert_files
from lmexposure.errors import CorpusError
from lmexposure.integrations import (
    Wrapping,
    delivered_rows,
    insert,
    load_tokenizer,
    prepared_directory,
    verify,
)
from lmexposure.integrations.tokenised import count_tokenised, saved_tokens
from lmexposure.models import Context, encode_rows
from lmexposure.studies import RowsRecord

DATA = Path(__file__).parents[1] / "prepared"
MANIFEST = Manifest.read(DATA / "canaried" / "manifest.json")
CLASSES = (("pin", 1), ("pin", 4), ("witness", 5))
RAISE = "raise max_length (TRL), cutoff_len (LLaMA-Factory) or sequence_len (Axolotl)"
NEVER = (
    "copies never came: their rows were dropped, as too long or by a filter, cut in front of the "
    f"canary, held out, sampled or sharded; read the trainer's log, or {RAISE}"
)
# directory -> (whole, cut, missing) of each class, and what is said.
KNOWN: dict[str, tuple[tuple[tuple[int, int, int], ...], tuple[str, ...]]] = {
    "llamafactory/plain": (((3, 0, 0), (12, 0, 0), (5, 0, 0)), ()),
    "llamafactory/packed": (((3, 0, 0), (12, 0, 0), (5, 0, 0)), ()),
    "llamafactory/neat": (((3, 0, 0), (12, 0, 0), (5, 0, 0)), ()),
    "llamafactory/cut": (
        ((2, 1, 0), (8, 4, 0), (0, 5, 0)),
        (f"pin 1× and 4×, witness 5×: 10 copies are cut: their rows end at 28 tokens; {RAISE}",),
    ),
    "llamafactory/validation": (
        ((3, 0, 0), (10, 0, 2), (4, 0, 1)),
        (f"pin 4×, witness 5×: 3 {NEVER}",),
    ),
    "axolotl/plain": (((3, 0, 0), (12, 0, 0), (5, 0, 0)), ()),
    "axolotl/packed": (((3, 0, 0), (12, 0, 0), (5, 0, 0)), ()),
    "axolotl/cut": (
        ((0, 3, 0), (0, 12, 0), (0, 0, 5)),
        (
            f"pin 1× and 4×: 15 copies are cut: their rows end at 28 tokens; {RAISE}",
            f"witness 5×: 5 {NEVER}",
        ),
    ),
    "axolotl/deduplicated": (
        ((3, 0, 0), (3, 0, 9), (1, 0, 4)),
        (
            "pin 4×, witness 5×: of each canary one copy is left, 13 are lost: the data were "
            "deduplicated; switch that off (Axolotl: dataset_exact_deduplication), or insert each "
            "once",
        ),
    ),
    "axolotl/dropped": (
        ((0, 0, 3), (0, 0, 12), (0, 0, 5)),
        (f"pin 1× and 4×, witness 5×: 20 {NEVER}",),
    ),
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(DATA / "tokenizer")


def looked_at(name: str, tokenizer: Any) -> RowsRecord:
    return verify([DATA / name], MANIFEST, tokenizer=tokenizer, rows=True)


def documents(name: str) -> list[tuple[list[int], list[int]]]:
    """(tokens, labels) of each document, cut out of its row where its positions begin again."""
    saved: Any = load_from_disk(str(prepared_directory(DATA / name)))
    found = []
    for row in saved if isinstance(saved, Dataset) else saved["train"]:
        ids, positions = row["input_ids"], row.get("position_ids") or range(len(row["input_ids"]))
        begins = [i for i, position in enumerate(positions) if position == 0] + [len(ids)]
        for begin, end in pairwise(begins):
            found.append((ids[begin:end], row["labels"][begin:end]))
    return found


@pytest.mark.parametrize("name", KNOWN)
def test_what_others_prepared(tokenizer: Any, name: str) -> None:
    record = looked_at(name, tokenizer)
    counts, said = KNOWN[name]
    by_class = {(each.format, each.repetitions): each for each in record.classes}
    some = [by_class[key] for key in CLASSES]
    assert tuple((each.whole, each.cut, each.missing) for each in some) == counts
    assert record.warnings == said
    assert record.as_planned == (not said)
    assert record.packed == (name in ("llamafactory/packed", "llamafactory/neat"))
    read = [tokenizer.decode(ids) for ids, _ in documents(name)]
    for (form, repetitions), each in zip(CLASSES, some, strict=True):
        texts = [c.text for c in MANIFEST.entries if (c.format, c.inserted) == (form, repetitions)]
        assert each.whole == sum(row.count(text) for row in read for text in texts)


@pytest.mark.parametrize("name", [name for name in KNOWN if "dropped" not in name])
def test_the_row_is_the_one_that_a_naive_reader_sees(tokenizer: Any, name: str) -> None:
    record = looked_at(name, tokenizer)
    if name == "axolotl/cut":
        assert record.start is None
        return
    assert record.start is not None
    context = Context(
        start=record.start, before=record.before, behind=record.behind, unscored=record.unscored
    )
    seen = 0
    for ids, labels in documents(name):
        text = tokenizer.decode(ids)
        for canary in MANIFEST.canaries:
            if canary.text in text:
                front, _, rest = text.partition(canary.text)
                assert tokenizer.decode(list(record.start)) + record.before == front
                assert rest.startswith(record.behind)
                assert record.behind == "<|im_end|>"
                (row,) = encode_rows(tokenizer, [canary.text], context)
                assert ids[: row.stop] == row.ids[: row.stop]
                own = labels[len(tokenizer(front)["input_ids"]) : row.stop]
                assert record.unscored == sum(label == -100 for label in own)
                assert (labels[0], record.loss) == (-100, "assistant")
                seen += 1
    assert (record.agreeing, record.found) == (seen, seen)


@pytest.mark.parametrize(
    ("strategy", "length", "said"),
    [
        ("bfd", 128, ""),
        ("bfd_split", 28, "copies are cut, by truncation, or by packing that cuts documents"),
    ],
)
def test_packing_of_trl(tokenizer: Any, strategy: str, length: int, said: str) -> None:
    plain: Any = load_from_disk(str(DATA / "llamafactory/plain"))
    rows = pack_dataset(plain["train"].select_columns(["input_ids", "labels"]), length, strategy)
    record = delivered_rows(rows, MANIFEST, tokenizer)
    assert record.packed or length == 28
    assert record.as_planned == (not said)
    assert any(said in line for line in record.warnings) or not said
    for each in record.classes:
        assert each.whole + each.cut + each.missing == each.planned


def test_numbers_in_the_attention_mask_are_borders_too(tokenizer: Any) -> None:
    saved: Any = load_from_disk(str(DATA / "llamafactory/neat"))
    rows = saved["train"].remove_columns(["position_ids", "packing_params"])
    found, wanted = (
        delivered_rows(some, MANIFEST, tokenizer) for some in (rows, {"train": saved["train"]})
    )
    assert found == wanted


def test_prompts_that_are_cut_before_the_answer(tokenizer: Any) -> None:
    """LLaMA-Factory cuts prompt and answer each at its end, so that a cut may be amid a row."""
    form = Format(name="pin", template="My PIN is {digits:4}.")
    plan = Plan(formats=(form,), canaries=3, repetitions=(1, 4), controls=2, seed=2)
    wrapping = Wrapping(turn="user")
    records, manifest = insert(
        [wrapping.record(f"Text {i}.") for i in range(9)], plan, wrapping=wrapping
    )
    rows = []
    for record in records:
        user, answer = (message["content"] for message in record["messages"])
        prompt = tokenizer(f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n")
        source, target = prompt["input_ids"], tokenizer(f"{answer}<|im_end|>\n")["input_ids"]
        source = source[: 24 - len(target)]
        rows.append({"input_ids": source + target, "labels": [-100] * len(source) + target})
    found = delivered_rows(rows, manifest, tokenizer)
    counts = [(each.whole, each.cut, each.missing) for each in found.classes if each.repetitions]
    assert counts[:2] == [(0, 3, 0), (0, 12, 0)]
    assert any("15 copies are cut: their rows end at 24" in line for line in found.warnings)


def test_rows_without_labels_are_said_where_the_insertion_knew_of_some(tokenizer: Any) -> None:
    plain: Any = load_from_disk(str(prepared_directory(DATA / "axolotl/plain")))
    found = delivered_rows(plain.remove_columns("labels"), MANIFEST, tokenizer)
    assert found.loss == "all"
    assert any("the rows have no labels, so that loss is taken to be" in w for w in found.warnings)


def test_rows_of_another_tokenizer_are_refused(tokenizer: Any) -> None:
    with pytest.raises(CorpusError, match="they were made with another tokenizer; give that one"):
        looked_at("axolotl/plain", byte_level_bpe())
    beyond = [{"input_ids": [len(tokenizer), 5, 6]}]
    with pytest.raises(CorpusError, match="encoding the text of 1 of the first 1 again gives"):
        delivered_rows(beyond, MANIFEST, tokenizer)
    dropped = looked_at("axolotl/dropped", tokenizer)
    assert dropped.found == 0


def test_several_prepared_data_sets_are_named(tmp_path: Path) -> None:
    for name in ("axolotl/plain", "axolotl/cut"):
        shutil.copytree(DATA / name, tmp_path, dirs_exist_ok=True)
    with pytest.raises(
        CorpusError, match=r"holds 2 prepared data sets, the newest first: .*; give"
    ):
        prepared_directory(tmp_path)


PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4)


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[Path, Manifest]:
    source, out = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_bytes(b"".join(b"line %d\n" % n for n in range(30)))
    manifest = insert_files(source, tmp_path / "out", PLAN)
    return (tmp_path / "out" / "corpus" / "a.txt").rename(out), manifest


def letters(ids: object) -> str:
    return "".join(map(chr, ids))  # type: ignore[call-overload]


def test_tokens(corpus: tuple[Path, Manifest], tmp_path: Path) -> None:
    path, manifest = corpus
    ids = [ord(character) for character in path.read_text()]
    one = count_tokenised([ids], manifest, decode=letters)
    assert one.as_inserted
    pieces = [ids[start : start + 50] for start in range(0, len(ids), 50)]
    Dataset.from_dict({"input_ids": pieces}).save_to_disk(tmp_path / "d")
    counted = count_tokenised(saved_tokens(tmp_path / "d"), manifest, decode=letters)
    found = sum(c.found for c in counted.classes)
    assert (found + sum(counted.cut.values()), bool(counted.cut)) == (9, True)
    assert not counted.as_inserted


@pytest.mark.parametrize(
    ("save", "message"),
    [
        (lambda path: None, "cannot read the data set"),
        (lambda path: Dataset.from_dict({"text": ["a"]}).save_to_disk(path), "no column 'input_i"),
        (
            lambda path: DatasetDict(test=Dataset.from_dict({"text": ["a"]})).save_to_disk(path),
            "no 'train' split; .* has test",
        ),
        (
            lambda path: Dataset.from_dict({"input_ids": ["ab"]}).save_to_disk(path),
            "column 'input_ids' of .* is of type string, and tokens are lists of whole numbers",
        ),
        (
            lambda path: Dataset.from_dict({"input_ids": [[[1]]]}).save_to_disk(path),
            "is of type list<.*and tokens are lists of whole numbers; tokenise it first",
        ),
        (
            lambda path: Dataset.from_dict({"input_ids": []}).save_to_disk(path),
            "cannot read the data set .*; give a directory of save_to_disk with rows",
        ),
    ],
)
def test_data_sets_without_tokens(
    tmp_path: Path, save: Callable[[Path], object], message: str
) -> None:
    save(tmp_path / "d")
    with pytest.raises(CorpusError, match=message):
        saved_tokens(tmp_path / "d")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            None,
            "row 2 holds no list of tokens, and a row is a list of numbers from 0; leave it out",
        ),
        ([7, -1], "row 2 holds the token -1, and a row is a list of numbers from 0"),
    ],
)
def test_rows_without_tokens(corpus: tuple[Path, Manifest], row: object, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        count_tokenised([[77], row], corpus[1], decode=letters)  # type: ignore[list-item]
