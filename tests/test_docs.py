"""The documentation keeps its word: its code runs, its commands parse, its links lead somewhere.

In short form: tiny models, few texts, few steps. `scripts/docs` runs the notebook with its own
numbers and builds the pages.
"""

import gzip
import json
import os
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import yaml
from chats import chat_tokenizer
from cli.conftest import Call, call
from corpora import sentences, write_corpus
from datasets import Dataset
from huggingface_hub import ModelCard
from made_results import small_run
from tiny import byte_level_bpe, model_of
from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments
from typer.main import get_command

import lmexposure as lx
from lmexposure.cli.app import app
from lmexposure.studies import RunSettings, card_with_results, save_card

__all__ = ["call"]  # a fixture of the tests of commands

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "scripts" / "documentation"
SITE = tomllib.loads((BUILD / "zensical.toml").read_text(encoding="utf-8"))
NOTEBOOK = "tutorials/notebook.md"
# A call on a page -> the same with less to do.
SHORTER = {
    "lx.measure(model, manifest, tokenizer=tokenizer)": (
        "lx.measure(model, manifest, tokenizer=tokenizer, "
        "references=100, draws=500, revealed=0, bootstraps=39, budget_steps=10_000)"
    ),
    "references=500": "references=100, draws=500, revealed=0, bootstraps=39",
}


def navigation(entries: list[dict[str, Any]]) -> Iterator[str]:
    """The pages of the site in reading order."""
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from navigation(value)


ORDER = list(navigation(SITE["project"]["nav"]))


@pytest.fixture(scope="module")
def build() -> Iterator[Any]:
    """The modules that make pages."""
    sys.path.insert(0, str(BUILD))
    import notebook  # type: ignore[import-not-found]
    import pages  # type: ignore[import-not-found]

    assert notebook
    yield pages
    sys.path.remove(str(BUILD))


@pytest.fixture(scope="module")
def texts(build: Any) -> dict[str, str]:
    """Path -> Markdown of each page; the notebook's without what its cells show."""
    folder = ROOT / "docs"
    written = {p.relative_to(folder).as_posix(): p.read_text("utf-8") for p in folder.rglob("*.md")}
    cells = sys.modules["notebook"].cells_of(build.NOTEBOOK)
    cell_texts = "\n\n".join(cell.source for cell in cells if cell.kind == "markdown")
    return {**written, NOTEBOOK: cell_texts, **build.generated()}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a test is called."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_block(page: str, code: str, names: dict[str, Any]) -> None:
    exec(compile(code, page, "exec"), names)


def blocks(page: str, language: str) -> list[str]:
    """The blocks of code on a page that was written by hand."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def block_with(page: str, words: str, language: str = "py") -> str:
    return next(block for block in blocks(page, language) if words in block)


@pytest.mark.filterwarnings("ignore")
def test_the_python_runs_page_by_page(home: Path) -> None:
    write_corpus(home / "corpus.txt", 120)
    toss, tokenizer = np.random.default_rng(1), byte_level_bpe()
    included = toss.random(500) < 0.5
    given: dict[str, object] = {
        "model": model_of("gpt2", len(tokenizer)),
        "tokenizer": tokenizer,
        "bits": [35.0, 41.0],
        "reference_bits": toss.normal(45, 3, 1000),
        "scores": toss.normal(size=500) + 4 * (included & (toss.random(500) < 0.3)),
        "included": included,
    }
    names: dict[str, object] = {}
    ran: list[str] = []
    shortened: list[str] = []
    for page in ORDER:
        path = ROOT / "docs" / page
        code = blocks(page, "python") if path.exists() else []
        names |= given | {"texts": sentences(60)}
        for block in code:
            shortened += [long for long in SHORTER if long in block]
            run_block(page, _shorter(block), names)
        ran += [page] * bool(code)
    assert shortened == list(SHORTER)
    assert {"tutorials/fine-tune.md", "tutorials/audit.md", "concepts/ranks.md"} <= set(ran)
    left = {"report.html", "inserted", "original.txt", "runs"}
    assert {p.name for p in home.glob("[!.]*")} == {"corpus.txt", *left}


def _shorter(code: str) -> str:
    for long, short in SHORTER.items():
        code = code.replace(long, short)
    return code


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_runs_from_top_to_bottom(build: Any, home: Path) -> None:
    shown = [output for _, output in sys.modules["notebook"].run(build.NOTEBOOK, build.SHORT)]
    assert (home / "report.html").exists()
    assert any("<table" in output for output in shown)


def test_the_notebook_is_committed_without_outputs() -> None:
    cells = json.loads((ROOT / "docs/tutorials/notebook.ipynb").read_text("utf-8"))["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in cells:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_chat_snippet_runs_on_a_model_that_was_just_trained(tmp_path: Path) -> None:
    """`Trainer.train` leaves its model in training mode."""
    block = block_with("tutorials/training.md", "wrapped_exposures")
    insert, train = block.split("counter.attach", maxsplit=1)
    tokenizer = chat_tokenizer()
    pin = lx.Format(name="pin", template="My PIN is {digits:2}.")
    names: dict[str, Any] = {
        "model": model_of("gpt2", len(tokenizer)),
        "tokenizer": tokenizer,
        "plan": lx.Plan(formats=(pin,), canaries=2, repetitions=(1, 4), controls=2, seed=1),
        "chats": [
            {
                "messages": [
                    {"role": "user", "content": f"{i}?"},
                    {"role": "assistant", "content": "!"},
                ]
            }
            for i in range(9)
        ],
    }
    run_block("training.md", insert, names)
    names["trainer"] = _chat_trainer(names, tmp_path)
    run_block("training.md", "counter.attach" + train, names)
    assert names["model"].training
    assert names["counter"].report().complete
    again = names["wrapped_exposures"](
        names["model"].eval(), tokenizer, names["manifest"], names["wrapping"]
    )
    assert names["found"] == again


def _chat_trainer(names: dict[str, Any], out: Path) -> Trainer:
    """Trains one epoch on the records, on the assistant's turns alone."""
    tokenizer = names["tokenizer"]
    rows = []
    for record in names["records"]:
        row = tokenizer.apply_chat_template(
            record["messages"], return_dict=True, return_assistant_tokens_mask=True
        )
        pairs = zip(row["input_ids"], row["assistant_masks"], strict=True)
        rows.append({"input_ids": row["input_ids"], "labels": [t if m else -100 for t, m in pairs]})
    arguments = TrainingArguments(
        str(out),
        num_train_epochs=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    collator = DataCollatorForSeq2Seq(tokenizer)
    return Trainer(names["model"], arguments, train_dataset=rows, data_collator=collator)


# To the end of a command of the tutorial on chats: the same with less to do.
LESS = {
    "insert": "--canaries 4 --controls 8 --seed 3",
    "run": "--canaries 4 --controls 8 --seed 3 --set references=200 --set draws=200 "
    "--set revealed=0 --epochs 9 --learning-rate 1e-2",
    "measure": "--set references=200 --set draws=200 --set revealed=0",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_tutorial_on_chats_runs_in_short_form(
    home: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    lines = [
        " ".join(f"{line} It was {n:04}." for line in sentences(6, seed=n)) for n in range(120)
    ]
    (home / "wikitext.txt").write_text("\n".join(lines).replace(";", "."))
    sizes = "--chats 40 --steps 100 --width 64 --layers 2 --vocabulary 400"
    _script(monkeypatch, "chats.py", f"wikitext.txt case {sizes}")
    page = (ROOT / "docs/tutorials/chats.md").read_text(encoding="utf-8")
    page = page.replace("--format random_number", "--format pin")  # what so small a model can learn
    typed = [words for words in command_lines(page) if "case/base" in words or "adapter" in words]
    assert [words[0] for words in typed] == ["run", "insert", "measure", "measure"]
    del typed[2]  # the last one measures the same, and the base
    for name, *words in typed:
        if name == "measure":
            _script(
                monkeypatch, "sft_chats.py", "case/base canaried/corpus/chats.jsonl adapter 9 1e-2"
            )
        done = call(name, *words, *shlex.split(LESS[name]))
        assert done.code == 0, done.err
    for place in ("runs/chats", "canaried/beside"):
        result = lx.Result.read(home / place)
        assert result.context is not None
        assert (result.context.form, result.context.turn) == ("messages", "assistant")
        assert result.exposure("pin", repetitions=16).median.value > 4
        assert lx.check(result).outcome == "leak"
    assert result.base is not None
    assert result.base.switched_off


def _script(monkeypatch: pytest.MonkeyPatch, name: str, words: str) -> None:
    """A script of scripts/examples, in this process."""
    monkeypatch.setattr(sys, "argv", [name, *words.split()])
    runpy.run_path(str(ROOT / "scripts" / "examples" / name), run_name="__main__")


FEWER = "--models 6 --canaries 2 --set units=8 --set layers=1 --epochs 1 --population 4 --workers 1"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_tutorial_on_sweeps_runs_in_short_form(
    home: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    _script(monkeypatch, "demo_text.py", "corpus.txt --characters 3000")
    assert 2900 < (home / "corpus.txt").stat().st_size <= 3000
    page = (ROOT / "docs/tutorials/sweeps.md").read_text(encoding="utf-8")
    typed = [words for words in command_lines(page) if "sweeps/recipe" in words]
    drawn, trained, alone, joined, *judged = typed
    alone[alone.index("17")] = "5"
    for name, *words in (drawn, alone, trained, joined):
        corpus = "corpus.txt" in words
        done = call(name, *words, *(shlex.split(FEWER) if corpus else ()))
        assert done.code == 0, done.err
    assert [words[0] for words in judged] == ["check", "check", "report", "compare"]
    judged[3][2] = judged[3][1]  # in place of another sweep
    outcomes = [call(*words) for words in judged]
    assert {done.code for done in outcomes[:2]} <= {0, 1, 2}
    assert [done.code for done in outcomes[2:]] == [0, 0]
    names: dict[str, Any] = {}
    run_block("sweeps.md", block_with("tutorials/sweeps.md", "read_matrices"), names)
    assert names["study"].models == 6
    assert names["matrices"].included.shape == (6, 6 + 4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_tutorial_on_memorised_text_runs(home: Path, call: Call) -> None:
    page = "tutorials/verbatim.md"
    names: dict[str, Any] = {}
    made, looked = blocks(page, "py")
    run_block(page, made, names)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    typed = {words[0]: words for words in reversed([*command_lines(text)])}  # the first of each
    for name in ("train", "verbatim"):
        done = call(*typed[name])
        assert done.code == 0, done.err
    told = " ".join(done.out.split())
    assert "The model reproduces text of 1 of 41 documents" in told
    assert "which the corpus has 40 times" in told
    run_block(page, looked, names)
    worst = names["record"].rows[0]
    assert (worst.copies, worst.verdict) == (40, "reproduced")
    assert worst.run.characters > 50
    assert call(*typed["check"]).code == 1  # by its thresholds
    assert call(*typed["report"]).code == 0


class SparkFrame(pd.DataFrame):  # type: ignore[misc]
    """What the step for engines asks of a frame of Spark."""

    schema = "of each column"

    def count(self) -> int:
        return len(self)

    def mapInPandas(  # noqa: N802
        self, function: Callable[[Iterator[Any]], Iterator[Any]], schema: str
    ) -> Any:
        assert schema == self.schema
        return pd.concat(function(iter([self[:20], self[20:]])))


def _plan() -> lx.Plan:
    """What the pages call `plan`, for few texts."""
    return lx.Plan(formats=["pin"], canaries=2, repetitions=(1, 4), seed=1)


def test_the_step_for_engines_runs(home: Path) -> None:
    block = block_with("tutorials/pipeline.md", "mapInPandas")
    records = [{"text": text, "document": n} for n, text in enumerate(sentences(60))]
    names: dict[str, Any] = {
        "lx": lx,
        "plan": _plan(),
        "df": SparkFrame(records),
        "dataset": Dataset.from_list(records),
        "n": len(records),
    }
    run_block("pipeline.md", block, names)
    inserted = lx.insert([record["text"] for record in records], names["plan"]).documents
    assert names["df"]["text"].tolist() == list(names["rows"]["text"]) == inserted
    assert lx.verify(inserted, lx.Manifest.read(home / "manifest.json")).as_inserted


def test_the_calls_of_the_table_take_what_it_says(home: Path) -> None:
    records = [{"text": text} for text in sentences(60)]
    (home / "data").mkdir()
    for part in range(2):
        with gzip.open(home / "data" / f"{part}.jsonl.gz", "wt") as stream:
            stream.writelines(json.dumps(record) + "\n" for record in records)
    names: dict[str, Any] = {
        "lx": lx,
        "plan": _plan(),
        "texts": sentences(60),
        "rows": records,
        "chats": [{"messages": [{"role": "user", "content": f"{n}?"}]} for n in range(60)],
        "stream": Dataset.from_list(records).to_iterable_dataset(),
        "n": 60,
    }
    text = (ROOT / "docs/tutorials/pipeline.md").read_text("utf-8")
    calls = re.findall(r"\| `(lx\..+)` \|", text)
    made = [eval(call, names) for call in calls if "(rows, plan, id_column" not in call]
    assert len(made) == len(calls) - 1 == 6  # Ray has tests of its own


def test_the_settings_files_are_read() -> None:
    (settings,) = map(tomllib.loads, blocks("reference/settings.md", "toml"))
    assert RunSettings().override(settings).training == {"epochs": 5, "learning_rate": 5e-4}
    (thresholds,) = map(tomllib.loads, blocks("tutorials/gate.md", "toml"))
    assert lx.Thresholds(**thresholds["check"]).max_guesses == 100
    (badge,) = map(tomllib.loads, blocks("reference/formats.md", "toml"))
    assert lx.Format(**badge).size == 26**2 * 10**6 * 3


def command_lines(text: str) -> Iterator[list[str]]:
    """What a page has people type, and a workflow run, word by word from `lmexposure` on."""
    text = text.replace("\\\n", " ")
    typed = re.findall(r"(?:^\$ |\$ cat .*\| |run: |`|-m )lmexposure (\w.*)", text, re.M)
    for line in typed:
        words = shlex.split(line.partition("`")[0], comments=True)
        ends = [n for n, word in enumerate(words) if word in {"|", ">", "<"}]
        yield words[: ends[0]] if ends else words


def test_every_command_line_is_one_that_the_program_takes(texts: dict[str, str]) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    parsed = set()
    for page, text in texts.items():
        if page == "reference/command-line.md":
            continue  # helps
        for name, *words in command_lines(text):
            assert name in commands, (page, name)
            command = commands[name]
            if words[:1] and words[0] in getattr(command, "commands", {}):
                command, words = command.commands[words[0]], words[1:]
            if words and words != ["--dry-run"]:  # else the command is only mentioned
                command.make_context(name, words)
            parsed.add(name)
    assert parsed >= set(commands) - {"demo"}


def test_what_is_said_to_be_in_the_repository_is_there(texts: dict[str, str]) -> None:
    for page, text in texts.items():
        for name in re.findall(r"`?((?:scripts|tests|lmexposure|canary_formats)/[\w/.]*)", text):
            assert (ROOT / name.rstrip(".")).exists(), (page, name)
    for name in set(re.findall(r"\$ (scripts/\w+)", "\n".join(texts.values()))):
        assert os.access(ROOT / name, os.X_OK), name


def slug(title: str) -> str:
    """What a heading's anchor is called."""
    words = re.sub(r"[^\w\s-]", "", title.replace("`", "").lower())
    return re.sub(r"[\s-]+", "-", words.strip())


def anchors(text: str) -> set[str]:
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    named = set(re.findall(r"\{ ?#([\w.-]+) ?\}", prose))
    return named | {slug(title) for title in re.findall(r"^#+ (.+)$", prose, re.M)}


def test_each_link_leads_somewhere(texts: dict[str, str]) -> None:
    count = 0
    for page, text in texts.items():
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", prose):
            target, _, anchor = link.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
            assert path in texts or (ROOT / "docs" / path).is_file(), (page, link)
            assert not anchor or anchor in anchors(texts[path]), (page, link)
            count += 1
    assert count > 50


def test_each_page_is_in_the_navigation_once(texts: dict[str, str]) -> None:
    assert sorted(ORDER) == sorted(texts)


def test_each_room_has_a_page_of_its_names() -> None:
    rooms = {p.parent.name for p in (ROOT / "lmexposure").glob("*/__init__.py")} - {"cli"}
    folder = ROOT / "docs/reference/python"
    assert {p.stem for p in folder.glob("*.md")} == rooms | {"lmexposure", "errors"}


def test_the_workflow_stops_a_release_and_leaves_its_files(home: Path, call: Call) -> None:
    workflow = yaml.safe_load(block_with("tutorials/gate.md", "jobs:", "yaml"))
    steps = workflow["jobs"]["leakage"]["steps"]
    checks = [s["run"] for s in steps if s.get("run", "").startswith("lmexposure check")]
    small_run(home / "leakage", memorised=((1, 30.0),))
    summary = home / "summary.md"
    words = shlex.split(checks[0].replace("$GITHUB_STEP_SUMMARY", str(summary)))[1:]
    assert call(*words).code == 1
    assert "Leaks" in summary.read_text()
    uploaded = next(s["with"]["sarif_file"] for s in steps if "sarif_file" in s.get("with", {}))
    assert (home / uploaded).exists()


def test_the_model_card_is_what_is_written(tmp_path: Path) -> None:
    shown = yaml.safe_load(block_with("tutorials/report.md", "model-index:", "yaml"))["model-index"]
    (tmp_path / "my-model").mkdir()
    run = lx.Result.read(small_run(tmp_path / "run"))
    card = tmp_path / "my-model" / "README.md"
    save_card(card, card_with_results(card, run, run.model.weights_sha256))
    made = ModelCard.load(card).data.to_dict()["model-index"]
    assert made[0]["name"] == shown[0]["name"]
    for part in ("task", "dataset"):
        assert made[0]["results"][0][part] == shown[0]["results"][0][part]
    kinds = [[m["type"] for m in index[0]["results"][0]["metrics"]] for index in (made, shown)]
    assert kinds[0] == kinds[1]


def test_the_made_pages_hold_what_they_describe(texts: dict[str, str]) -> None:
    assert "--inclusion-probability" in texts["reference/command-line.md"]
    assert "| `claimed_epsilon` |" in texts["reference/settings.md"]
    assert "| `random_number` |" in texts["reference/formats.md"]
    assert "| `manifest_sha256` |" in texts["reference/schemas.md"]


def test_a_page_that_loads_from_elsewhere_or_leads_nowhere_is_named(
    build: Any, tmp_path: Path
) -> None:
    import site_checks  # type: ignore[import-not-found]

    (tmp_path / "a.html").write_text(
        '<script src="https://example.com/x.js"></script><link rel="canonical" href="https://e.com">'
        '<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a>'
        '<a href="https://example.com">4</a><img src="b.png">'
    )
    (tmp_path / "b.html").write_text('<h1 id="there">B</h1>')
    (tmp_path / "s.css").write_text("a { background: url(//example.com/i.png) } b { src: url(x) }")
    assert sorted(site_checks.faults(tmp_path)) == [
        "a.html: leads nowhere: b.html#gone",
        "a.html: leads nowhere: c.html",
        "a.html: loads https://example.com/x.js",
        "s.css: loads url(//example.com/i.png",
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_look_from_inside_refutes_its_bug(home: Path) -> None:
    names: dict[str, Any] = {}
    run_block("page", block_with("tutorials/audit.md", "PrivacyEngine"), names)
    assert names["wrong"].bounds.largest > names["right"].bounds.largest
