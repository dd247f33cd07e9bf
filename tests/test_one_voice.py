"""The same quantity is written the same in all renderings, and by nobody but the one voice."""

import ast
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from made_results import canary, class_row, exact, made, options, privacy, sampled, with_test

from lmexposure import _style
from lmexposure.cli.console import print_document
from lmexposure.core import Thresholds, as_markdown, verdict_summary, verdict_text
from lmexposure.core.render import as_page
from lmexposure.studies import Result

PACKAGE = Path(_style.__file__).parent
ROOMS = ("cli", "studies/exposure")
# What is wrong in a file is said with its own digits.
RECORDS = ("run_record.py", "scores.py")
# Durations, and numbers that a machine reads back; of charts the coordinates alone.
NOT_FOR_PEOPLE = ("studies/exposure/model_card.py",)
COORDINATES = "_rounded"
# How a missing value was written before there was one way.
OTHER_WORDS = {"?", "missing", "not known", "no end", "no bound", "not tried", "none given"}


def _result() -> Result:
    """Ten capped canaries with a tiny p-value, ten of which one has no exposure, and controls."""
    often = [canary(i, sampled(13.288, 11.4, 29.9, capped=True), repetitions=16) for i in range(10)]
    once = [canary(i, exact(2.5) if i else exact(None)) for i in range(10)]
    null = [canary(i, exact(1.0), repetitions=0, guesses=None) for i in range(16)]
    rows = [class_row(null, p_value=0.5), class_row(once), class_row(often)]
    rows[2] = with_test(rows[2], p_value=0.00005, permutations=99_999)
    found = privacy(1.23456, 3.45678, claimed=8.0, canaries=10)
    assert found.claim is not None
    claim = replace(found.claim, claimed_delta=1e-5)
    return made(
        [*null, *once, *often],
        summary=rows,
        improved=None,
        settings=options(claimed_epsilon=8.0, delta=1e-5),
        privacy=replace(found, claim=claim),
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    path = tmp_path_factory.mktemp("voice") / "result.json"
    _result().write(path)
    return Result.read(path)


@pytest.fixture
def shown(run: Result, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Each rendering, without what is mark-up in it."""
    told = run.told(Thresholds(median_exposure=5.0, max_epsilon=2.0))
    assert told.verdict is not None
    print_document(run.document())
    page = as_page(told).split("<main", 1)[1].split("</main>")[0]
    return {
        "terminal": capsys.readouterr().out,
        "markdown": as_markdown(told),
        "page": unescape(re.sub(r"<[^>]+>", " ", page)),
        "gate": verdict_text(told.verdict, run.provenance, full=True),
        "summary": verdict_summary(told.verdict, run.provenance),
    }


@pytest.mark.parametrize(
    ("quantity", "written", "where"),
    [
        ("a median that is a lower bound", "≥ 13.29", ("terminal", "markdown", "page")),
        ("the same in a sentence", "13.29 bits", ("gate", "summary", "page")),
        ("a tiny p-value", "5.0e-05", ("terminal", "markdown", "page", "gate", "summary")),
        ("a bound on epsilon", "1.235", ("terminal", "markdown", "page", "gate", "summary")),
        ("what it could be", "3.457", ("terminal", "markdown", "page", "gate", "summary")),
        (
            "a claim",
            "epsilon 8 at delta 1e-05",
            ("terminal", "markdown", "page", "gate", "summary"),
        ),
        ("a missing value", "n/a", ("terminal", "markdown", "page")),
        ("a class", "16×", ("terminal", "markdown", "page")),
        ("a class in a sentence", "inserted 16 times", ("gate", "summary", "markdown", "page")),
        ("the size of the space", "29.9 bits", ("terminal", "markdown", "page")),
        ("a p-value's label", "p (chance)", ("terminal", "markdown", "page")),
        ("a ceiling's label", "max attainable", ("terminal", "markdown", "page")),
        ("the median's label", "median", ("terminal", "markdown", "page")),
        ("the class's label", "repetitions", ("terminal", "markdown", "page")),
        ("those held out", "held out", ("terminal", "page")),
    ],
)
def test_a_quantity_is_written_in_one_way(
    shown: dict[str, str], quantity: str, written: str, where: tuple[str, ...]
) -> None:
    assert {name for name in where if written in shown[name]} == set(where), quantity


def test_nothing_is_written_in_an_older_way(shown: dict[str, str]) -> None:
    older = re.compile(
        r"< 0\.0001| \? |\bno end\b|certified|at most:|p against guessing|\bleft out,"
        r"|could have shown,|13\.3 bits|\b1\.23 nats|(?:\| |  )(?:missing|none|not known)(?: \||  )"
    )
    found = {name: older.findall(text) for name, text in shown.items()}
    assert {name: words for name, words in found.items() if words} == {}


def _sources() -> list[Path]:
    every = [path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]
    return [path for path in every if path.name not in RECORDS]


def _told_otherwise(path: Path) -> list[int]:
    """Lines of a module where an f-string rounds a number, or a literal is a missing value."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path.as_posix().endswith("core/charts/chart.py"):
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        tree.body.remove(next(node for node in functions if node.name == COORDINATES))
    words = {_style.MISSING, *OTHER_WORDS} - {"missing"}
    lines = []
    for node in ast.walk(tree):
        match node:
            case ast.FormattedValue(format_spec=ast.JoinedStr() as spec):
                if re.search(r"[efg%]['\"]$", ast.unparse(spec)):
                    lines.append(node.lineno)
            case ast.Constant(value=str(word)) if word in words:
                lines.append(node.lineno)
    return lines


def test_no_other_module_formats_a_number_or_a_missing_value() -> None:
    """What rounds, or says that a number is missing, is `_style`."""
    lines = {path.relative_to(PACKAGE).as_posix(): _told_otherwise(path) for path in _sources()}
    assert {name: told for name, told in lines.items() if told and name not in NOT_FOR_PEOPLE} == {}
    assert set(NOT_FOR_PEOPLE) <= set(lines)


def test_another_voice_is_heard(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('a = f"{b:.2f}"\nc = "n/a"\nd = f"{b:>5} of {b}"\ne = "no end"\n')
    assert sorted(_told_otherwise(path)) == [1, 2, 4]


def test_no_cell_of_a_page_is_missing_in_other_words() -> None:
    words = "|".join(map(re.escape, sorted(OTHER_WORDS | {"none"})))
    for path in sorted(PACKAGE.rglob("*.jinja")):
        cells = re.findall(rf"<td[^>]*>(?:{words})</td>", path.read_text(encoding="utf-8"))
        assert cells == [], path
