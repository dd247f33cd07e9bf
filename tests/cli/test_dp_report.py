"""`lmexposure dp-report`: how epsilons lie, and the list on request alone."""

import stat
from pathlib import Path

import pytest
from cli.conftest import Call

from lmexposure.records import DocumentPrivacy

EPSILONS = (0.25, 2.0, 0.5, 0.125)
REPORT = DocumentPrivacy(
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
    seen = call("dp-report", training)
    assert seen.code == 0
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
    assert call("dp-report", training, "--list", path).code == 0
    assert path.read_text(encoding="utf-8").splitlines() == [
        "unit,epsilon",
        '"bob, the second",2.0',
        "document 7,0.5",
        "ada,0.25",
        "zoë,0.125",
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_was_edited_is_refused_without_its_values(call: Call, training: Path) -> None:
    path = training / DocumentPrivacy.NAME
    path.write_text(path.read_text(encoding="utf-8").replace("ada", "eve"), encoding="utf-8")
    seen = call("dp-report", training)
    assert seen.code == 3
    assert "was edited or damaged" in seen.err
    assert "--document-norms" in seen.err
    assert "eve" not in seen.err


def test_without_norms_it_says_how_to_get_them(call: Call, tmp_path: Path) -> None:
    seen = call("dp-report", tmp_path)
    assert seen.code == 3
    assert "train again with --method dp-sgd --document-norms" in seen.err
