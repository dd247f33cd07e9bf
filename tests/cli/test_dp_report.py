"""`lmexposure dp-report`: how epsilons lie, and the list on request alone."""

import csv
import stat
from pathlib import Path

import pytest
from cli.conftest import Call

from lmexposure.studies import DocumentPrivacy

EPSILONS = (0.25, 2.0, 0.5, 0.125)
REPORT = DocumentPrivacy.now(
    unit="user",
    claimed=4.0,
    delta=1e-4,
    moments=3,
    names=("ada", "bob, the second", "document 7", "zoë"),
    epsilons=EPSILONS,
)


@pytest.fixture
def training(tmp_path: Path) -> Path:
    REPORT.save(tmp_path)
    return tmp_path


def test_the_distribution_is_shown_and_no_unit(call: Call, training: Path) -> None:
    seen = call.done("dp-report", training)
    rows = dict(line.rsplit(maxsplit=1) for line in seen.out.splitlines() if line[-1:].isdigit())
    assert (rows["least"], rows["median"], rows["largest"]) == ("0.125", "0.500", "2.000")
    assert rows["claimed for all"] == "4.000"
    assert not any(name in seen.out for name in REPORT.names)
    assert "for the owner of the corpus alone" in seen.out
    assert not list(training.glob("*.csv"))


def test_the_list_has_the_least_private_first_and_is_for_its_owner(
    call: Call, training: Path
) -> None:
    path = training / "list.csv"
    call.done("dp-report", training, "--list", path)
    assert path.read_text(encoding="utf-8").splitlines() == [
        "unit,epsilon",
        '"bob, the second",2.0',
        "document 7,0.5",
        "ada,0.25",
        "zoë,0.125",
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_name_is_no_formula_and_moves_no_terminal(call: Call, tmp_path: Path) -> None:
    names = (
        *('=HYPERLINK("http://evil","x")', "-1+1", " @SUM(1)", "\t=1+1", "+a", "\x1b]0;t\x07b"),
        *("\u202ed", "plain - name"),
    )
    REPORT.model_copy(
        update={"names": names, "epsilons": tuple(float(n) for n in range(8, 0, -1))}
    ).save(tmp_path)
    path = tmp_path / "list.csv"
    call.done("dp-report", tmp_path, "--list", path)
    with open(path, encoding="utf-8", newline="") as file:
        written = [row[0] for row in csv.reader(file)][1:]
    assert written == [
        '\'=HYPERLINK("http://evil","x")',
        "'-1+1",
        "' @SUM(1)",
        r"\t=1+1",
        "'+a",
        r"\x1b]0;t\x07b",
        r"\u202ed",
        "plain - name",
    ]


def test_a_list_takes_the_place_of_no_other_file(call: Call, training: Path) -> None:
    path = training / "list.csv"
    for _ in range(2):
        call.done("dp-report", training, "--list", path)
    path.write_text("mine\n", encoding="utf-8")
    seen = call("dp-report", training, "--list", path)
    assert (seen.code, path.read_text(encoding="utf-8")) == (3, "mine\n")
    assert "list.csv is there already, and lmexposure did not write it; choose another" in seen.err


def test_what_was_edited_is_refused_without_its_values(call: Call, training: Path) -> None:
    path = training / DocumentPrivacy.NAME
    path.write_text(path.read_text(encoding="utf-8").replace("ada", "eve"), encoding="utf-8")
    seen = call("dp-report", training)
    seen.refused("was edited or damaged")
    assert "with document norms" in seen.err
    assert "eve" not in seen.err
