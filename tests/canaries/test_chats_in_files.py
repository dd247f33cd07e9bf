"""Canaries in chats that are in files: every form and layout, there and back, and bad records."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from canaries.test_recognition import DOLLY, GSM8K, HH, SQUAD, ULTRA
from datasets import Dataset

from lmexposure import Wrapping, insert, remove, verify
from lmexposure.canaries import (
    Format,
    Manifest,
    Plan,
    Reading,
    insert_files,
    insert_through,
    preview_insertion,
    read_records,
    wrapping_among,
)
from lmexposure.errors import CorpusError, ResultError

PIN = Format(name="pin", template="My PIN is {digits:6}.")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=4)
WRAPPINGS = {
    "messages": Wrapping(turn="assistant", loss="assistant", system="Be kind."),
    "asked": Wrapping(turn="user", other="Yes."),
    "conversations": Wrapping(turn="assistant", form="conversations", loss="assistant"),
    "strings": Wrapping(
        turn="assistant", form="prompt_completion", strings=True, loss="completion"
    ),
    "lists": Wrapping(turn="assistant", form="prompt_completion", loss="completion", system="S"),
    "instruction": Wrapping(turn="assistant", form="instruction", loss="completion"),
    "preference": Wrapping(turn="assistant", form="preference", loss="completion"),
    "pairs": Wrapping(turn="user", form="preference", strings=True),
    "named": Wrapping(
        turn="assistant",
        prompt_field="the question",
        completion_field="answer[0].text",
        strings=True,
        loss="completion",
    ),
    "implicit": Wrapping(turn="assistant", form="implicit_preference", system="S"),
    "hh": Wrapping(
        turn="assistant",
        form="implicit_preference",
        strings=True,
        other="\n\nHuman: Go on.\n\nAssistant: ",
    ),
    "prompts": Wrapping(turn="user", form="prompt_only"),
    "parts": Wrapping(turn="assistant", loss="assistant", system="Be kind.", parts=True),
}
ANSWER = WRAPPINGS["messages"]


def records(wrapping: Wrapping, n: int = 12) -> list[dict[str, Any]]:
    return [{"id": i, **wrapping.record(f"text {i}"), "source": "web"} for i in range(n)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """As the suffix says; lines unlike those that insertion would write."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=5)
    elif path.suffix == ".arrow":
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
    else:
        lines = "\r\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\r\n"
        path.write_bytes(lines.encode())
    return path


@pytest.mark.parametrize("name", WRAPPINGS)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "arrow"])
def test_there_and_back(tmp_path: Path, name: str, suffix: str) -> None:
    wrapping = WRAPPINGS[name]
    rows = records(wrapping)
    source, out = write(tmp_path / f"a.{suffix}", rows), tmp_path / "out"
    manifest = insert_files(source, out, PLAN, wrapping=wrapping, fields={"source": "own"})
    assert manifest.wrapping == wrapping
    assert manifest.corpus.text_field == wrapping.place
    assert manifest.corpus.wrapping == wrapping
    copy = out / "corpus" / source.name
    found = list(read_records(copy))
    assert [row for row in found if row["source"] == "web"] == rows
    inserted = [row for row in found if row["source"] == "own"]
    own = [{**wrapping.record(c.text), "source": "own"} for c in manifest.entries if c.inserted]
    for made in own:
        same = [row for row in inserted if {**row, "id": 0} == {"id": 0, **made}]
        assert len(same) in (1, 3)
    assert len(inserted) == 8
    again = insert_files(source, out, PLAN, wrapping=wrapping, fields={"source": "own"})
    assert again == manifest == Manifest.read(out / "manifest.json")
    assert verify(copy, manifest).as_inserted
    assert verify(found, manifest).as_inserted
    removal = remove(copy, manifest, tmp_path / source.name.replace("a.", "back."))
    assert removal.checked
    if suffix == "jsonl":
        assert removal.files[0].read_bytes() == source.read_bytes()
    assert list(read_records(removal.files[0])) == rows


def test_a_wrapping_is_previewed_and_another_one_refused(tmp_path: Path) -> None:
    source, out = write(tmp_path / "a.jsonl", records(ANSWER)), tmp_path / "out"
    layout = Reading(wrapping=ANSWER).layout_of([source])
    would = preview_insertion([source], PLAN, layout=layout)
    insert_files(source, out, PLAN, wrapping=ANSWER)
    assert would.bytes_added == (out / "corpus" / "a.jsonl").stat().st_size - source.stat().st_size
    known = replace(ANSWER, template_sha256="ab" * 32, special_tokens=("<s>",))
    for other in (replace(ANSWER, other="Go on."), known):
        with pytest.raises(ResultError, match="holds a manifest of another wrapping; choose anoth"):
            insert_files(source, out, PLAN, wrapping=other)
    described = insert_files(source, tmp_path / "two", PLAN, wrapping=known)
    assert described.corpus.wrapping == known
    assert described.wrapping == ANSWER


def test_records_are_counted_after_whatever_was_done_to_them(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", records(ANSWER))
    manifest = insert_files(source, tmp_path / "out", PLAN, wrapping=ANSWER)
    found = list(read_records(tmp_path / "out" / "corpus" / "a.jsonl"))
    kept = [row for row in found if row["id"] % 2] + [{"messages": None}, {"other": "x"}]
    write(tmp_path / "b.jsonl", kept)
    lost = verify(tmp_path / "b.jsonl", manifest)
    assert not lost.as_inserted
    assert 0 < sum(row.found for row in lost.classes) < 8
    texts = [{"text": "\n".join(turn["content"] for turn in row["messages"])} for row in found]
    rendered = write(tmp_path / "c.jsonl", texts)
    assert verify(rendered, manifest).as_inserted
    assert verify(rendered, manifest, text_field="text").as_inserted
    (tmp_path / "d.txt").write_text("\n".join(row["text"] for row in texts))
    assert verify(tmp_path / "d.txt", manifest).as_inserted


def test_a_stream_of_chats(tmp_path: Path) -> None:
    content = write(tmp_path / "a.jsonl", records(ANSWER)).read_bytes()
    for number, total in enumerate((None, 12)):
        target, out = io.BytesIO(), tmp_path / f"out{number}"
        reading = Reading(layout="jsonl", wrapping=ANSWER, total=total)
        manifest = insert_through(io.BytesIO(content), target, out, lambda _: PLAN, reading)
        assert manifest.wrapping == ANSWER
        assert verify(io.BytesIO(target.getvalue()), manifest).as_inserted
        remove(io.BytesIO(target.getvalue()), manifest, tmp_path / f"back{number}")
        assert (tmp_path / f"back{number}").read_bytes() == content


def test_fills_are_found_in_all_strings(tmp_path: Path) -> None:
    rows = records(ANSWER)
    rows[4]["source"] = "My PIN is 004711."
    for name in ("a.jsonl", "a.parquet"):
        source = write(tmp_path / name, rows)
        with pytest.raises(
            CorpusError, match=r"already holds secrets of this format: pin 1 times \((line|row) 5\)"
        ):
            insert_files(source, tmp_path / "out", PLAN, wrapping=ANSWER)
    aside = insert_files(
        source,
        tmp_path / "out",
        PLAN,
        wrapping=ANSWER,
        existing="set_aside",
        fields={"source": "x"},
    )
    assert aside.set_aside == {"pin": (4711,)}
    spoilt = Wrapping(turn="assistant", other="Was it: My PIN is 004711.?")
    with pytest.raises(CorpusError, match="other turns or constants of the canaries' records hold"):
        insert_files(source, tmp_path / "two", PLAN, wrapping=spoilt)


def test_an_instruction_without_input_has_none_in_canaries(tmp_path: Path) -> None:
    wrapping = WRAPPINGS["instruction"]
    rows = [{"instruction": f"do {n}", "output": f"done {n}"} for n in range(12)]
    for name in ("a.jsonl", "a.parquet"):
        insert_files(write(tmp_path / name, rows), tmp_path / name[2:], PLAN, wrapping=wrapping)
        found = read_records(tmp_path / name[2:] / "corpus" / name)
        assert all(set(row) == {"instruction", "output"} for row in found)


USER = {"role": "user", "content": "q"}
TOLD = {"role": "assistant", "content": "a"}


PUBLISHED: Mapping[str, tuple[dict[str, Any], dict[str, str]]] = {
    "Dolly": (DOLLY, {"prompt_field": "instruction", "completion_field": "response"}),
    "SQuAD": (SQUAD, {"prompt_field": "context", "completion_field": "question"}),
    "GSM8K": (GSM8K, {"prompt_field": "question", "completion_field": "answer"}),
    "HH-RLHF": (HH, {}),
    "UltraFeedback": (ULTRA, {}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_rows_as_published_data_sets_have_them(tmp_path: Path, name: str) -> None:
    row, said = PUBLISHED[name]
    rows = [{**row, "number": n} for n in range(12)]
    wrapping = wrapping_among(rows, **said)
    assert wrapping is not None
    data, manifest = insert(Dataset.from_list(rows), PLAN, wrapping=wrapping)
    wanted = list(data)
    assert verify(data, manifest).as_inserted
    assert list(remove(data, manifest)) == rows
    source = write(tmp_path / "a.parquet", rows)
    made = insert_files(source, tmp_path / "out", PLAN, wrapping=wrapping)
    assert list(read_records(tmp_path / "out" / "corpus" / source.name)) == wanted
    assert made.entries == manifest.entries


def test_a_prompt_beside_whole_chats_is_that_of_the_canary(tmp_path: Path) -> None:
    """As UltraFeedback has it; trainers read the chats, and drop it."""
    wrapping = WRAPPINGS["implicit"]
    rows = [{"prompt": f"q {n}", **wrapping.record(f"text {n}")} for n in range(12)]
    for name in ("a.jsonl", "a.parquet"):
        out = tmp_path / name[2:]
        manifest = insert_files(write(tmp_path / name, rows), out, PLAN, wrapping=wrapping)
        found = list(read_records(out / "corpus" / name))
        own = [row for row in found if row not in rows]
        assert len(own) == 8
        assert {row["prompt"] for row in own} == {row["chosen"][1]["content"] for row in own}
        assert verify(out / "corpus" / name, manifest).as_inserted


TOOL = {"type": "function", "function": {"name": "find", "parameters": {}}}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": TOOL}]}
FOUND = {"role": "tool", "content": "", "tool_call_id": "1"}


def test_records_with_tools_get_canaries_without(tmp_path: Path) -> None:
    """They are rendered as they are scored, whatever the record that follows may call."""
    called = {"messages": [USER, CALL, FOUND, TOLD], "tools": [TOOL], "chat_template_kwargs": {}}
    rows = [{"id": n, **called} for n in range(6)]
    corpus = write(tmp_path / "a.jsonl", rows)
    manifest = insert_files(corpus, tmp_path / "out", PLAN, wrapping=ANSWER)
    assert manifest.corpus.wrapping is not None
    copy = tmp_path / "out" / "corpus" / "a.jsonl"
    written = [json.loads(line) for line in copy.read_text().splitlines()]
    texts = {entry.text for entry in manifest.entries if entry.inserted}
    own = [row for row in written if row["messages"][-1]["content"] in texts]
    assert len(own) == sum(entry.inserted for entry in manifest.entries)
    assert {(row["tools"], row["chat_template_kwargs"]) for row in own} == {(None, None)}
    assert verify(copy, manifest).as_inserted
    remove(copy, manifest, tmp_path / "removed.jsonl")
    assert (tmp_path / "removed.jsonl").read_bytes() == corpus.read_bytes()


def part(said: Any, kind: str = "text") -> list[dict[str, Any]]:
    return [{"type": kind, "text": said}]


def chat(*turns: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": list(turns), **fields}


def in_parts(content: Any) -> dict[str, Any]:
    return chat({**USER, "content": part("q")}, {**TOLD, "content": content})


IMAGE, EMPTY = {"type": "image_url", "image_url": {"url": "x"}}, "leave out such records"
TURNS: list[tuple[Any, str]] = [
    ("x", "turn 1 must have 'role' and 'content'; it has str"),
    ({"from": "human", "value": "x"}, "it has 'from', 'value': rename them"),
    ({**USER, "content": " "}, f"'messages', turn 1: 'content' is empty; {EMPTY}"),
    (
        {"role": "narrator", "content": "x"},
        "the role 'narrator' is unknown; the roles here are sys",
    ),
    ({"role": 3, "content": "x"}, "the role of type int is unknown"),
    ({**TOLD, "content": "", "tool_calls": []}, f"turn 1: 'content' is empty; {EMPTY}"),
    ({**USER, "content": [IMAGE]}, "holds a part of type 'image_url': images are not measured"),
    ({**USER, "content": part("x")}, "is a list of parts, and must be a string; write its text"),
    ({**USER, "content": None}, "'content' is of type NoneType, and must"),
]
PARTS: list[tuple[Any, str]] = [
    ("x", "'content' is a string, and must be a list of parts; write its"),
    (part("x", "image"), "'content' holds a part of type 'image': images are not"),
    (part("x", "audio"), "'content' holds a part that is no text, such as {'type': 'te"),
    (part(None), "'content' holds a part that is no text"),
    (part(" "), f"'content' is empty; {EMPTY}"),
    (["x"], "'content' is of type list, and must be a list of parts"),
]
# The wrapping, the record behind twelve good ones, and what is said of it.
BAD: list[tuple[str, Any, str]] = [
    ("messages", ["a list"], "is a JSON list"),
    ("messages", {"text": "x"}, "has no field 'messages', which this wrapping writes; it has"),
    ("messages", {"messages": "x"}, "'messages' is of type str, and must be a list of messages"),
    ("messages", chat(), "'messages' has no turns; leave such records out"),
    ("messages", chat(USER, TOLD, images=["x.png"]), "has 'images': images are not measured"),
    *(("messages", chat(turn), message) for turn, message in TURNS),
    *(("parts", in_parts(content), f"turn 2: {message}") for content, message in PARTS),
    ("instruction", {"instruction": "q", "output": ""}, f"'output' is empty; {EMPTY}"),
    ("instruction", {"instruction": "\ud800", "output": "x"}, "the text holds a lone surrogate"),
]


@pytest.mark.parametrize(("name", "record", "message"), BAD)
def test_bad_records_are_refused_by_their_line(
    tmp_path: Path, name: str, record: Any, message: str
) -> None:
    wrapping = WRAPPINGS[name]
    source = write(tmp_path / "a.jsonl", [*records(wrapping), record])
    with pytest.raises(CorpusError, match=r"a\.jsonl: line 13") as failure:
        insert_files(source, tmp_path / "out", PLAN, wrapping=wrapping)
    assert message in str(failure.value)
    assert not (tmp_path / "out" / "manifest.json").exists()


INSTRUCTION = WRAPPINGS["instruction"]


@pytest.mark.parametrize(
    ("wrapping", "rows", "options", "message"),
    [
        (ANSWER, records(INSTRUCTION), {}, "no column 'messages'; there are id, ins"),
        (
            INSTRUCTION,
            records(INSTRUCTION),
            {"fields": {"output": "x"}},
            "fields must leave out 'output': the canary goes there",
        ),
        # pyarrow would leave the canary out without a word.
        (
            ANSWER,
            [chat({"role": "user", "text": "q"})] * 12,
            {"verify": False},
            "row 1: 'messages', turn 1 must have 'role' and 'content'",
        ),
    ],
)
def test_bad_columns(
    tmp_path: Path,
    wrapping: Wrapping,
    rows: list[dict[str, Any]],
    options: dict[str, Any],
    message: str,
) -> None:
    source = write(tmp_path / "a.parquet", rows)
    with pytest.raises(CorpusError, match=message):
        insert_files(source, tmp_path / "out", PLAN, wrapping=wrapping, **options)


def test_texts_take_no_chats(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text\n")
    with pytest.raises(CorpusError, match="chats are records, and documents of layout 'lines' are"):
        insert_files(tmp_path / "a.txt", tmp_path / "out", PLAN, wrapping=ANSWER)
