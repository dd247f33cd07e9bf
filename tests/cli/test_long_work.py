"""What long work says where there is no terminal, and how Ctrl-C ends it."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from corpora import write_corpus
from forks import start
from known import known

from lmexposure._forecast import Phase, Remaining
from lmexposure._style import in_words
from lmexposure.audit.workload import Watcher
from lmexposure.cli import entry, work
from lmexposure.cli.console import Bars, LongWork, Stopped, long_work

SEVERAL = [
    Phase(what="scoring a", kind="scoring", work=1_000.0),
    Phase(what="scoring b", kind="scoring", work=3_000.0),
    Phase(what="a: drawing", kind="stepping", work=100.0, pace=0.1),
    Phase(what="a: best-first", kind="stepping", work=50.0, most=400.0, pace=0.1),
    Phase(what="estimating a", kind="statistics", work=2.0, pace=1.0),
]


def test_what_is_left_is_that_of_all_phases_at_the_paces_that_were_seen() -> None:
    remaining = Remaining(SEVERAL, 100.0)
    assert remaining.left(100.0) is None  # how long a text takes is not known
    remaining.update("scoring a", 20, 100, 102.0)  # a hundredth of a second for a unit of work
    assert known(remaining.left(102.0)) == pytest.approx(8 + 30 + 10 + 5 + 2)
    remaining.update("scoring a", 100, 100, 110.0)
    remaining.update("scoring b", 300, 300, 140.0)
    remaining.update("not planned", 1, 2, 140.0)
    remaining.update("a: drawing", 50, 100, 150.0)  # twice as slow as the trial said
    assert known(remaining.left(150.0)) == pytest.approx(10 + 10 + 2)
    remaining.update("a: best-first", 10, 400, 172.0)
    assert known(remaining.left(172.0)) == pytest.approx(2.0)  # longer than was expected
    remaining.update("estimating a", 1, 1, 175.0)
    assert remaining.left(175.0) == 0.0


def test_a_search_that_says_what_it_expects_is_believed() -> None:
    """What is said ends early is so by its budget, until its progress tells of fewer steps."""
    remaining = Remaining([replace(SEVERAL[3], work=300.0), SEVERAL[4]], 0.0)
    remaining.update("a: best-first", 0, 400, 0.0)
    assert remaining.left(0.0) == pytest.approx(30 + 2)
    remaining.update("a: best-first", 0, 70, 1.0)
    assert remaining.left(1.0) == pytest.approx(7 - 1 + 2)


def test_a_pace_that_is_not_known_follows_from_another_kind() -> None:
    training = Phase(what="training", kind="training", work=500.0, before=0.5)
    remaining = Remaining([training, Phase(what="s", kind="scoring", work=1_000.0)], 0.0)
    assert remaining.left(0.0) is None
    remaining.update("training", 60, 100, 10.0)  # 60 of 100 steps, 50 of which were done before
    assert known(remaining.left(10.0)) == pytest.approx(40 + 1_000 * 0.1 / 4)


def test_those_who_do_it_know_better() -> None:
    """What they tell is counted down while the phase is under way, and not before."""
    remaining = Remaining(SEVERAL[2:], 0.0)
    remaining.expect("a: best-first", 40.0, 0.0)
    remaining.update("a: drawing", 50, 100, 5.0)
    assert remaining.left(5.0) == pytest.approx(5 + 40 + 2)
    remaining.update("a: best-first", 0, 400, 10.0)
    assert remaining.left(20.0) == pytest.approx(40 - 15 + 2)  # begun when drawing was seen last
    remaining.expect("a: best-first", 60.0, 20.0)
    assert remaining.left(30.0) == pytest.approx(60 - 10 + 2)
    assert remaining.left(99.0) == pytest.approx(2.0)


def test_what_is_told_at_once_was_kept_and_says_no_pace() -> None:
    remaining = Remaining(SEVERAL[1:2], 0.0)
    remaining.update("scoring b", 150, 300, 0.1)
    remaining.update("scoring b", 200, 300, 10.1)  # 50 in ten seconds
    assert known(remaining.left(10.1)) == pytest.approx(20.0)


def test_a_limit_in_seconds_bounds_its_phase() -> None:
    phases = [Phase(what="training", kind="training", work=500.0, seconds=30.0)]
    remaining = Remaining(phases, 0.0)
    remaining.update("training", 1, 100, 10.0)
    assert known(remaining.left(10.0)) == pytest.approx(20.0)
    ahead = Phase(what="search", kind="stepping", work=900.0, pace=1.0, seconds=4.0)
    assert Remaining([*phases, ahead], 0.0).left(0.0) is None
    assert Remaining([ahead, SEVERAL[4]], 0.0).left(0.0) == pytest.approx(4 + 2)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (8.8, "9 s"), (22, "20 s"), (89, "90 s"), (91, "2 min"), (5390, "90 min")],
)
def test_durations_are_round(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


PHASES = [
    Phase(what="scoring a", kind="scoring", work=100.0),
    Phase(what="a: search", kind="stepping", work=50.0, most=5_000.0, pace=1.0),
]


class Lines(Bars):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def lines() -> Lines:
    return Lines()


def test_it_says_what_it_does_then_a_line_a_minute_then_its_end(lines: Lines) -> None:
    clock = Clock()
    work = LongWork(lines, clock)
    assert isinstance(work, Watcher)
    work.plan("measuring: 100 texts", PHASES, keeps=True)
    for clock.now in range(1, 131):
        work("scoring a", int(clock.now), 130, "a note")
    work.finish()
    assert lines.lines == [
        "measuring: 100 texts; about 3 min",
        "scoring a: 60 of 130 (a note); about 2 min left",
        "scoring a: 120 of 130 (a note); about 60 s left",
        "done in 2 min",
    ]


@pytest.mark.parametrize(
    ("planned", "seconds", "done", "said"),
    [
        (PHASES[:1], 0.9, 100, []),  # short work says nothing
        ([], 61.0, 50, ["scoring a: 50 of 100"]),  # a line a minute also without a plan
    ],
)
def test_what_is_short_or_not_planned(
    lines: Lines, planned: list[Phase], seconds: float, done: int, said: list[str]
) -> None:
    clock = Clock()
    work = LongWork(lines, clock)
    work.plan("measuring: 100 texts", planned, keeps=True)
    clock.now = seconds
    work("scoring a", done, 100)
    work.finish()
    assert lines.lines == said


def test_long_work_whose_pace_is_known_is_announced_before_it_begins(lines: Lines) -> None:
    long, short = (Phase(what="a", kind="scoring", work=w, pace=1.0) for w in (40.0, 4.0))
    LongWork(lines, Clock()).plan("measuring", [short], keeps=True)
    assert lines.lines == []
    LongWork(lines, Clock()).plan("measuring", [long], keeps=True)
    assert lines.lines == ["measuring; about 40 s"]


def test_how_long_it_took_is_said_whatever_came_last(lines: Lines) -> None:
    """A short piece of work that was planned later does not hide a long one."""
    clock = Clock()
    work = LongWork(lines, clock)
    work.plan("measuring", [Phase(what="a", kind="scoring", work=9.0, pace=1.0)], keeps=True)
    clock.now = 5.0
    work("a", 5, 9)
    work.plan("witness", [Phase(what="witness", kind="scoring", work=9.0)], keeps=False)
    work.finish()
    assert lines.lines[-1].startswith("done in")


def test_the_first_ctrl_c_ends_a_search_and_the_second_stops(lines: Lines) -> None:
    work = LongWork(lines)
    work.plan("measuring", PHASES, keeps=True)
    assert not work.end_asked()
    work.pressed()
    assert work.end_asked()
    assert "keeps what it has proven" in lines.lines[0]
    with pytest.raises(Stopped, match="the same command goes on from there"):
        work.pressed()


def test_sigterm_stops_at_once() -> None:
    """A scheduler sends it once, and SIGKILL soon after."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        entry._end_as_by_ctrl_c()
        theirs = signal.getsignal(signal.SIGTERM)
        with pytest.raises(Stopped, match="the same command goes on from there"), long_work() as w:
            w.plan("measuring", PHASES, keeps=True)
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is theirs
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("planned", [[], [Phase(what="training", kind="training", work=9.0)]])
@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (True, "the same command goes on from the last checkpoint"),
        (False, "nothing is kept, and the same command begins anew"),
    ],
)
def test_ctrl_c_in_training_stops_at_once(
    lines: Lines, planned: list[Phase], kept: bool, said: str
) -> None:
    work = LongWork(lines, kept=kept)
    work.plan("training", planned, keeps=False)
    work("training", 3, 9)
    with pytest.raises(Stopped, match=said):
        work.pressed()


def test_ctrl_c_is_given_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped), long_work():
        assert signal.getsignal(signal.SIGINT) is not before
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)  # the signal comes at once
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_stays_ignored_where_it_was_and_untouched_in_a_thread() -> None:
    def watched() -> None:
        with long_work():
            seen.append(signal.getsignal(signal.SIGINT))

    seen: list[object] = []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        watched()
    finally:
        signal.signal(signal.SIGINT, before)
    thread = threading.Thread(target=watched)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_IGN, before]


PLAN = ["--canaries", "2", "--repetitions", "1,8", "--controls", "2", "--set", "layers=1"]
PLAN += ["--seed", "0", "--epochs", "200", "--set", "patience=200", "--set", "max_seconds=2"]
# More than it can prove in a minute, so that only Ctrl-C ends it.
SEARCH = [
    "--set",
    "references=300",
    "--set",
    "revealed=0",
    "--set",
    "draws=200",
    "--estimate",
    "exact",
]
SEARCH += ["--set", "guesses=10000", "--set", "budget_steps=90000000"]


def begin(words: list[str]) -> None:
    """The command, but for the report at its end, which takes as long as all the rest."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    work.show_study = lambda *_, **__: None  # type: ignore[attr-defined]
    sys.argv = ["lmexposure", *words]
    entry.main()


def pressed(
    corpus: Path, out: Path, ready: Callable[[], bool], by: int = signal.SIGINT
) -> tuple[int | None, str]:
    """`lmexposure run`, ended when `ready` says so: exit code and standard error."""
    said = corpus.with_name("said.txt")
    said.unlink(missing_ok=True)
    words = ["run", str(corpus), "--out", str(out), *PLAN, *SEARCH]
    process = start(begin, words, said=said, environment={"OMP_NUM_THREADS": "1"})
    while not ready():
        assert process.is_alive(), said.read_text()
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, by)
    process.join(200)
    process.kill()
    return process.exitcode, said.read_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ctrl_c_stops_a_training_and_ends_a_search_with_a_result(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.txt", 300)
    out = tmp_path / "run"
    code, err = pressed(corpus, out, (out / "checkpoint.pt").exists, signal.SIGTERM)
    assert code == 130
    assert "error: stopped; the same command goes on from the last checkpoint" in err
    code, err = pressed(corpus, out, lambda: any((out / ".work").glob("random_number.npz-*")))
    assert (code, "ending: the search stops here" in err) == (0, True), err
    result = json.loads((out / "result.json").read_text())
    assert any("Ctrl-C ended the" in line for line in result["warnings"])
    assert result["formats"][0]["interrupted"]
    assert list((out / ".work").glob("random_number.npz-*"))  # not scored again
