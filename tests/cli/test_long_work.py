"""What long work says where there is no terminal, and how Ctrl-C ends it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from corpora import write_corpus

from lmexposure.audit import (
    Phase,
)
from lmexposure.audit.workload import (
    Watcher,
)
from lmexposure.cli.console import Bars
from lmexposure.cli.long_work import LongWork, Stopped, long_work

PHASES = [
    Phase(what="scoring a", kind="scoring", work=100.0),
    Phase(what="a: search", kind="stepping", work=50.0, most=5_000.0, pace=1.0),
]


class Lines(Bars):
    def __init__(self) -> None:
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
        "measuring: 100 texts; about 3 min, at most 86 min",
        "scoring a: 60 of 130 (a note); about 2 min left",
        "scoring a: 120 of 130 (a note); about 60 s left",
        "done in 2 min",
    ]


def test_short_work_says_nothing(lines: Lines) -> None:
    clock = Clock()
    work = LongWork(lines, clock)
    work.plan("measuring: 100 texts", PHASES, keeps=True)
    clock.now = 0.9
    work("scoring a", 100, 100)
    work.finish()
    assert lines.lines == []


def test_work_without_a_plan_still_says_a_line_a_minute(lines: Lines) -> None:
    clock = Clock()
    work = LongWork(lines, clock)
    clock.now = 61.0
    work("scoring a", 1, 2)
    assert lines.lines == ["scoring a: 1 of 2"]


def test_the_first_ctrl_c_ends_a_search_and_the_second_stops(lines: Lines) -> None:
    work = LongWork(lines)
    work.plan("measuring", PHASES, keeps=True)
    assert not work.end_asked()
    work.pressed()
    assert work.end_asked()
    assert "what it has proven is kept" in lines.lines[0]
    with pytest.raises(Stopped, match="the same command goes on from there"):
        work.pressed()


def test_ctrl_c_in_training_stops_at_once(lines: Lines) -> None:
    work = LongWork(lines)
    work.plan("training", [Phase(what="training", kind="training", work=9.0)], keeps=False)
    work("training", 3, 9)
    with pytest.raises(Stopped, match="the same command goes on from the last checkpoint"):
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


PLAN = ["--canaries", "2", "--repetitions", "1,8", "--controls", "2", "--layers", "1"]
PLAN += ["--seed", "0", "--epochs", "200", "--patience", "200", "--max-seconds", "2"]
# More than it can prove in a minute, so that only Ctrl-C ends it.
SEARCH = ["--references", "300", "--revealed", "0", "--draws", "200", "--guesses", "10000"]
SEARCH += ["--budget-steps", "90000000", "--method", "exact"]


# The command, but for the report at its end, which takes as long as all the rest.
_WITHOUT_REPORT = """
from lmexposure.cli import entry, reporting
reporting.write_and_say = lambda *_, **__: None
entry.main()
"""


def pressed(corpus: Path, out: Path, ready: Callable[[], bool]) -> tuple[int, str]:
    """`lmexposure run`, with Ctrl-C when `ready` says so: exit code and standard error."""
    command = [sys.executable, "-c", _WITHOUT_REPORT, "run", str(corpus), "--out", str(out)]
    with subprocess.Popen(
        [*command, *PLAN, *SEARCH],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        while not ready():
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=200)[1]
    return process.returncode, err


@pytest.mark.timeout(300)
def test_ctrl_c_stops_a_training_and_ends_a_search_with_a_result(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.txt", 300)
    out = tmp_path / "run"
    code, err = pressed(corpus, out, (out / "checkpoint.pt").exists)
    assert code == 3
    assert "error: stopped; the same command goes on from the last checkpoint" in err
    code, err = pressed(corpus, out, lambda: any((out / ".measuring").glob("*/random_number.npz")))
    assert (code, "ending: the search stops here" in err) == (0, True), err
    result = json.loads((out / "result.json").read_text())
    assert any("Ctrl-C ended the" in line for line in result["warnings"])
    assert result["formats"][0]["interrupted"]
    assert list((out / ".measuring").glob("*/random_number.npz"))  # not scored again
