"""A person who ends a measurement early gets what was proven, said to be so; then it goes on."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from audit.quick import QUICK
from audit.small import loaded_of, planned, task_of
from known import known

from lmexposure._forecast import Phase
from lmexposure._style import in_words
from lmexposure.audit import MeasureSettings, measure, workload
from lmexposure.audit.workload import (
    Paces,
    announce,
    measurement_forecast,
    measurement_phases,
    measurement_title,
    watch_training,
)
from lmexposure.canaries import Format
from lmexposure.models import Progress
from lmexposure.scoring import Extractor
from lmexposure.studies import Result, TrainingSettings

FORM = Format(name="code", template="number {digits:4}")
# Many small steps, so that one of them can be the last.
SLOWLY = replace(QUICK, live_states=10)


class Pressed:
    """A watcher with Ctrl-C as soon as a phase has begun."""

    def __init__(self, at: str | None) -> None:
        self._at, self._asked = at, False
        self.seen: list[tuple[str, int, int]] = []
        self.phases: list[Phase] = []
        self.title = ""

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        self.seen.append((what, done, total))
        self._asked |= what == self._at

    def plan(self, title: str, phases: Sequence[Phase], *, keeps: bool) -> None:
        assert keeps is not title.startswith("training")
        self.title, self.phases = title, list(phases)

    def expect(self, what: str, seconds: float) -> None:
        """Take nothing."""

    def end_asked(self) -> bool:
        return self._asked

    def told(self, what: str) -> list[int]:
        return [done for name, done, _ in self.seen if name == what]


LOADED = loaded_of("lstm")
MANIFEST = planned(FORM, canaries=3, repetitions=(1, 2), controls=3)


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches with characters given go one by one, so that an end finds some of them undone."""
    monkeypatch.setattr(Extractor, "_most_rows", lambda self: 1)


@cache
def whole() -> Result:
    return measure(LOADED, MANIFEST, settings=SLOWLY)


def methods(result: Result) -> set[str]:
    return {one.exposure.method for one in result.canaries}


@pytest.mark.slow
@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("at", "ended", "shown"),
    [
        ("code: drawing secrets", "drawing of secrets", {"sampled"}),
        ("code: counting ranks", "exact search", {"importance"}),
        ("code: best-first search", "best-first search", {"exact"}),
        ("extracting code", "extraction", {"exact"}),
    ],
)
def test_an_early_end_keeps_what_is_proven_and_says_what_is_coarser(
    tmp_path: Path, at: str, ended: str, shown: set[str]
) -> None:
    watcher = Pressed(at)
    result = measure(LOADED, MANIFEST, out=tmp_path, settings=SLOWLY, progress=watcher)
    assert any(f"Ctrl-C ended the {ended}" in line for line in result.warnings)
    assert result.formats[0].interrupted
    assert methods(result) == shown
    for found, true in zip(result.canaries, whole().canaries, strict=True):
        exact = known(true.exposure.value)
        for row in (
            found.estimates[name] for name in ("bounded", "exact") if name in found.estimates
        ):
            assert known(row.low) - 1e-9 <= exact <= known(row.high) + 1e-9
        assert {row.revealed for row in found.extraction} >= {0}
    again = Pressed(None)
    settled = measure(LOADED, MANIFEST, out=tmp_path, settings=SLOWLY, progress=again)
    assert settled.model_copy(update={"scores_sha256": None}) == whole()
    assert not again.told("scoring code")  # what was scored is not scored again
    assert not list(tmp_path.glob(".work"))


@pytest.mark.parametrize(("method", "shown"), [("importance", "importance"), ("exact", "bounded")])
def test_a_method_asked_for_by_name_is_shown_after_an_early_end(method: str, shown: str) -> None:
    settings = replace(QUICK, estimate=method, extraction=False)
    result = measure(LOADED, MANIFEST, settings=settings, progress=Pressed("scoring code"))
    assert methods(result) == {shown}


def test_an_early_end_of_one_search_is_said_once() -> None:
    """Though a walk of a single step bounds the ranks that were out of reach."""
    peaked = loaded_of("lstm")
    peaked.model.get_output_embeddings().weight.data *= 8  # some ranks are cheap, others not
    few = replace(SLOWLY, references=50, draws=200, budget_steps=1_500)
    settings = replace(few, estimate="exact", extraction=False)
    result = measure(peaked, MANIFEST, settings=settings, progress=Pressed("code: counting ranks"))
    assert sum("Ctrl-C ended the exact search" in line for line in result.warnings) == 1
    assert methods(result) <= {"exact", "bounded"}
    assert result.formats[0].interrupted


@pytest.mark.usefixtures("little_memory")
def test_without_a_search_an_early_end_of_the_extraction_is_known() -> None:
    settings = replace(QUICK, estimate="sampled")
    result = measure(LOADED, MANIFEST, settings=settings, progress=Pressed("scoring code"))
    assert (result.formats[0].search, result.formats[0].interrupted) == (None, True)
    assert any("6 canaries were not searched for with all" in line for line in result.warnings)


class PressedAfter(Pressed):
    """A watcher with Ctrl-C when all but so many searches of the extraction are done."""

    def __init__(self, left: int) -> None:
        super().__init__(None)
        self._left = left

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        super().__call__(what, done, total, note)
        self._asked |= what == "extracting code" and done >= total - self._left


@pytest.mark.usefixtures("little_memory")
def test_an_early_end_between_greedy_and_beam_is_known() -> None:
    """Each canary was searched for with all characters that were to be given, but by no beam."""
    settings = replace(QUICK, estimate="sampled")
    inserted = len(MANIFEST.canaries)
    ended = measure(LOADED, MANIFEST, settings=settings, progress=PressedAfter(inserted))
    assert ended.formats[0].interrupted
    assert any(f"{inserted} canaries were not searched for" in line for line in ended.warnings)
    whole = measure(LOADED, MANIFEST, settings=settings, progress=PressedAfter(0))
    assert not whole.formats[0].interrupted


def test_a_training_is_announced_with_the_tokens_of_its_steps_so_far() -> None:
    """The last step of an epoch has fewer: "6 steps of 2,028 tokens" was said of 2,335 an epoch."""
    watcher = Pressed(None)
    state = Progress(
        step=1, total_steps=6, epoch=0.5, tokens=2028, train_bits=4.0, validation_bits=None
    )
    watch_training(watcher, TrainingSettings(), ("", []))(state)
    assert watcher.title == "training: at most 6 steps, so far of 2,028 tokens"


def test_every_phase_was_announced_and_moves() -> None:
    settings = replace(SLOWLY, estimate="exact")
    watcher = Pressed(None)
    measure(LOADED, MANIFEST, settings=settings, progress=watcher)
    assert watcher.title == (
        "measuring: 400 references of 1 format, 9 canaries and controls, 1,000 draws, search, "
        "extraction"
    )
    names = [phase.what for phase in watcher.phases]
    assert [name for name, _, _ in watcher.seen] == sorted(
        (name for name, _, _ in watcher.seen), key=names.index
    )
    # The probabilities of the witnesses settled it, so that they were compared with no others.
    assert set(names) == {"witness", *(name for name, _, _ in watcher.seen)}
    for name in ("code: drawing secrets", "code: counting ranks", "code: best-first search"):
        assert len(set(watcher.told(name))) > 3, name
    drawn = watcher.told("code: drawing secrets")
    assert drawn == sorted(drawn)
    assert (drawn[0], drawn[-1]) == (0, 1_000)


def test_phases_know_their_work() -> None:
    settings = MeasureSettings(references=100, budget_steps=5_000, draws=1_000, guesses=50)
    task = task_of(LOADED, MANIFEST, settings)
    phases = {one.what: one for one in measurement_forecast(task).phases}
    length = len("number 1234")  # a token a character
    # The beginning is read once; of four digits a hundred texts share two, and read no last one.
    scored = phases["scoring code"].work - workload._PROBED
    assert length + 109 <= scored <= length + 109 * 1.5
    assert phases["scoring code"].pace is not None
    # Of four digits, three are shared by a thousand draws, and some draws go through one node.
    assert 800 <= phases["code: drawing secrets"].work <= 1_040
    assert phases["code: best-first search"].most == 5_000
    assert phases["code: drawing secrets"].pace is not None
    few = replace(settings, estimate="sampled", extraction=False)
    without = measurement_phases(task_of(LOADED, MANIFEST, few), Paces())
    assert all(one.pace is None for one in without if one.kind == "scoring")
    assert [one.what for one in without] == [
        "scoring code",
        "estimating code",
        "witness",
    ]
    assert measurement_title(MANIFEST, few) == (
        "measuring: 100 references of 1 format, 9 canaries and controls"
    )
    steps = sum(one.work for one in phases.values() if one.kind == "stepping")
    assert np.isfinite(steps)


class Stopping(Pressed):
    """A watcher that stops a measurement at a place."""

    def __init__(self, at: tuple[str, int]) -> None:
        super().__init__(at=None)
        self._place = at

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        super().__call__(what, done, total, note)
        if what == self._place[0] and self._place[1] <= done < total:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.usefixtures("little_memory")
def test_a_measurement_that_goes_on_announces_what_is_left(tmp_path: Path) -> None:
    def phases(stop: tuple[str, int]) -> dict[str, Phase]:
        watcher = Stopping(stop)
        with suppress(KeyboardInterrupt):
            measure(LOADED, MANIFEST, settings=SLOWLY, out=tmp_path, progress=watcher)
        return {phase.what: phase for phase in watcher.phases}

    first = phases(("code: drawing secrets", 0))
    again = phases(("extracting code", 5))
    last = phases(("nowhere", 0))
    assert first.keys() - again.keys() == {"scoring code"}
    searched = {name for name in first if name.startswith("code: ")}
    assert again.keys() - last.keys() == searched
    whole, half = first["extracting code"], last["extracting code"]
    assert whole.before == 0 < half.before < 1
    assert half.work == pytest.approx(whole.work * (1 - half.before))


def test_a_search_ends_with_its_seconds() -> None:
    task = task_of(LOADED, MANIFEST, MeasureSettings(draws=1_000, budget_seconds=0.5))
    phases = {one.what: one for one in measurement_phases(task, Paces(stepping=1.0))}
    for name in ("code: counting ranks", "code: best-first search"):
        assert phases[name].expected == 0.5
    assert phases["code: drawing secrets"].expected == phases["code: drawing secrets"].work


class Spoken(Pressed):
    """A watcher that keeps what is said to a person, too."""

    def __init__(self) -> None:
        super().__init__(at=None)
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize(("pace", "told"), [(0.1, 1), (1e-6, 0)])
def test_the_parts_of_long_work_are_told_beside_what_a_first_look_takes(
    monkeypatch: pytest.MonkeyPatch, pace: float, told: int
) -> None:
    monkeypatch.setattr(workload, "token_pace", lambda *_: pace)
    monkeypatch.setattr(workload, "step_pace", lambda *_: pace / 10)
    monkeypatch.setattr(workload, "_STATISTICS_SECONDS", 0.0)
    task = task_of(LOADED, MANIFEST, MeasureSettings(draws=5_000))
    task.progress = spoken = Spoken()
    announce(task)
    assert len(spoken.lines) == told
    ahead, first = (
        measurement_forecast(task),
        measurement_forecast(replace(task, settings=MeasureSettings().quicker)),
    )
    assert (tuple(spoken.phases), first.note) == (ahead.phases, "")
    assert first.seconds < ahead.seconds  # the witness takes the same
    for line in spoken.lines:
        assert line == f"{ahead.by_part}; with effort='quick' about {in_words(first.seconds)}"
        names = [part.rpartition(" ")[0].rpartition(" ")[0] for part in ahead.by_part.split(", ")]
        assert names == ["references", "draws", "search", "extraction", "witness"]
