"""What a study says on a terminal fits a screen, decision first."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_results import changed, clean, options
from made_studies import MADE
from typer.testing import CliRunner

from lmexposure._style import outcome_word
from lmexposure.cli.app import app
from lmexposure.cli.commands import COMMANDS
from lmexposure.cli.console import print_screen, show_in, show_study
from lmexposure.core import judged, open_study
from lmexposure.errors import SettingsError

LINES, COLUMNS, HELP_LINES = 25, 100, 45


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5, 6])
def test_a_study_fits_a_screen(kind: str, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    study = MADE[kind](seed)
    print_screen(study.told(), Path("out/report.html"))
    lines = capsys.readouterr().out.rstrip("\n").split("\n")
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    verdict = judged(study)
    assert lines[0].startswith(f"{outcome_word(verdict.outcome).upper()} ")
    assert " ".join(" ".join(lines[2:8]).split()).startswith(verdict.finding[:60])
    assert "report   out/report.html" in lines


_RUN = Path(__file__).parents[1] / "golden" / "data" / "shown" / "demo"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    yield shutil.copytree(_RUN, tmp_path / "demo")
    show_in(full=False, quiet=False)


def test_a_study_is_shown_on_one_screen_by_its_verdict_or_in_full(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {}
    for manner in ("screen", "quiet", "full"):
        show_in(full=manner == "full", quiet=manner == "quiet")
        show_study(run)
        shown[manner] = capsys.readouterr().out.rstrip("\n").split("\n")
    verdict = judged(open_study(run)).sentence
    assert shown["quiet"] == [verdict]
    assert verdict in shown["full"]
    assert any(line.startswith("Exposure in bits") for line in shown["full"])
    rows = [line.split() for line in shown["screen"] if line.startswith("random_number")]
    assert [(row[1], row[-1]) for row in rows] == [("16×", "yes"), ("1×", "no"), ("never", "0/32")]


def test_what_the_finding_says_is_not_said_twice(capsys: pytest.CaptureFixture[str]) -> None:
    unseen = changed(clean(witness=None), settings=options(effort="quick"))
    print_screen(unseen.told(), None)
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("othing shows that this model saw the canaries") == 1
    assert "trained?" not in out
    assert "First measure again" not in out


def test_one_manner_at_a_time() -> None:
    with pytest.raises(SettingsError, match="--full prints every table"):
        show_in(full=True, quiet=True)


def test_a_screen_says_how_much_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    study = MADE["result"](3)
    document = study.told()
    print_screen(document, None)
    out = capsys.readouterr().out
    verdict = document.verdict
    assert document.tested is not None
    assert verdict is not None
    rows = document.tested(verdict).rows
    shown = sum(line.startswith(tuple(row.format for row in rows)) for line in out.splitlines())
    assert shown < len(rows)
    assert f"{len(rows) - shown} more in the report" in out


@pytest.mark.parametrize("name", [row.name for row in COMMANDS])
def test_a_help_fits_a_tall_screen(name: str) -> None:
    shown = CliRunner().invoke(app, [*name.split(), "--help"])
    assert shown.exit_code == 0
    assert len(shown.output.rstrip("\n").split("\n")) <= HELP_LINES
