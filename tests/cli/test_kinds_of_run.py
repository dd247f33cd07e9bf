"""`lmexposure run` and `measure` with canaries whose texts are chosen."""

from pathlib import Path

import pytest
from cli.conftest import Call
from corpora import sentences

from lmexposure.canaries import Format, Material
from lmexposure.records import Result

MEASURE = ("--quick", "--references", 60, "--estimate", "sampled")
TRAIN = ("--layers", 1, "--units", 16, "--epochs", 1, "--seed", 1)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(sentences(400)) + "\n", encoding="utf-8")
    return path


def crafted(name: str, material: Material) -> tuple[Format, ...]:
    """Words that the corpus lacks, in place of those that a kind would choose."""
    words = [f"qx{number:04d}zw" for number in range(material.count)]
    return (Format.of_texts(name, words, kind=name),)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--kind", "uniform", "--kind", "new_token"),
            "the kind new_token is judged by coins alone: give --inclusion-probability 0.5 and "
            "--canaries, or use `lmexposure sweep`",
        ),
        (
            ("--kind", "unigram", "--inclusion-probability", 0.5, "--canaries", 20),
            "add --kind uniform, or use `lmexposure sweep`",
        ),
    ],
)
def test_kinds_that_one_training_cannot_judge_are_refused(
    call: Call, corpus: Path, flags: tuple[object, ...], message: str
) -> None:
    seen = call("run", corpus, "--out", "r", *flags)
    assert seen.code == 3
    assert message in " ".join(seen.err.split())
    assert not Path("r").exists()


def test_a_run_judges_a_kind_by_its_coins(
    call: Call, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmexposure.audit.crafting.craft", crafted)
    coins = ("--inclusion-probability", 0.5, "--canaries", 30, "--repetitions", 1)
    seen = call(
        *("run", corpus, "--out", "r", "--kind", "uniform", "--kind", "unigram"),
        *(*coins, "--controls", 4, "--format", "pin", *TRAIN, *MEASURE),
    )
    assert seen.code in (0, 1, 4), seen.err
    (row,) = Result.read(Path("r/result.json")).kinds
    assert (row.group, row.canaries + row.held_out) == ("unigram/x1", 30)
    assert "Other kinds of canaries" in seen.out
    assert "They have neither rank nor exposure" in " ".join(seen.out.split())
    assert "Other kinds of canaries" in Path("r/report.html").read_text(encoding="utf-8")
    again = call("measure", "r/model", "r/manifest.json", "--out", "m", *MEASURE)
    assert again.code in (0, 1, 4), again.err
    assert "unigram/x1" in again.out
