"""What a training will make of chats: looked at before it, and said of it afterwards."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Call
from corpora import write_corpus
from datasets import Dataset
from published_templates import PUBLISHED, TWINS, tiny_model_for, tokenizer_for

from lmexposure.canaries import Manifest, read_records
from lmexposure.models import training_rows
from lmexposure.studies import Result
from lmexposure.studies.exposure.facts import command_of

PLAN = ("--format", "pin", "--canaries", "2", "--repetitions", "1,3", "--controls", "20")
MANIFEST = Path("o/manifest.json")
DAY = ("--set", "chat_date=2026-01-31")
QUICK = (
    "--effort",
    "quick",
    "--set",
    "references=20",
    "--set",
    "draws=10",
    "--set",
    "budget_steps=1",
)


def chats(path: Path) -> Path:
    said = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    path.write_text("".join(json.dumps({"messages": said, "id": i}) + "\n" for i in range(60)))
    return path


def saved(path: Path, name: str) -> Path:
    """A tiny model with a published template."""
    tokenizer = tokenizer_for(name)
    tokenizer.save_pretrained(path)
    tiny_model_for(tokenizer).save_pretrained(path)
    return path


def test_rows_are_looked_at_by_insert_or_by_the_line_that_it_prints(call: Call) -> None:
    corpus, base = chats(Path("c.jsonl")), saved(Path("base"), "llama3_2")
    outcome = call("insert", corpus, "--out", "o", *PLAN, *DAY)
    line = "check     lmexposure verify "
    assert line in outcome.out
    words = outcome.out.split(line)[1].split("\n")[0].split()
    checked = call.done("verify", *words[:-1], base)
    told = call("insert", corpus, "--out", "p", *PLAN, "--tokenizer", base, *DAY)
    assert line not in told.out
    for out in (checked.out, told.out):
        assert "rows      a canary ends at token " in out
        assert "with loss on all of its tokens (loss=assistant)" in out
        assert "the template writes the date, here 2026-01-31" in out
    wrapping = Manifest.read("p/manifest.json").wrapping
    assert wrapping is not None
    assert wrapping.chat_date == "2026-01-31"


@pytest.mark.slow
def test_measure_is_told_of_the_rows_and_the_report_tells_it_again(call: Call) -> None:
    corpus, base = chats(Path("c.jsonl")), saved(Path("base"), "qwen2_5")
    other = Path("other.jinja")
    other.write_text(PUBLISHED["llama3_2"])
    call("insert", corpus, "--out", "o", *PLAN, "--tokenizer", base)
    told = ("--loss", "all", "--chat-template", other, *DAY)
    call.done("measure", base, MANIFEST, "--out", "m", *QUICK, *told)
    run = Result.read("m")
    context = run.context
    assert context is not None
    assert (context.source, context.loss, context.chat_date) == ("setting", "all", "2026-01-31")
    assert "31 Jan 2026" in context.left
    again = command_of(run.files)
    assert "--loss all --chat-template TEMPLATE --set chat_date=2026-01-31" in again
    call("insert", write_corpus(Path("t.txt"), 60), "--out", "t", *PLAN)
    plain = call("measure", base, "t/manifest.json", "--out", "n", "--loss", "all")
    plain.refused("say what was left of each")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "of_rows", "says"),
    [
        ("glm4moe", TWINS["glm4moe"], "behind each canary the rows have '<|user|>', and the chat"),
        ("qwen2_5", PUBLISHED["smollm2"], "in front of each canary the rows have '"),
    ],
)
def test_the_first_difference_of_rows_and_template_is_shown(
    call: Call, name: str, of_rows: str, says: str
) -> None:
    """TRL trains some families in rows of another template than the one that it saves."""
    corpus, base = chats(Path("c.jsonl")), saved(Path("base"), name)
    call("insert", corpus, "--out", "o", *PLAN)
    wrapping = Manifest.read(MANIFEST).wrapping
    assert wrapping is not None
    records = list(read_records([Path("o/corpus/c.jsonl")], layout="jsonl"))
    for place, template in (("as saved", PUBLISHED[name]), ("other", of_rows)):
        rows = [
            {
                "input_ids": row.ids,
                "labels": [i if c else -100 for i, c in zip(row.ids, row.carried, strict=True)],
            }
            for row in training_rows(tokenizer_for(name, template), records, wrapping)
        ]
        Dataset.from_list(rows).save_to_disk(Path(place))
    given = ("--rows", "--tokenizer", base)
    same = call.done("verify", "as saved", MANIFEST, *given)
    assert "do not follow" not in same.out
    other = call.done("verify", "other", MANIFEST, *given)
    assert f"the rows do not follow the chat template in {base}: {says}" in " ".join(
        other.out.split()
    )
    call.done("measure", base, MANIFEST, "--out", "m", *QUICK)
    context = Result.read("m").context
    assert context is not None
    assert context.source == "rows"
    refused = call("measure", base, MANIFEST, "--out", "n", *QUICK, "--loss", "all")
    refused.refused("but rows.json says what they are; leave")


def test_code_of_a_directory_is_neither_run_nor_asked_about(call: Call, tmp_path: Path) -> None:
    corpus, base = chats(Path("c.jsonl")), Path("base")
    tokenizer_for("qwen2_5").save_pretrained(base)
    config = {"model_type": "zzz", "auto_map": {"AutoConfig": "c.C"}}
    (base / "config.json").write_text(json.dumps(config))
    (base / "c.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\nclass C: pass\n")
    outcome = call("insert", corpus, "--out", "o", *PLAN, "--tokenizer", base)
    assert (outcome.code, "custom code" in outcome.out + outcome.err) == (0, False), outcome.err
    assert not Path("run").exists()


@pytest.mark.slow
def test_a_template_is_the_same_with_windows_line_ends(call: Call) -> None:
    corpus, base = chats(Path("c.jsonl")), saved(Path("base"), "qwen2_5")
    Path("crlf.jinja").write_bytes(PUBLISHED["qwen2_5"].replace("\n", "\r\n").encode())
    told = ("--chat-template", "crlf.jinja")
    call.done("insert", corpus, "--out", "o", *PLAN, *told)
    call.done("measure", base, MANIFEST, "--out", "m", *QUICK)
    line = call("verify", "o/corpus/c.jsonl", MANIFEST, "--tokenizer", base, *told)
    line.done(out="a canary ends at token")
    vain = call("measure", base, MANIFEST, "--out", "n", *DAY)
    vain.refused("writes no date of its own; leave it out")
    seen = call.done("insert", corpus, "--out", "d", *PLAN, "--tokenizer", base, *DAY)
    assert "writes the date" not in seen.out


def test_json_with_a_record_a_line_is_what_was_said(call: Call) -> None:
    corpus, out = chats(Path("c.json")), Path("o")
    call.done("insert", corpus, "--out", out, *PLAN, "--layout", "jsonl")
    checked = call("verify", out / "corpus" / "c.json", out / "manifest.json")
    checked.done(out="all is there as it was inserted")
    call.done("remove", out / "corpus" / "c.json", out / "manifest.json", "--out", "b")
    assert Path("b/c.json").read_bytes() == corpus.read_bytes()


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("labels", "My PIN is 4711"),
        ("attention_mask", ["1", "1"]),
        ("position_ids", [["a"]]),
        ("completion_mask", [1]),
        ("seq_lengths", [-1, 3]),
    ],
)
def test_no_value_of_an_odd_column_is_shown(call: Call, column: str, values: Any) -> None:
    corpus, base = chats(Path("c.jsonl")), Path("base")
    tokenizer_for("qwen2_5").save_pretrained(base)
    call("insert", corpus, "--out", "o", *PLAN)
    Dataset.from_list([{"input_ids": [1, 2], column: values}]).save_to_disk(Path("rows"))
    outcome = call("verify", "rows", MANIFEST, "--rows", "--tokenizer", base)
    outcome.refused(f"row 1: '{column}' is no list of whole numbers, one for each token")
    assert "4711" not in outcome.err
