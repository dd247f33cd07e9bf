"""What the product shows of committed runs: verdicts, reports, comparisons, bounds and tables."""

import difflib
import hashlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import cli.conftest
import pytest
from cli.conftest import Call, Outcome
from golden.page_text import page_text
from golden_run import agree

from lmexposure.cli.console import print_document
from lmexposure.studies import Result, card_with_results, save_card

call = cli.conftest.call

_DATA = Path(__file__).parent / "data" / "shown"
# demo: inserted once and 16 times; coins: with a claim that cannot be tested; formats: three of
# them; measured: a measurement alone; claimed: without a search, with a claim that is contradicted;
# followed: while it trained.


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are given from here, so that no output holds a place of this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def _lay_out(*names: str) -> None:
    """Fresh copies of committed runs, each in a directory of its name."""
    for name in names:
        shutil.copytree(_DATA / name, name, dirs_exist_ok=True)


def _transcript(words: Sequence[object], seen: Outcome, files: Sequence[str | Path] = ()) -> str:
    """A call as people see it, and what it wrote."""
    parts = [
        f"$ lmexposure {' '.join(map(str, words))}\nexit code {seen.code}\n",
        f"--- standard output\n{seen.out}",
        *([f"--- standard error\n{seen.err}"] if seen.err else []),
        *(f"--- {path}\n{_text(Path(path))}" for path in files),
    ]
    return _settled("".join(parts))


def _text(path: Path) -> str:
    text = path.read_bytes().decode()
    return page_text(text) if path.suffix == ".html" else text


_LONG = re.compile(r"(?<![\w.])-?\d+\.\d{8,}(?:e[+-]\d+)?(?![\w.])")
_LIST = re.compile(r"\[\s*((?:-?[\d.]+(?:e[+-]\d+)?,\s*){40,}-?[\d.]+(?:e[+-]\d+)?)\s*\]")
# A verdict's own words as JSON; they stand in full where every form of it is held.
_WORDS = re.compile(r'^ +"(?:reason|sentence)": .*\n(?= +"(?:asked|deciding)")', re.M)
# The innermost tables, to be told on a line each.
_TABLE = re.compile(r"\{\n[^{}\[\]]*\}")
# Where a file names the version that wrote it; results name the one that measured.
_VERSION = re.compile(r'^( "lmexposure": | {5}"(?:version|semanticVersion)": )"[^"]+"', re.M)


def _settled(text: str) -> str:
    """Text without what is another on the next machine or in the next version.

    What is written in full has 7 digits here, for the last ones depend on the processor; long
    lists of numbers are told by their length and hash; today's version is taken out.
    """
    text = _LONG.sub(lambda found: repr(float(f"{float(found[0]):.7g}")), text)
    text = _LIST.sub(_told, text)
    return _VERSION.sub(r'\1"VERSION"', text)


def _told(found: re.Match[str]) -> str:
    numbers = found[1].split()
    sha256 = hashlib.sha256(" ".join(numbers).encode()).hexdigest()
    return f'["{len(numbers)} numbers from {numbers[0]} to {numbers[-1]}, sha256 {sha256[:16]}"]'


# The gate.

# Each threshold at least once, with runs that pass it, leak by it, and cannot tell.
_JUDGED = {
    "formats": "formats",
    "max-exposure": "demo --max-exposure 12 --max-guesses 1 --no-p-value",
    "max-exposure-too-low": "measured --max-exposure 3",
    "median": "demo --median-exposure 2.5 --repetitions 16 --max-guesses 1 --no-p-value",
    "median-within": "measured --median-exposure 1.5",
    "quantile": "demo --quantile-exposure 0.5:4 --max-guesses 1 --no-p-value",
    "guesses": "demo --max-guesses 30",
    "guesses-none": "demo --max-guesses 20 --no-p-value --repetitions 1",
    "guesses-not-searched": "claimed --max-guesses 100 --repetitions 1",
    "guesses-too-many": "measured --max-guesses 5000",
    "epsilon": "demo --max-epsilon 0.1 --max-guesses 1",
    "epsilon-unattainable": "coins --max-epsilon 3",
    "few-canaries-allowed": "formats --min-canaries 2 --repetitions 1",
    "repetitions-none": "measured --repetitions 1",
    "significance": "demo --significance 0.00001 --max-guesses 1",
    "another-name": "alone.json",
    "settings": "measured --settings gate.toml",
}
_SETTINGS = """epochs = 3

[check]
significance = 0.02
p_value = false
max_exposure = 9.5
median_exposure = 5
quantile_exposure = [0.75, 7.5]
max_guesses = 2
max_epsilon = 0.5
min_canaries = 18
repetitions = 8
"""


def test_a_verdict_in_every_form(call: Call) -> None:
    run = "demo"
    _lay_out(run)
    Path("summary.md").write_text("What an earlier step said.\n\n")
    files = ("verdict.json", "verdict.xml", "verdict.sarif", "summary.md")
    flags = ("--json", "--junit", "--sarif", "--summary")
    words = ("check", run, *(word for pair in zip(flags, files, strict=True) for word in pair))
    agree(f"rendering/check/{run}.txt", _transcript(words, call(*words), files))


@pytest.mark.parametrize("name", _JUDGED)
def test_thresholds(call: Call, name: str) -> None:
    words = ("check", *_JUDGED[name].split())
    if name == "another-name":
        shutil.copy(_DATA / "claimed" / "result.json", "alone.json")
    else:
        _lay_out(words[1].split("/")[0])
    Path("gate.toml").write_text(_SETTINGS)
    agree(f"rendering/thresholds/{name}.txt", _transcript(words, call(*words)))


# Reports.


@pytest.mark.parametrize("run", ["demo", "coins", "formats", "claimed"])
def test_reports(call: Call, run: str) -> None:
    _lay_out(run)
    words = ("report", run, "--format", "md")
    agree(f"rendering/report/{run}.txt", _transcript(words, call(*words), [f"{run}/report.md"]))


@pytest.mark.parametrize("run", ["coins", "formats", "claimed", "followed"])
def test_reports_as_csv(call: Call, run: str) -> None:
    _lay_out(run)
    assert call("report", run, "--format", "csv").code == 0
    agree(f"rendering/report/{run}.csv", Path(run, "report.csv").read_bytes())


def test_a_report_as_json(call: Call) -> None:
    _lay_out("coins")
    assert call("report", "coins", "--format", "json").code == 0
    made = _WORDS.sub("", _settled(Path("coins/report.json").read_text()))
    agree("rendering/report/coins.json", _TABLE.sub(lambda one: " ".join(one[0].split()), made))


@pytest.mark.parametrize("run", ["coins", "followed"])
def test_pages(call: Call, run: str) -> None:
    _lay_out(run)
    words = ("report", run, "--out", "out")
    seen = call(*words)
    assert {path.name for path in Path("out").glob("[!.]*")} == {"report.html", "report.md"}
    agree(f"rendering/pages/{run}.txt", _transcript(words, seen, ["out/report.html"]))


def test_a_report_with_secrets(call: Call) -> None:
    """What they add; the manifest is given, for there is none beside this result."""
    _lay_out("measured", "coins")
    forms = ("csv", "html", "json", "md")
    words = ("report", "measured", *(word for form in forms for word in ("--format", form)))
    assert call(*words, "--out", "bare", "--manifest", "coins/manifest.json").code == 0
    words += ("--out", "out", "--manifest", "coins/manifest.json", "--show-secrets")
    made = _transcript(words, call(*words))
    for form in forms:
        made += _added(Path("bare", f"report.{form}"), Path("out", f"report.{form}"))
    agree("rendering/report/with-secrets.txt", made)


def test_a_report_of_a_result_alone(call: Call) -> None:
    """What its page says otherwise; without scores its references are drawn from quantiles."""
    _lay_out("followed")
    shutil.copy("followed/result.json", "alone.json")
    assert call("report", "followed", "--format", "html").code == 0
    words = ("report", "alone.json", "--out", "out")
    made = _transcript(words, call(*words), ["out/report.md"])
    made += _added(Path("followed/report.html"), Path("out/report.html"))
    agree("rendering/report/alone.txt", made)


def _added(before: Path, after: Path) -> str:
    """The lines that one file has more than another, in order."""
    old, new = (_text(path).splitlines() for path in (before, after))
    lines = difflib.unified_diff(old, new, n=0, lineterm="")
    return "".join(f"{line}\n" for line in lines if line.startswith("+"))


_CARD = """---
license: mit # chosen long ago
model-index:
- name: someone's model
  results:
  - task:
      type: text-generation
    dataset:
      type: lambada
      name: LAMBADA
    metrics:
    - type: perplexity
      value: 12.5
tags: [small, tested]
---
# A model

Words that stay.
"""


def test_a_model_card(call: Call) -> None:
    """Into one with others' results, and twice: the first entry goes."""
    _lay_out("coins", "formats")
    Path("model").mkdir()
    Path("model", "README.md").write_text(_CARD)
    assert call("report", "coins", "--model-card", "model", "--force").code == 0
    words = ("report", "formats", "--format", "csv", "--model-card", "model", "--force")
    seen = call(*words)
    agree("rendering/cards/before.md", _transcript(words, seen, ["model/README.md"]))


def test_a_model_card_of_known_weights() -> None:
    _lay_out("demo")
    Path("model").mkdir()
    run = Result.read("demo")
    card = Path("model/README.md")
    save_card(card, card_with_results(card, run, run.model.weights_sha256))
    agree("rendering/cards/known-weights.md", _settled(_text(Path("model/README.md"))))


# Comparisons.

_COMPARED = {
    "same-canaries": "demo claimed",
    "same-coins": "coins measured",
    "three": "formats demo coins",
    "one-twice": "claimed claimed coins",
    "alone": "coins/result.json demo/result.json measured",
}


@pytest.mark.parametrize("name", _COMPARED)
def test_comparisons(call: Call, name: str) -> None:
    runs = _COMPARED[name].split()
    _lay_out(*(run.split("/")[0] for run in runs))
    forms = ["md", "csv", *(["html"] if name == "same-canaries" else [])]
    files = [f"compare/compare.{form}" for form in forms]
    words = ("compare", *runs, *(word for form in forms for word in ("--format", form)))
    made = _transcript(words, call(*words), files)
    agree(f"rendering/compare/{name}.txt", made)


# Bounds on epsilon from scores.

_BOUNDS = {
    "coins": "coins/scores.parquet --inclusion-probability 0.5",
    "coins-deltas-json": "coins/scores.parquet --inclusion-probability 0.5 --delta 1e-5 "
    "--delta 0.001 --claimed-epsilon 2 --json",
    "fixed-contradicted": "demo/scores.parquet --delta 0 --claimed-epsilon 0.1",
    "formats": "formats/scores.parquet --delta 0.01 --significance 0.2 --seed 7",
    "column": "demo/scores.parquet --score tokens --json",
    "csv": "scores.csv --lower-is-in --inclusion-probability 0.5 --repetitions 2 --delta 0 "
    "--delta 1e-3",
    "csv-contradicted": "scores.csv --lower-is-in --inclusion-probability 0.5 --delta 1e-5 "
    "--claimed-epsilon 0.25",
    "csv-consistent": "scores.csv --lower-is-in --inclusion-probability 0.5 --delta 1e-5 "
    "--claimed-epsilon 4",
    "csv-uncoined": "scores.csv --lower-is-in --claimed-epsilon 4 --delta 0",
    "csv-reversed": "scores.csv --inclusion-probability 0.5",
    "csv-other-columns": "other.csv --score gap --included member "
    "--inclusion-probability 0.1 --json",
    "csv-no-bound": "scores.csv --lower-is-in --inclusion-probability 0.9",
    "csv-few": "few.csv --inclusion-probability 0.5",
}


@pytest.mark.parametrize("name", _BOUNDS)
def test_bounds_of_scores(call: Call, name: str) -> None:
    words = ("epsilon", *_BOUNDS[name].split())
    if words[1].endswith(".parquet"):
        _lay_out(words[1].split("/")[0])
    _write_scores()
    agree(f"rendering/epsilon/{name}.txt", _transcript(words, call(*words)))


def _write_scores() -> None:
    """Losses that are lower for those that were in, by whole numbers alone."""
    rows = [(i % 2, (i * 37 % 101) - 70 * (i % 2)) for i in range(400)]
    lines = ["score,included", *(f"{score / 8},{i}" for i, score in rows)]
    Path("scores.csv").write_text("\n".join(lines) + "\n")
    other = ["gap,member,format", *(f"{-s},{int(i % 10 == 0)},f{i % 3}" for i, s in rows)]
    Path("other.csv").write_text("\n".join(other) + "\n")
    Path("few.csv").write_text("\n".join(lines[:3]) + "\n")


# What measuring commands print.


@pytest.mark.parametrize("run", ["coins", "formats"])
def test_tables(capsys: pytest.CaptureFixture[str], run: str) -> None:
    _lay_out(run)
    print_document(Result.read(run).document())
    seen = capsys.readouterr()
    agree(f"rendering/tables/{run}.txt", f"{seen.out}--- standard error\n{seen.err}")
