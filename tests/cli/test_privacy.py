"""`epsilon`, `dp-check` and `dp-report`; what they print is in the golden run."""

import csv
import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli.conftest import Call
from corpora import write_corpus

from lmexposure._record import plain
from lmexposure.models import dp_sgd
from lmexposure.studies import DocumentPrivacy


@pytest.fixture
def scores() -> Path:
    """600 scores of another tool; fair coins, and a third of those in memorised."""
    rng = np.random.default_rng(5)
    coins = rng.random(600) < 0.5
    scores = rng.normal(size=600) + 4 * (coins & (rng.random(600) < 0.3))
    lines = [f"{s},{int(c)}" for s, c in zip(scores, coins, strict=True)]
    path = Path("scores.csv")
    path.write_text("\n".join(["score,included", *lines]) + "\n")
    return path


@pytest.mark.slow
def test_the_command_says_what_the_library_says(call: Call, scores: Path) -> None:
    import lmexposure as lx

    coins = ("--inclusion-probability", 0.5, "--delta", 1e-5, "--claimed-epsilon", 3)
    seen = call("epsilon", scores, *coins, "--json")
    columns = np.loadtxt(scores, delimiter=",", skiprows=1)
    found = lx.epsilon(
        columns[:, 0], columns[:, 1], inclusion_probability=0.5, deltas=(1e-5,), claim=3
    )
    assert json.loads(seen.out) == plain(found)


def test_coins_that_were_never_tossed_decide_no_claim(call: Call, scores: Path) -> None:
    claim = ("--delta", 0, "--claimed-epsilon", 1)
    seen = call("epsilon", scores, "--inclusion-probability", 0.01, *claim)
    assert seen.code == 3
    assert "no bound: 325 of 600 candidates went in, which an inclusion probability" in seen.out
    assert "not decided: no class of canaries has a bound" in seen.out


class Asking(torch.optim.AdamW):
    """Moves by something that a copy of the weights does not have."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            p.grad *= p.scale
        super().step()


def asking(model: Any, settings: Any) -> Any:
    weights = list(model.parameters())
    for p in weights:
        p.scale = 0.5
    return Asking(weights, lr=0.1)


class Clean(torch.optim.AdamW):
    """Adds the sum without its noise to the noisy one."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            p.grad += p.summed_grad.view_as(p)
        super().step()


def cleaned(model: Any, settings: Any) -> Any:
    return Clean(model.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("optimizer", "code", "said"),
    [
        pytest.param(
            None, 0, ["a pass does not cover what is named above"], marks=pytest.mark.slow
        ),
        (
            cleaned,
            1,
            [
                "WRONG  update: documents get past the noise into",
                "WRONG: this is not the training that its epsilon is for",
            ],
        ),
        (
            asking,
            2,
            [
                "not seen  update: Asking cannot be replayed on the noisy gradient",
                "not known: some of it could not be looked at",
            ],
        ),
    ],
)
def test_a_training_that_is_right_wrong_or_not_seen(
    call: Call, monkeypatch: pytest.MonkeyPatch, optimizer: Any, code: int, said: list[str]
) -> None:
    corpus = write_corpus(Path("corpus.txt"), 120)
    if optimizer is not None:
        monkeypatch.setattr(dp_sgd, "new_optimizer", optimizer)
    shape = ("--set", "layers=1", "--set", "units=8", "--set", "block_size=16")
    seen = call("dp-check", corpus, *shape, "--epsilon", 8, "--delta", "1e-3")
    assert seen.code == code, seen
    assert [line for line in said if line not in seen.out] == []
    assert ("WRONG" in seen.out) == (code == 1)


REPORT = DocumentPrivacy.now(
    unit="user",
    claimed=4.0,
    delta=1e-4,
    moments=3,
    names=("ada", "bob, the second", "document 7", "zoë"),
    epsilons=(0.25, 2.0, 0.5, 0.125),
)


@pytest.fixture
def listed() -> Path:
    """The list of a training whose directory is this one."""
    REPORT.save(Path())
    return Path("list.csv")


def test_the_distribution_is_shown_and_no_unit(call: Call, listed: Path) -> None:
    seen = call.done("dp-report", ".")
    rows = dict(line.rsplit(maxsplit=1) for line in seen.out.splitlines() if line[-1:].isdigit())
    assert (rows["least"], rows["median"], rows["largest"]) == ("0.125", "0.500", "2.000")
    assert rows["claimed for all"] == "4.000"
    assert not any(name in seen.out for name in REPORT.names)
    assert "for the owner of the corpus alone" in seen.out
    assert not list(Path().glob("*.csv"))


def test_the_list_has_the_least_private_first_and_is_for_its_owner(
    call: Call, listed: Path
) -> None:
    call.done("dp-report", ".", "--list", listed)
    lines = ["unit,epsilon", '"bob, the second",2.0', "document 7,0.5", "ada,0.25", "zoë,0.125"]
    assert listed.read_text(encoding="utf-8").splitlines() == lines
    assert stat.S_IMODE(listed.stat().st_mode) == 0o600


def test_a_name_is_no_formula_and_moves_no_terminal(call: Call) -> None:
    names = (
        *('=HYPERLINK("http://evil","x")', "-1+1", " @SUM(1)", "\t=1+1", "+a", "\x1b]0;t\x07b"),
        *("\u202ed", "plain - name"),
    )
    REPORT.model_copy(
        update={"names": names, "epsilons": tuple(float(n) for n in range(8, 0, -1))}
    ).save(Path())
    path = Path("list.csv")
    call.done("dp-report", ".", "--list", path)
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


def test_a_list_takes_the_place_of_no_other_file(call: Call, listed: Path) -> None:
    for _ in range(2):
        call.done("dp-report", ".", "--list", listed)
    listed.write_text("mine\n", encoding="utf-8")
    seen = call("dp-report", ".", "--list", listed)
    assert (seen.code, listed.read_text(encoding="utf-8")) == (3, "mine\n")
    assert "list.csv is there already, and lmexposure did not write it; choose another" in seen.err


def test_what_was_edited_is_refused_without_its_values(call: Call, listed: Path) -> None:
    path = Path(DocumentPrivacy.NAME)
    path.write_text(path.read_text(encoding="utf-8").replace("ada", "eve"), encoding="utf-8")
    seen = call("dp-report", ".")
    seen.refused("was edited or damaged")
    assert "with document norms" in seen.err
    assert "eve" not in seen.err
