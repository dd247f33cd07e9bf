"""What a person sees: plain lines, tables, errors, and progress where there is a terminal.

Names and texts from outside are shown by these functions and by no other way: whatever a terminal
would obey, or would not show, is spelled out.

Where there is no terminal, a line a minute says how far long work is. The first Ctrl-C ends a
search and keeps what it has proven, as the end of its budget would; the second, or the first where
nothing would be kept, stops the command at once, as SIGTERM does.
"""

import ast
import os
import re
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

from typer.core import TyperOption

from lmexposure._forecast import Phase, Remaining
from lmexposure._style import in_words, outcome_word, printable, visible
from lmexposure.cli.options import TAKEN
from lmexposure.errors import SettingsError
from lmexposure.studies import set_words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.text import Text

    from lmexposure.core import Answers, Document, Section, Study, Table

Manner: TypeAlias = Literal["screen", "full", "quiet"]
_manner: Manner = "screen"  # in which studies are shown

# rich is imported where something is said: no help waits for it.

# Signs of ours that terminals of one byte a letter may lack.
_SIGNS = {"≥": ">=", "×": "x", "…": "..."}


def show_in(*, full: bool, quiet: bool) -> None:
    """Show studies with all their tables, by their verdict alone, or on one screen."""
    global _manner
    if full and quiet:
        raise SettingsError("--full prints every table and --quiet the verdict alone; give one")
    _manner = "full" if full else "quiet" if quiet else "screen"


def speaks() -> bool:
    """Whether this process is the only one, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def _console(*, aside: bool = False) -> "Console":
    """Standard output, or aside standard error."""
    from rich.console import Console

    # A pipe gets whole lines, whatever the width of the terminal behind it.
    piped = not aside and (sys.stdout is None or not sys.stdout.isatty())
    quiet = not aside and not speaks()
    console = Console(stderr=aside, width=160 if piped else None, highlight=False, quiet=quiet)
    if console.width < 1:  # of COLUMNS=0: nothing would be written, no error either
        console.width = 80
    return console


def _text(shown: str, console: "Console", style: str = "") -> "Text":
    """Text that a terminal can write: signs in other words, and what else it lacks spelled out."""
    from rich.text import Text

    encoding = console.encoding
    for sign, plain in _SIGNS.items():
        if sign.encode(encoding, "replace") == b"?":
            shown = shown.replace(sign, plain)
    return Text(shown.encode(encoding, "backslashreplace").decode(encoding), style=style)


def _print(shown: str, console: "Console", style: str = "") -> None:
    """Lines, whole however wide they are."""
    console.print(_text(shown, console, style), soft_wrap=True)


def say(line: str, *, aside: bool = False) -> None:
    """One line on standard output, or aside on standard error; a leading line end is kept."""
    console = _console(aside=aside)
    if line.startswith("\n"):
        console.print()
    _print(visible(line.removeprefix("\n")), console)


def begin(line: str) -> None:
    """The first word of a command that imports torch, said before that; by one process alone."""
    if speaks():
        say(line, aside=True)


def show_failure(text: str) -> None:
    """What others say of a failure, in as many lines as they do, on standard error."""
    _print(printable(text.rstrip("\n")), _console(aside=True))


def warn(line: str) -> None:
    """One warning on standard error."""
    _print(f"warning: {visible(said(line))}", _console(aside=True), "yellow")


def error(line: str) -> None:
    """One error on standard error."""
    _print(f"error: {visible(line)}", _console(aside=True), "red")


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values in two columns."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        say(f"{name:<{width}}  {value}")


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> None:
    """A table; the columns numbered in `right` hold numbers."""
    from rich.table import Table

    console = _console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, name in enumerate(header):
        table.add_column(
            _text(visible(name), console),
            justify="right" if column in right else "left",
            no_wrap=column == 0,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(_text(visible(cell), console) for cell in row))
    console.print(table)


class Bars:
    """A bar for each part of long work, on standard error; none where that is no terminal."""

    def __init__(self, drawn: "Progress | None" = None) -> None:
        self.drawn = drawn
        self._tasks: dict[str, TaskID] = {}

    def show(self, what: str, done: int, total: int, note: str = "") -> None:
        """Draw how far a part is."""
        if self.drawn is None:
            return
        what, note = visible(what), visible(note)
        if what not in self._tasks:
            self._tasks[what] = self.drawn.add_task(what, total=total, note=note)
        self.drawn.update(self._tasks[what], completed=done, total=total, note=note)

    def say(self, line: str) -> None:
        """One line on standard error, above the bars."""
        if self.drawn is not None:
            _print(visible(line), self.drawn.console)
        elif speaks():
            say(line, aside=True)


@contextmanager
def progress_bars() -> Iterator[Bars]:
    """Bars until the block ends, on a terminal of the first process."""
    if not (sys.stderr.isatty() and speaks()):
        yield Bars()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    what = TextColumn("{task.description}", markup=False)
    note = TextColumn("{task.fields[note]}", markup=False)
    columns = what, BarColumn(), MofNCompleteColumn(), note
    with Progress(*columns, console=_console(aside=True), transient=True) as bars:
        yield Bars(bars)


_WIDTH, _LINES = 100, 25  # columns and lines of a screen, at most
_ROWS, _FEWEST_ROWS = 8, 4  # of its table
_NOTES = 3
_NAMES = 9  # columns before what is said
_COLOURS = {"leak": "bold red", "pass": "bold green", "inconclusive": "bold yellow"}


def print_screen(document: "Document", report: Path | None) -> None:
    """What a terminal shows at once: the verdict, why, what was tested, how sure, what now."""
    verdict, answers = document.verdict, document.answers
    assert verdict is not None
    assert answers is not None
    word = outcome_word(verdict.outcome).upper()
    of = next((fact.value for fact in answers.since if fact.name == "model"), document.title)
    when = next(fact.value for fact in answers.since if fact.name == "measured")
    head = visible(f"{word}   {of}, {when}")
    _print(_clipped(head), _console(), _COLOURS[verdict.outcome])
    finding = ["", *(line for text in document.found for line in _wrapped("", text, indent=2)), ""]
    seen = [check.reason for check in verdict.checks if check.key == "accept_unseen_training"]
    seen = [reason for reason in seen if reason.lower() not in answers.finding.lower()]
    # The first step after a doubt is not to take it for a pass; the second is what helps.
    steps = answers.steps[: 2 if verdict.outcome == "inconclusive" else 1]
    named = {"sure?": answers.sure[:2], "trained?": seen[:1], "next": steps}
    below = ["", *(line for name, said in named.items() for line in _said_of(name, said))]
    below += [] if report is None else [f"{'report':<{_NAMES}}{report}"]
    notes = list(_notes(document.warnings))
    room = _LINES - 1 - len(finding) - len(below)
    notes = notes[: max(1, room - _FEWEST_ROWS - 3)]  # a table's head, foot and rest
    for line in finding:
        say(line)
    room -= len(notes)
    if document.tested is not None:
        _print_first(document.tested(verdict), room)
    elif document.numbers is None or not document.numbers.rows:
        _print_checks(answers, room)
    else:
        shown = min(len(document.numbers.rows), _FEWEST_ROWS)
        _print_first(document.numbers, shown + 1)
        say("")
        _print_checks(answers, room - shown - 2)
    for line in (*below, *notes):
        say(line)


def _print_first(table: "Table", room: int) -> None:
    """As many rows of a table as there is room for, the worst, and how many more there are."""
    room -= 1 + len(table.foot)
    most = min(_ROWS, room if len(table.rows) <= room else room - 1)
    _print_table(replace(table, rows=table.rows[:most]))
    _say_more(len(table.rows[most:]))


def _print_checks(answers: "Answers", room: int) -> None:
    """What was tested, what it came to, and why as far as a line holds it."""
    lines = answers.tested[: max(1, min(_ROWS, room - 1))]
    columns = [
        max(map(len, texts)) for texts in zip(*((x.what, x.word) for x in lines), strict=True)
    ]
    for line in lines:
        why = line.said.removeprefix(line.word).removeprefix(", ")
        row = f"{line.what:<{columns[0]}}  {line.word:<{columns[1]}}  {why}"
        say(_clipped(visible(row.rstrip())))
    _say_more(len(answers.tested[len(lines) :]) + answers.more)


def _say_more(number: int) -> None:
    if number:
        say(f"{number} more in the report")


def _said_of(name: str, lines: "Sequence[str]") -> Iterator[str]:
    for place, line in enumerate(lines):
        yield from _wrapped("" if place else name, line)


def _notes(warnings: "Sequence[str]") -> Iterator[str]:
    if warnings:
        yield f"{'notes':<{_NAMES}}{len(warnings)}, in the report"
    for place, line in enumerate(warnings[:_NOTES], 1):
        yield _clipped(f"{place:>{_NAMES - 2}}. {visible(said(line))}")


def _width() -> int:
    return min(_WIDTH, _console().width)


def _clipped(line: str) -> str:
    """A line that fits, whatever is left out of it."""
    return line if len(line) <= _width() else f"{line[: _width() - 1]}…"


def _wrapped(name: str, text: str, *, indent: int = _NAMES) -> list[str]:
    """Words behind a name, in as many lines as they take."""
    lines = textwrap.wrap(
        visible(said(text)), _width() - indent, break_long_words=False, break_on_hyphens=False
    )
    heads = [name, *[""] * len(lines)]
    return [f"{head:<{indent}}{line}" for line, head in zip(lines, heads, strict=False)]


def _print_table(table: "Table") -> None:
    print_table(table.heads, table.cells, right=range(table.words, len(table.heads)))


PRIVATE_FILES = "these files show secrets or text of the corpus: keep them private"


def print_document(document: "Document") -> None:
    """A study's sections, each with its title, its table and its notes; warnings; the finding."""
    for section in document.on("terminal"):
        print_section(section)
    for line in document.warnings:
        warn(line)
    say(f"\n{said(document.finding)}")


def print_section(section: "Section") -> None:
    """A section with its table, its notes and its parts."""
    say(f"\n{section.title}")
    for line in section.said:
        say(line)
    if (table := section.table) is not None and table.rows:
        if section.caption:
            say(section.caption)
        _print_table(table)
    for line in filter(None, (*section.notes, section.code)):
        say(line)
    for part in section.parts:
        if "terminal" in part.on:
            print_section(part)


def show_study(out: Path, *, show_secrets: bool = False) -> None:
    """What a command says at its end, by one process: a study, its verdict, where its files are."""
    if not speaks():
        return
    from lmexposure.core import judged, open_study, write_report

    study = open_study(out)
    out = out if out.is_dir() else out.parent
    written = write_report(study, out, formats=study.FILES, show_secrets=show_secrets)
    if _manner == "quiet":
        say(judged(study).sentence)
    elif _manner == "full":
        print_document(study.document())
        say("")
        say_verdict(study)
        for path in written:
            say(f"report  {path}")
        say(f"result  {out / study.NAME}")
    else:
        print_screen(study.told(), next(iter(written), None))
    if show_secrets:
        warn(PRIVATE_FILES)


def say_verdict(study: "Study") -> None:
    """The verdict with the gate's defaults, and where its numbers come from."""
    from lmexposure.core import judged

    say(judged(study).sentence)
    say(study.provenance.line)


# Errors and warnings name an argument as Python does, epochs=3. A command that has a flag for it
# names the flag, and another setting that it takes by --set. Texts in quotes, paths, addresses and
# words that were typed stay as they are, and so does what is said of the content of a file
# ("mine.toml: epochs=0 must be ...").
_IN_FILE = r"\A[^'\",;]*\.(?:toml|json): (?s:.*)"
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_VALUE = rf"{_QUOTED}|\[(?:{_QUOTED}|[^]'\"])*\]|\((?:{_QUOTED}|[^)'\"])*\)|\.\.\.|[-+.\w]*\w"
# An argument with its value; the epsilon of a claim is none.
_ARGUMENT = rf"(?<![\w./\\-])(?<!claim of )([a-z]\w*)=({_VALUE})(?=[.:]?(?:\s|$)|[,;)`])"
_APART = rf"(?<!\w)(?:{_QUOTED})|\w\([^()]*\)|(?<![^\s(])[^\s(=]*[/\\]\S*"

# The arguments that a command takes: by a flag, or (None) by --set.
Arguments: TypeAlias = dict[str, TyperOption | None]
_running: Arguments = {}


def listen(command: str, parameters: Iterable[object]) -> None:
    """Speak as this command from now on."""
    _running.clear()
    _running.update(arguments_of(command, parameters))


def said(message: str) -> str:
    """A message in the words of the command that runs."""
    return spoken(message, _running, typed=sys.argv[1:])


def arguments_of(command: str, parameters: Iterable[object]) -> Arguments:
    """What a command takes, by the names of its arguments and of its flags."""
    flags = [each for each in parameters if isinstance(each, TyperOption)]
    by_flag = {each.opts[0].removeprefix("--").replace("-", "_"): each for each in flags}
    by_set = dict.fromkeys(TAKEN[command].settings) if command in TAKEN else {}
    return {**by_set, **by_flag, **{str(each.name): each for each in flags}}


def spoken(message: str, flags: Arguments, *, typed: Sequence[str] = ()) -> str:
    """A message with every argument named by its flag, where it has one; `typed` words are kept."""

    def by_flag(found: re.Match[str]) -> str:
        name, value = found.groups()
        return found[0] if name not in flags else _shown(name, flags[name], value) or found[0]

    words = [*typed, *(word.partition("=")[2] for word in typed if word.startswith("--"))]
    kept = [rf"(?<![\w/]){re.escape(word)}(?!\w)" for word in words if "=" in word]
    return re.sub("|".join([_IN_FILE, *kept, _ARGUMENT, _APART]), by_flag, message)


def _shown(name: str, flag: TyperOption | None, text: str) -> str | None:
    """An argument with its value, alone where that is "..."; None: no flag gives such a value."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
        if flag is not None and text.lstrip("+-") not in ("nan", "inf"):
            return None
    values = value if isinstance(value, tuple | list) else [value]
    if flag is None:
        return f"--set {name}=..." if ... in values else set_words(name, value)
    yes, no = flag.opts[0], next(iter(flag.secondary_opts), None)
    if isinstance(value, bool | None):
        return {True: yes, False: no, None: None}[value]
    if ... in values:
        return yes
    words = [quote(str(each)) for each in values]
    shown = words if flag.multiple or not words else [",".join(words)]
    return " ".join(f"{yes} {each}" for each in shown)


_BEFORE_WORDS = 1.0  # seconds in which paces are found out
_LONG = 10.0  # what takes as many is announced before it begins
_A_LINE = 60.0

_ENDING = (
    "ending: the search stops here and keeps what it has proven; the rest of the result is still "
    "completed. Press Ctrl-C again to stop at once, without a result"
)
_IN_TRAINING = "stopped; the same command goes on from the last checkpoint, where there is one"
_KEPT = "stopped; finished steps are kept, and the same command goes on from there"
_NOT_KEPT = "stopped; nothing is kept, and the same command begins anew"
STOPPED = "stopped"  # where it is not known what is kept


class Stopped(BaseException):
    """Ctrl-C, where nothing more is to be kept; no search takes it for its own end."""


class LongWork:
    """One piece of long work under way: a `Watcher` for those who do it."""

    def __init__(
        self, bars: Bars, clock: Callable[[], float] = time.monotonic, *, kept: bool = True
    ) -> None:
        self._bars, self._clock, self._kept = bars, clock, kept
        self._first = self._begun = self._said = clock()
        self._title, self._announced, self._told = "", False, False
        self._remaining = Remaining([], clock())
        self._keeps = self._asked = self._training = False

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Take how far a phase is."""
        now = self._clock()
        self._remaining.update(what, done, total, now)
        self._training = what == "training" and done < total
        self._announce(now)
        left = self._left(now)
        self._bars.show(what, done, total, f"{note}{left}".removeprefix("; "))
        if not self._bars.drawn and now - self._said >= _A_LINE:
            self._said = now
            more = f" ({note})" if note else ""
            self._bars.say(f"{what}: {done:,} of {total:,}{more}{left}")

    def plan(self, title: str, phases: Sequence[Phase], *, keeps: bool) -> None:
        """Take what is to be done from now on; it is announced when its pace is known."""
        now = self._clock()
        self._begun = self._said = now
        self._title, self._announced, self._keeps = title, False, keeps
        self._remaining = Remaining(phases, now)
        self._announce(now)

    def expect(self, what: str, seconds: float) -> None:
        """Take how long a phase takes from now on, or from its beginning."""
        self._remaining.expect(what, seconds, self._clock())

    def say(self, line: str) -> None:
        """Say a line, above the bars."""
        self._bars.say(said(line))

    def end_asked(self) -> bool:
        """Whether Ctrl-C asked for an early end."""
        return self._asked

    def pressed(self) -> None:
        """Ctrl-C."""
        if self._asked or not self._keeps:
            self.stop()
        self._asked = True
        self._bars.say(_ENDING)

    def stop(self) -> NoReturn:
        """SIGTERM, or Ctrl-C where nothing more is to be kept: whoever sent it may not wait."""
        went_on = _IN_TRAINING if self._training else _KEPT
        raise Stopped(went_on if self._kept else _NOT_KEPT)

    def finish(self) -> None:
        """Say how long it took, where it was long enough to be announced."""
        if self._told:
            self._bars.say(f"done in {in_words(self._clock() - self._first)}")

    def _announce(self, now: float) -> None:
        """What will be done and how long it takes, once that is known."""
        left, elapsed = self._remaining.left(now), now - self._begun
        if self._announced or left is None or (elapsed < _BEFORE_WORDS and left < _LONG):
            return
        self._announced = self._told = True
        self._bars.say(f"{self._title}; about {in_words(left + elapsed)}")

    def _left(self, now: float) -> str:
        left = self._remaining.left(now) if self._announced else None
        return "" if left is None else f"; about {in_words(left)} left"


@contextmanager
def long_work(*, kept: bool = True) -> Iterator[LongWork]:
    """Watch long work until the block ends; Ctrl-C is its own as long."""
    with progress_bars() as bars:
        work = LongWork(bars, kept=kept)
        with _interrupts(work):
            yield work
    work.finish()


@contextmanager
def _interrupts(work: LongWork) -> Iterator[None]:
    """Ctrl-C goes to the work; not where it is ignored, nor from a thread, which may not say so."""
    before, by_others = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    first = threading.current_thread() is threading.main_thread()
    if before in (None, signal.SIG_IGN) or not first:
        yield
        return

    def pressed(*_: object) -> None:
        work.pressed()

    def ended(*_: object) -> None:
        work.stop()

    signal.signal(signal.SIGINT, pressed)
    if callable(by_others):  # the command line's own
        signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if callable(by_others):
            signal.signal(signal.SIGTERM, by_others)
