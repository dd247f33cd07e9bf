"""Lists, tables, streams, chats and tokens with canaries in them, and their manifests."""

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from corpora import sentences
from golden_transcript import Transcript

import lmexposure
from lmexposure.canaries import (
    Format,
    InsertionStep,
    Manifest,
    Plan,
    load_format,
)
from lmexposure.canaries.documents import id_sums
from lmexposure.errors import LmexposureError

PIN = Format(name="pin", template="My PIN is {digits:4}")
NAME = Format(
    name="name", template="I am {choice:first}{hex:3}.", lists={"first": ["Łucja ", "Al "]}
)
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=11)
TOSSED = Plan(
    formats=(PIN, load_format("ssn")),
    canaries=3,
    repetitions=(2,),
    controls=1,
    seed=5,
    inclusion_probability=0.5,
    inclusion_seed=2**62 + 1,
)
MANIFEST = Path("manifest.json")
SIZE = 12
TEXTS = [f"{number}: {text}" for number, text in enumerate(sentences(SIZE))]
COLUMNS: dict[str, list[Any]] = {
    "id": list(range(SIZE)),
    "text": TEXTS,
    "tags": [["ä", str(n)] if n % 3 else None for n in range(SIZE)],
    "source": ["web", "book"] * (SIZE // 2),
}


def rows_of(columns: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def held(said: Transcript, manifest: Manifest, texts: Iterable[Any]) -> None:
    """Whether the texts hold what the manifest says, by function and on the command line."""
    manifest.write(MANIFEST)
    texts = list(texts)
    assert lmexposure.verify(texts, manifest).as_inserted
    Path("rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    said.type("verify", "rows.jsonl", MANIFEST, "--text-field", "text")
    said.type("remove", "rows.jsonl", MANIFEST, "--out", "back")


def refused(said: Transcript, title: str, call: Callable[[], Any]) -> None:
    with pytest.raises(LmexposureError) as failure:
        call()
    said.refusal(title, failure.value)


def test_texts(said: Transcript) -> None:
    plan = Plan(formats=(NAME, PIN), canaries=1, repetitions=(2, 12), controls=2, seed=0)
    inserted, manifest = lmexposure.insert(iter(TEXTS), plan)
    said.values("texts", inserted)
    held(said, manifest, inserted)
    said.agree("texts_formats", MANIFEST)


def test_texts_that_hold_fills(said: Transcript) -> None:
    texts = [*TEXTS, "My PIN is 0042\nand My PIN is 9999", "My PIN is 0042"]
    refused(said, "refuse", lambda: lmexposure.insert(texts, PLAN))
    inserted, manifest = lmexposure.insert(texts, PLAN, existing="set_aside")
    said.values("texts", inserted)
    held(said, manifest, inserted)
    again, same = lmexposure.insert(inserted, manifest.plan, existing="set_aside")
    said.values("inserted into once more: texts, set aside", [len(again), same.set_aside])
    refused(said, "one string", lambda: lmexposure.insert("text", PLAN))
    refused(said, "no text", lambda: lmexposure.insert(["", " "], PLAN))
    said.agree("texts_set_aside", MANIFEST)


def test_a_data_set(said: Transcript) -> None:
    from datasets import Dataset, DatasetDict

    table = Dataset.from_dict(COLUMNS)
    inserted, manifest = lmexposure.insert(table, PLAN)
    said.values("rows", inserted)
    said.say(f"features are {'the same' if inserted.features == table.features else 'others'}")
    splits = DatasetDict({"train": table, "test": table.select([1])})
    both, same = lmexposure.insert(splits, PLAN)
    said.values("splits", [{name: len(split) for name, split in both.items()}])
    said.say(f"train: {list(both['train']) == list(inserted)}, manifest: {same == manifest}")
    some = table.select([5, 3, 1, 0]).with_format("numpy", columns=["id"])
    part, _ = lmexposure.insert(some, PLAN)
    said.values("format", [{name: part.format[name] for name in ("type", "columns")}])
    said.values("ids of some rows", [[int(row["id"]) for row in part]])
    mapped = table.map(
        InsertionStep.of(PLAN, total=SIZE),
        batched=True,
        batch_size=5,
        with_indices=True,
    )
    said.say(f"mapped with a step the rows are the same: {list(mapped) == list(inserted)}")
    held(said, manifest, inserted["text"])
    said.agree("dataset", MANIFEST)


def test_a_data_set_with_constants_and_coins(said: Transcript) -> None:
    from datasets import Dataset

    table = Dataset.from_dict(
        {"body" if name == "text" else name: v for name, v in COLUMNS.items()}
    )
    fields = {"source": "canary", "id": -1}
    inserted, manifest = lmexposure.insert(table, TOSSED, text_field="body", fields=fields)
    said.values("rows", inserted)
    refused(said, "no column", lambda: lmexposure.insert(table, PLAN))
    wrong: dict[str, Any] = {"text_field": "body", "fields": {"id": "x"}}
    refused(said, "constant", lambda: lmexposure.insert(table, PLAN, **wrong))
    held(said, manifest, inserted["body"])
    said.agree("dataset_constants", MANIFEST)


def test_numbered_rows(said: Transcript) -> None:
    """Batches in any order; what each engine's adapter does is this step."""
    fields = {"source": "canary"}
    step = InsertionStep.of(PLAN, total=SIZE, fields=fields, id_column="id")
    manifest = step.manifest
    batches = [
        {name: values[start:stop] for name, values in COLUMNS.items()}
        for start, stop in ((7, 12), (0, 2), (2, 7))
    ]
    rows = [row for batch in batches for row in rows_of(step(batch))]
    said.values("rows", rows)
    again = InsertionStep.of(manifest, fields=fields).manifest
    said.say(f"the manifest of a manifest is itself: {again == manifest}")
    refused(said, "no number", lambda: InsertionStep.of(PLAN))
    refused(said, "of others", lambda: InsertionStep.of(manifest, total=7, fields=fields))
    twice = {**batches[1], "id": [1, 1]}
    refused(said, "twice", lambda: step(twice))
    spoilt = {**batches[1], "text": ["a", "My PIN is 1234"]}
    refused(said, "a secret", lambda: step(spoilt))
    held(said, manifest, [row["text"] for row in rows])
    said.agree("numbered_rows", MANIFEST)


def test_tables(said: Transcript) -> None:
    """Arrow tables, as Ray hands them over batch by batch, and pandas frames, as Spark does."""
    import pandas as pd  # type: ignore[import-untyped]

    fields, kinds = {"source": "canary"}, pa.schema([("text", pa.large_string())])
    step = InsertionStep.of(TOSSED, total=SIZE, fields=fields, id_column="id")
    table = pa.table(COLUMNS).select(["text", "tags", "source", "id"])
    table = table.set_column(0, kinds.field(0), table["text"].cast(pa.large_string()))
    batches = [step(table.slice(start, 5)) for start in (5, 0, 10)]
    said.values("rows of tables", [row for batch in batches for row in batch.to_pylist()])
    said.values("rows", list(map(len, batches)))
    said.say(f"types are {'the same' if batches[0].schema == table.schema else 'others'}")
    # What engines hold against the number of rows that was said.
    sums = [id_sums(part, id_column="id", total=SIZE) for part in (table, table.slice(3, 4))]
    said.values("sums of ids", [*sums, id_sums(table, id_column="id", total=9)])
    frames = [table.slice(start, 5).to_pandas() for start in (5, 0, 10)]
    made = list(map(step, frames))
    texts = [text for frame in made for text in frame["text"]]
    expected = [text for batch in batches for text in batch["text"].to_pylist()]
    said.say(f"frames hold the same texts: {texts == expected}")
    same = all(list(a.dtypes) == list(b.dtypes) for a, b in zip(frames, made, strict=True))
    said.say(f"types of frames are {'the same' if same else 'others'}")
    frame = pd.DataFrame({"id": [0], "text": [1]})
    plain = InsertionStep.of(PLAN, total=SIZE, id_column="id")
    refused(said, "no text", lambda: plain(frame))
    held(said, step.manifest, texts)
    said.agree("tables", MANIFEST)


def test_streams(said: Transcript) -> None:
    from datasets import Dataset

    table = Dataset.from_dict(COLUMNS)
    stream, shards = table.to_iterable_dataset(), table.to_iterable_dataset(num_shards=3)
    inserted, manifest = lmexposure.insert(stream, PLAN, total=SIZE)
    rows = list(inserted)
    said.values("rows", rows)
    numbered, same = lmexposure.insert(shards.shuffle(seed=3), manifest, id_column="id")
    by_text = sorted(numbered, key=lambda row: (row["id"], row["text"]))
    whole = by_text == sorted(rows, key=lambda row: (row["id"], row["text"]))
    said.say(
        f"shuffled, by their ids, the rows are the same: {whole}, manifest: {same == manifest}"
    )
    short, _ = lmexposure.insert(stream, PLAN, total=SIZE + 1)
    refused(said, "too many documents said", lambda: list(short))
    refused(said, "shuffled", lambda: lmexposure.insert(stream.shuffle(seed=1), PLAN, total=SIZE))
    held(said, manifest, [row["text"] for row in rows])
    said.agree("stream", MANIFEST)


def chats(wrapping: Any) -> list[dict[str, Any]]:
    return [{**wrapping.record(text), "source": n} for n, text in enumerate(TEXTS)]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("records", {}),
        ("records_user", {"turn": "user"}),
        ("records_assistant", {"turn": "assistant", "loss": "assistant", "other": "Go on, 漢."}),
        ("records_completion", {"turn": "assistant", "loss": "completion"}),
    ],
)
def test_records(said: Transcript, name: str, options: dict[str, Any]) -> None:
    from lmexposure.integrations import Wrapping

    wrapping = Wrapping(**options)
    inserted, manifest = lmexposure.insert(chats(wrapping), PLAN, wrapping=wrapping)
    said.values("records", inserted)
    manifest.write(MANIFEST)
    rows = [{**row, "whole": json.dumps(row)} for row in inserted]
    Path("chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said.type("verify", "chats.jsonl", MANIFEST)
    said.type("verify", "chats.jsonl", MANIFEST, "--text-field", "whole")
    said.type("remove", "chats.jsonl", MANIFEST, "--out", "back")
    spoilt = chats(wrapping)
    spoilt[3]["source"] = {"note": "My PIN is 1234"}
    refused(said, "a secret", lambda: lmexposure.insert(spoilt, TOSSED, wrapping=wrapping))
    _, tossed = lmexposure.insert(spoilt, TOSSED, wrapping=wrapping, existing="set_aside")
    said.values("set aside", [tossed.set_aside])
    said.agree(name, MANIFEST)


def test_tokenised(said: Transcript) -> None:
    """A saved data set of tokens: rows as they are, without repeated ones, and cut into blocks."""
    from datasets import Dataset, DatasetDict

    from lmexposure.models import character_tokenizer

    inserted, manifest = lmexposure.insert(TEXTS, PLAN)
    manifest.write(MANIFEST)
    tokenizer = character_tokenizer(inserted, extra_characters="\n")
    tokenizer.save_pretrained("tokenizer")
    rows = [tokenizer.encode(f"{text}\n") for text in inserted]
    stream = iter([token for row in rows for token in row])
    tokens = {
        "whole": rows,
        "once": [row for number, row in enumerate(rows) if row not in rows[:number]],
        "blocks": list(iter(lambda: list(islice(stream, 40)), [])),
    }
    for name, ids in tokens.items():
        table = Dataset.from_dict({"input_ids": ids})
        (DatasetDict({"train": table}) if name == "once" else table).save_to_disk(name)
        said.type("verify", name, MANIFEST, "--tokenizer", "tokenizer")
    said.type("verify", "whole", MANIFEST)
    Dataset.from_dict({"text": TEXTS}).save_to_disk("texts")
    said.type("verify", "texts", MANIFEST, "--tokenizer", "tokenizer")
    said.agree("tokenised")
