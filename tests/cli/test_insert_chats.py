"""Chats through the commands: recognised and said, refused where not clear, out again."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from chats import chat_tokenizer
from cli.conftest import FEW, Call
from models.small_chats import chats, save_base
from published_templates import PUBLISHED, tiny_model_for, tokenizer_for

from lmexposure.canaries import Manifest

PAIRS = {"question": "Why?", "answer": "So."}
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
def test_each_form_is_recognised_and_said(call: Call, form: str) -> None:
    corpus, out = write(Path("c.jsonl"), RECORDS[form]), Path("o")
    outcome = call.done("insert", corpus, "--out", out, *FEW)
    assert f"records   {form}: each canary is the turn of the assistant (" in outcome.out
    assert ("with a system prompt" in outcome.out) == (form == "messages")
    manifest = Manifest.read(out / "manifest.json")
    assert manifest.wrapping is not None
    assert manifest.wrapping.form == form
    assert not any(canary.text in outcome.out for canary in manifest.entries)
    copy = out / "corpus" / "c.jsonl"
    call("verify", copy, out / "manifest.json").done(out="all is there as it was inserted")


def test_fields_of_any_name(call: Call) -> None:
    corpus, out = write(Path("c.jsonl"), PAIRS), Path("o")
    fields = ("--prompt-field", "question", "--completion-field", "answer")
    for _ in range(2):
        outcome = call.done("insert", corpus, "--out", out, *FEW, *fields)
    assert "prompt_completion: each canary is the turn of the assistant (answer)" in outcome.out
    call.done("verify", out / "corpus" / "c.jsonl", out / "manifest.json")


def test_a_text_field_says_what_becomes_of_the_others(call: Call) -> None:
    corpus, out = write(Path("c.jsonl"), PAIRS), Path("o")
    flags = (*FEW, "--text-field", "answer")
    said = (
        "records   each canary is the text of 'answer'; all else in its record ('question' and "
        "'id') is copied from the record that follows"
    )
    assert said in call("insert", corpus, "--out", out, *flags).out
    texts = {c.text for c in Manifest.read(out / "manifest.json").entries}
    rows = list(map(json.loads, (out / "corpus" / "c.jsonl").read_text().splitlines()))
    canaries = [number for number, row in enumerate(rows) if row["answer"] in texts]
    assert len(canaries) > 8
    for number in canaries:
        following = next(row for row in rows[number:] if row["answer"] not in texts)
        assert rows[number] == {**following, "answer": rows[number]["answer"]}
    alone = write(Path("d.jsonl"), {"answer": "So."}).with_name("d.jsonl")
    alone.write_text('{"answer": "So."}\n' * 400)
    assert "records " not in call("insert", alone, "--out", "n", *flags).out


@pytest.mark.parametrize(
    ("record", "flags", "said"),
    [
        (
            {"prompt": [{"role": "user", "content": "Why?"}]},
            ("--loss", "all"),
            "prompt_only: each canary is the turn of the user (prompt[0].content)",
        ),
        (
            RECORDS["messages"],
            (
                *("--turn", "user", "--set", "other_turn=I see."),
                *("--set", "system=Be brief.", "--loss", "all"),
            ),
            "the turn of the user (messages[1].content), with loss on all tokens; with",
        ),
        (RECORDS["messages"], (), "records   messages: each canary is the turn of the assistant"),
        ({**RECORDS["instruction"], "text": "x"}, ("--record-form", "text"), ""),
    ],
)
def test_flags_say_what_is_wanted(
    call: Call, record: dict[str, Any], flags: tuple[str, ...], said: str
) -> None:
    corpus, out = write(Path("c.jsonl"), record), Path("o")
    dry = call("insert", corpus, "--out", out, *FEW, *flags, "--dry-run")
    assert not out.exists()
    outcome = call("insert", corpus, "--out", out, *FEW, *flags)
    assert (outcome.code, dry.code) == (0, 0), outcome.err
    assert all(
        said in seen.out and ("records " in seen.out) == bool(said) for seen in (dry, outcome)
    )
    wrapping = Manifest.read(out / "manifest.json").wrapping
    if "system=Be brief." in flags:
        assert wrapping is not None
        assert (wrapping.turn, wrapping.loss) == ("user", "all")
        assert (wrapping.other, wrapping.system) == ("I see.", "Be brief.")
        call("insert", corpus, "--out", out, *FEW).refused("a manifest of another")


def test_a_corpus_of_little_text_is_warned_of_by_whole_records(call: Call) -> None:
    corpus = write(Path("c.jsonl"), RECORDS["messages"], 300)
    outcome = call("insert", corpus, "--out", "o", *FEW, "--no-witness")
    grown = Path("o/corpus/c.jsonl").stat().st_size
    share = 100 * (grown - corpus.stat().st_size) / grown
    assert f"the canaries are {share:.1f} % of the corpus' bytes" in outcome.err


def test_the_template_of_the_training_is_noted(call: Call) -> None:
    corpus = write(Path("c.jsonl"), RECORDS["conversations"])
    chat_tokenizer().save_pretrained(Path("tokenizer"))
    flags = ("--tokenizer", "tokenizer")
    call.done("insert", corpus, "--out", "o", *FEW, *flags)
    record = Manifest.read("o/manifest.json").corpus.wrapping
    assert record is not None
    assert record.template_sha256 is not None
    assert record.special_tokens


# What the corpus is, flags, what the refusal says.
MESSAGES = RECORDS["messages"]
TEMPLATE = ("--chat-template", "t.jinja")
REFUSED: list[tuple[str | dict[str, Any], tuple[str, ...], str]] = [
    ({**RECORDS["instruction"], "text": "x"}, (), "may be of the form instruction or text"),
    (
        PAIRS,
        ("--prompt-field", "question", "--completion-field", "reply"),
        "records has such a field; they have 'question',",
    ),
    ({"messages": [{"role": "x", "content": "y"}]}, (), "the role 'x' is unknown"),
    (MESSAGES, ("--tokenizer", "/nowhere/lost"), "no tokenizer: model"),
    (MESSAGES, ("--chat-template", "lost.jinja"), "lost.jinja cannot be read as text"),
    (MESSAGES, ("--chat-template", "none.jinja"), "holds no template; give the file"),
    ({"text": "x"}, TEMPLATE, "is of chats, and these documents are texts"),
    (
        RECORDS["prompt_completion"],
        TEMPLATE,
        "no template makes these strings (with --set",
    ),
    ({"text": "x"}, ("--set", "chat_date=2026-01-31"), "--set chat_date=2026-01-31 is of chats"),
    ("a.json", (), "is a JSON array, whose lines are no documents; write a"),
    ("b.json", (), "if it has a record a line, say so: --layout jsonl"),
    ("b.json.gz", (), "if it has a record a line, say so: --layout jsonl"),
    ("a", (), "a is a JSON array, whose lines are no documents; write a"),
    ("b", (), "b is JSON; if it has a record a line, say so: --layout jsonl, else --layout lines"),
    ("c.csv", (), "is a table, whose lines are no documents; write it as"),
]
FILES = {
    "a.json": '[\n{"text": "a"}\n]\n',
    "b.json": '{"text": "a"}\n',
    "a": '[\n{"text": "a"}\n]\n',
    "b": '\n{"text": "a"}\n',
    "c.csv": "question,answer\na,b\n",
    "t.jinja": PUBLISHED["zephyr"],
    "none.jinja": "\0\n",
}


@pytest.mark.parametrize(("corpus", "flags", "message"), REFUSED)
def test_what_is_refused(
    call: Call, corpus: str | dict[str, Any], flags: tuple[str, ...], message: str
) -> None:
    for name, text in FILES.items():
        Path(name).write_text(text)
    Path("b.json.gz").write_bytes(gzip.compress(FILES["b.json"].encode()))
    path = corpus if isinstance(corpus, str) else write(Path("c.jsonl"), corpus, 60)
    outcome = call("insert", path, "--out", "o", *FEW, *flags)
    outcome.refused(message)
    assert not outcome.out
    assert not Path("o/manifest.json").exists()


KIND = {"messages": [{"role": "system", "content": "Be kind."}, *MESSAGES["messages"][1:]]}
BARE = {"messages": MESSAGES["messages"][1:]}
TWICE = {"messages": [*BARE["messages"][:1] * 2, *BARE["messages"][1:]]}


@pytest.mark.parametrize(
    ("record", "name", "changes", "message"),
    [
        (KIND, "gemma", {}, "refuses this chat (System role not supported)"),
        (BARE, "qwen2_5", {"model_max_length": 20}, "the model's context window holds 20; use"),
        (
            BARE,
            "smollm2",
            {"chat_template": "{{ strftime_now(1) }}" + PUBLISHED["smollm2"]},
            "asks for today's date in a way that cannot be told",
        ),
        (
            TWICE,
            "mistral_nemo",
            {},
            "record 1: the chat template refuses this chat (After the optional system mess",
        ),
    ],
)
def test_what_the_training_could_not_do_is_refused_at_insertion(
    call: Call, record: dict[str, Any], name: str, changes: dict[str, Any], message: str
) -> None:
    corpus, tokenizer = write(Path("c.jsonl"), record, 60), tokenizer_for(name)
    for key, value in changes.items():
        setattr(tokenizer, key, value)
    tokenizer.save_pretrained(Path("base"))
    tiny_model_for(tokenizer).save_pretrained(Path("base"))
    base = ("--tokenizer", "base")
    outcome = call("insert", corpus, "--out", "o", *FEW, *base)
    outcome.refused(message)
    assert not outcome.out
    assert not Path("o/manifest.json").exists()


@pytest.fixture(scope="module")
def chat_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("chat_base") / "model")


@pytest.fixture
def to_train() -> Path:
    path = Path("chats.jsonl")
    path.write_text("".join(json.dumps(record) + "\n" for record in chats()))
    return path


def test_chats_are_trained_on_by_adapters(call: Call, to_train: Path, chat_base: Path) -> None:
    lora = ("--model", chat_base, "--lora", "--set", "lora_rank=4", "--set", "lora_targets=q_proj")
    call.done("train", to_train, "--out", "t", *lora, "--epochs", 1)
    config = json.loads(Path("t/model/adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (4, 8, ["q_proj"])


@pytest.mark.parametrize(
    ("command", "by_file"),
    [
        *(("train", False), ("run", True), ("sweep", True)),
        *(("defences", True), ("dp-check", False)),
    ],
)
def test_a_rank_without_adapters_is_refused_before_the_work(
    call: Call, to_train: Path, chat_base: Path, command: str, by_file: bool
) -> None:
    """The default's, too; by flag and by settings file."""
    said: tuple[object, ...] = ("--set", "lora_rank=16")
    if by_file:
        settings = Path("settings.toml")
        settings.write_text("lora_rank = 16\n")
        said = ("--settings", settings)
    out = () if command == "dp-check" else ("--out", "t")
    outcome = call(command, to_train, "--model", chat_base, *said, *out)
    assert outcome.code == 3
    message = r"lora_rank=16 is of adapters, and all weights would be trained; add --(lora|set lo)"
    assert re.search(message, " ".join(outcome.err.split()))
    assert not Path("t").exists()


def test_a_run_says_what_it_takes_records_for(call: Call, to_train: Path) -> None:
    outcome = call("run", to_train, "--set", "existing=set_aside", "--format", "pin", "--out", "r")
    assert "records   messages: each canary is the turn of the assistant" in outcome.out
