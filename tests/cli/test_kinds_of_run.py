"""`lmexposure run` and `measure` with canaries whose texts are chosen."""

from pathlib import Path

import pytest
from cli.conftest import Call
from corpora import sentences

from lmexposure.canaries import Manifest
from lmexposure.studies import Result

MEASURE = ("--quick", "--references", 60, "--estimate", "sampled")
TRAIN = ("--set", "layers=1", "--set", "units=16", "--epochs", 1, "--seed", 1)
COINS = ("--inclusion-probability", 0.5, "--canaries", 30, "--repetitions", 1, "--controls", 4)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(sentences(400)) + "\n", encoding="utf-8")
    Path("texts.txt").write_text("\n".join(f"qx{number:04d}zw" for number in range(40)))
    return path


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--kind", "uniform", "--kind", "new_token"),
            "the kind new_token is judged by coins alone: give --inclusion-probability 0.5 and "
            "--canaries, or use a sweep",
        ),
        (("--texts", "texts.txt"), "the kind texts is judged by coins alone: give --inclusion"),
        (
            ("--kind", "texts", "--texts", "texts.txt", *COINS),
            "lacks 'uniform', whose fills carry the ranks and exposures of a run; add it, or",
        ),
        (("--texts", "none.txt", *COINS), "cannot read none.txt: No such file or directory; give"),
        (("--texts", ".", *COINS), ". is a directory; give a text file, one text a line"),
    ],
)
def test_kinds_that_one_training_cannot_judge_are_refused(
    call: Call, corpus: Path, flags: tuple[object, ...], message: str
) -> None:
    call("run", corpus, "--out", "r", *flags).refused(message)
    assert not Path("r/manifest.json").exists()


@pytest.mark.slow
def test_a_run_judges_the_texts_of_a_file_by_their_coins(call: Call, corpus: Path) -> None:
    run = ("run", corpus, "--out", "r", "--texts", "texts.txt", *COINS, "--format", "pin")
    seen = call(*run, *TRAIN, *MEASURE)
    assert seen.code in (0, 1, 4), seen.err
    result = Result.read(Path("r/result.json"))
    (row,) = result.kinds
    assert (row.group, row.canaries + row.held_out) == ("texts/x1", 30)
    assert "Other kinds of canaries" in seen.out
    assert "They have neither rank nor exposure" in " ".join(seen.out.split())
    assert "Other kinds of canaries" in Path("r/report.html").read_text(encoding="utf-8")
    again = call("measure", "r/model", "r/manifest.json", "--out", "m", *MEASURE)
    assert again.code in (0, 1, 4), again.err
    assert "texts/x1" in again.out
    # The file is a part of the run: with another one it does not go on.
    assert "SHA-256" in Manifest.read("r/manifest.json").formats["texts"].source
    with Path("texts.txt").open("a") as file:
        file.write("\nanother text")
    changed = call(*run, *TRAIN, *MEASURE)
    changed.refused("--texts texts.txt has changed since canaries were chosen from it; put")
    assert Result.read(Path("r/result.json")) == result
