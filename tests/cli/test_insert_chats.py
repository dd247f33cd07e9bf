"""Chats through the commands: recognised and said, refused where not clear, out again."""

import json
from pathlib import Path
from typing import Any

import pytest
from chats import chat_tokenizer
from cli.conftest import Call

from lmexposure.canaries import Manifest

PLAN = ("--format", "pin", "--canaries", "2", "--repetitions", "1,3", "--controls", "2")
RECORDS: dict[str, dict[str, Any]] = {
    "messages": {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": "So."},
        ]
    },
    "conversations": {
        "conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]
    },
    "prompt_completion": {"prompt": "Why?", "completion": "So."},
    "instruction": {"instruction": "Why?", "input": "", "output": "So."},
    "preference": {"prompt": "Why?", "chosen": "So.", "rejected": "No."},
    "implicit_preference": {
        "chosen": "\n\nHuman: Why?\n\nAssistant: So.",
        "rejected": "\n\nHuman: Why?\n\nAssistant: No.",
    },
}


def write(path: Path, record: dict[str, Any], n: int = 400) -> Path:
    lines = (json.dumps({**record, "id": number}) + "\n" for number in range(n))
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("form", RECORDS)
def test_each_form_is_recognised_and_said(call: Call, tmp_path: Path, form: str) -> None:
    corpus, out = write(tmp_path / "c.jsonl", RECORDS[form]), tmp_path / "o"
    outcome = call("insert", corpus, "--out", out, *PLAN)
    assert outcome.code == 0, outcome.err
    assert f"records   {form}: each canary is the turn of the assistant (" in outcome.out
    assert ("with a system prompt" in outcome.out) == (form == "messages")
    manifest = Manifest.read(out / "manifest.json")
    assert manifest.wrapping is not None
    assert manifest.wrapping.form == form
    assert not any(canary.text in outcome.out for canary in manifest.entries)
    copy = out / "corpus" / "c.jsonl"
    checked = call("verify", copy, out / "manifest.json")
    assert (checked.code, "all is there as it was inserted" in checked.out) == (0, True)
    removed = call("remove", copy, out / "manifest.json", "--out", tmp_path / "back")
    assert "checked   its SHA-256 is that of the corpus before" in removed.out
    assert (tmp_path / "back" / "c.jsonl").read_bytes() == corpus.read_bytes()
    again = call("insert", corpus, "--out", out, *PLAN)
    assert (again.code, Manifest.read(out / "manifest.json")) == (0, manifest)
    corpus.unlink()
    again = call("insert", corpus, "--out", out, *PLAN)
    assert (again.code, Manifest.read(out / "manifest.json")) == (0, manifest)


def test_fields_of_any_name(call: Call, tmp_path: Path) -> None:
    corpus, out = write(tmp_path / "c.jsonl", {"question": "Why?", "answer": "So."}), tmp_path / "o"
    unnamed = call("insert", corpus, "--out", out, *PLAN)
    assert unnamed.code == 3
    assert "fields 'question', 'answer', 'id', which are those of no form; name them" in unnamed.err
    fields = ("--prompt-field", "question", "--completion-field", "answer")
    outcome = call("insert", corpus, "--out", out, *PLAN, *fields)
    assert outcome.code == 0, outcome.err
    assert "prompt_completion: each canary is the turn of the assistant (answer)" in outcome.out
    assert call("verify", out / "corpus" / "c.jsonl", out / "manifest.json").code == 0
    assert call("insert", corpus, "--out", out, *PLAN, *fields).code == 0
    lost = call("insert", corpus, "--out", tmp_path / "n", *PLAN, *fields[:3], "reply")
    assert lost.code == 3
    assert "none of the first 100 records has such a field; they have 'question'," in lost.err


def test_a_text_field_says_what_becomes_of_the_others(call: Call, tmp_path: Path) -> None:
    corpus, out = write(tmp_path / "c.jsonl", {"question": "Why?", "answer": "So."}), tmp_path / "o"
    flags = (*PLAN, "--text-field", "answer")
    said = (
        "records   each canary is the text of 'answer'; all else in its record ('question' and "
        "'id') is copied from the record that follows"
    )
    assert said in call("insert", corpus, "--out", out, *flags, "--dry-run").out
    assert said in call("insert", corpus, "--out", out, *flags).out
    texts = {c.text for c in Manifest.read(out / "manifest.json").entries}
    rows = list(map(json.loads, (out / "corpus" / "c.jsonl").read_text().splitlines()))
    canaries = [number for number, row in enumerate(rows) if row["answer"] in texts]
    assert len(canaries) > 8
    for number in canaries:
        following = next(row for row in rows[number:] if row["answer"] not in texts)
        assert rows[number] == {**following, "answer": rows[number]["answer"]}
    alone = write(tmp_path / "d.jsonl", {"answer": "So."}).with_name("d.jsonl")
    alone.write_text('{"answer": "So."}\n' * 400)
    assert "records " not in call("insert", alone, "--out", tmp_path / "n", *flags).out


def test_prompts_alone_need_a_training_with_loss_on_them(call: Call, tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", {"prompt": [{"role": "user", "content": "Why?"}]})
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN)
    assert outcome.code == 3
    assert "on which GRPO and online DPO have no loss" in outcome.err
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN, "--loss", "all")
    assert outcome.code == 0, outcome.err
    assert "prompt_only: each canary is the turn of the user (prompt[0].content)" in outcome.out


def test_flags_say_what_is_wanted(call: Call, tmp_path: Path) -> None:
    corpus, out = write(tmp_path / "c.jsonl", RECORDS["messages"]), tmp_path / "o"
    flags = ("--turn", "user", "--other-turn", "I see.", "--system", "Be brief.", "--loss", "all")
    outcome = call("insert", corpus, "--out", out, *PLAN, *flags)
    assert outcome.code == 0, outcome.err
    assert (
        "the turn of the user (messages[1].content), with loss on all tokens; with" in outcome.out
    )
    found = Manifest.read(out / "manifest.json").wrapping
    assert found is not None
    assert (found.turn, found.loss, found.other) == ("user", "all", "I see.")
    assert found.system == "Be brief."
    other = call("insert", corpus, "--out", out, *PLAN)
    assert other.code == 3
    assert "another text field" in other.err or "another wrapping" in other.err
    dry = call("insert", corpus, "--out", tmp_path / "n", *PLAN, "--dry-run")
    assert "records   messages: each canary is the turn of the assistant" in dry.out
    assert not (tmp_path / "n").exists()


def test_a_corpus_of_little_text_is_warned_of_by_whole_records(call: Call, tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", RECORDS["messages"], 300)
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN, "--no-witness")
    grown = (tmp_path / "o" / "corpus" / "c.jsonl").stat().st_size
    share = 100 * (grown - corpus.stat().st_size) / grown
    assert f"the canaries are {share:.1f} % of the corpus' bytes" in outcome.err


def test_the_template_of_the_training_is_noted(call: Call, tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", RECORDS["conversations"])
    chat_tokenizer().save_pretrained(tmp_path / "tokenizer")
    flags = ("--tokenizer", tmp_path / "tokenizer")
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN, *flags)
    assert outcome.code == 0, outcome.err
    record = Manifest.read(tmp_path / "o" / "manifest.json").corpus.wrapping
    assert record is not None
    assert record.template_sha256 is not None
    assert record.special_tokens
    other = call("insert", corpus, "--out", tmp_path / "o", *PLAN)
    assert (other.code, "holds a manifest of another wrapping" in other.err) == (3, True)
    lost = call("insert", corpus, "--out", tmp_path / "p", *PLAN, "--tokenizer", tmp_path / "lost")
    assert lost.code == 3
    assert "cannot load a tokenizer from" in lost.err


@pytest.mark.parametrize(
    ("record", "flags", "message"),
    [
        ({**RECORDS["instruction"], "text": "x"}, (), "may be of the form instruction or text"),
        ({"text": "x"}, ("--turn", "user"), "turn='user' is of chats, and these documents are tex"),
        ({"body": "x"}, (), "have the fields 'body', 'id', which are those of no form; name them"),
        ({"body": "x"}, ("--form", "messages"), "line 1 has no field 'messages', which this wrap"),
        ({**RECORDS["messages"], "images": ["x"]}, (), "line 1 has 'images': images are not meas"),
        ({"messages": [{"role": "x", "content": "y"}]}, (), "the role 'x' is unknown"),
        ({"messages": [{"role": "user", "content": ""}]}, (), "'content' is empty"),
        (
            RECORDS["messages"],
            ("--turn", "user", "--loss", "assistant"),
            "no token of the canary carries loss",
        ),
    ],
)
def test_bad_records_end_with_3(
    call: Call, tmp_path: Path, record: dict[str, Any], flags: tuple[str, ...], message: str
) -> None:
    corpus = write(tmp_path / "c.jsonl", record)
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN, *flags)
    assert (outcome.code, outcome.out) == (3, "")
    assert message in " ".join(outcome.err.split())
    assert not (tmp_path / "o" / "manifest.json").exists()


def test_a_form_in_text_is_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("text\n" * 50)
    outcome = call("insert", tmp_path / "c.txt", "--out", tmp_path / "o", "--form", "messages")
    assert outcome.code == 3
    assert "chats are records, and documents of layout 'lines' are texts" in outcome.err
    told = write(tmp_path / "c.jsonl", {**RECORDS["instruction"], "text": "x"})
    outcome = call("insert", told, "--out", tmp_path / "o", *PLAN, "--form", "text")
    assert outcome.code == 0
    assert "records " not in outcome.out
