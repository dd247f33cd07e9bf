"""What a person sees: plain lines, tables, errors, and progress where there is a terminal.

Names and texts from outside are shown by these functions and by no other way: whatever a terminal
would obey, or would not show, is spelled out.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lmexposure._style import printable, visible
from lmexposure.cli.voice import said

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.text import Text

    from lmexposure.core import Document, Section, Study

# rich is imported where something is said: no help waits for it.

# Signs of ours that terminals of one byte a letter may lack.
_SIGNS = {"≥": ">=", "×": "x", "…": "..."}


def speaks() -> bool:
    """Whether this process is the only one, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def _out() -> "Console":
    from rich.console import Console

    # A pipe gets whole lines, whatever the width of the terminal behind it.
    terminal = sys.stdout is not None and sys.stdout.isatty()
    width = None if terminal else 160
    return _seen(Console(width=width, highlight=False, quiet=not speaks()))


def _err() -> "Console":
    from rich.console import Console

    return _seen(Console(stderr=True, highlight=False))


def _seen(console: "Console") -> "Console":
    """With COLUMNS=0 in the environment nothing would be written, no error either."""
    if console.width < 1:
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


def say(line: str, *, aside: bool = False) -> None:
    """One line on standard output, or aside on standard error; a leading line end is kept."""
    console = _err() if aside else _out()
    if line.startswith("\n"):
        console.print()
    console.print(_text(visible(line.removeprefix("\n")), console), soft_wrap=True)


def say_aside(line: str) -> None:
    """One line on standard error, where standard output is taken by a corpus."""
    say(line, aside=True)


def begin(line: str) -> None:
    """The first word of a command that imports torch, said before that; by one process alone."""
    if speaks():
        say_aside(line)


def show_failure(text: str) -> None:
    """What others say of a failure, in as many lines as they do, on standard error."""
    console = _err()
    console.print(_text(printable(text.rstrip("\n")), console), soft_wrap=True)


def warn(line: str) -> None:
    """One warning on standard error."""
    console = _err()
    console.print(_text(f"warning: {visible(said(line))}", console, "yellow"), soft_wrap=True)


def error(line: str) -> None:
    """One error on standard error."""
    console = _err()
    console.print(_text(f"error: {visible(line)}", console, "red"), soft_wrap=True)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values in two columns."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        say(f"{name:<{width}}  {value}")


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
) -> None:
    """A table; the columns numbered in `right` hold numbers."""
    from rich.table import Table

    console = _out()
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

    drawn = False

    def show(self, what: str, done: int, total: int, note: str = "") -> None:
        """Draw how far a part is."""

    def say(self, line: str) -> None:
        """One line on standard error, above the bars."""
        if speaks():
            say_aside(line)


class _DrawnBars(Bars):
    """Bars of Rich."""

    drawn = True

    def __init__(self, bars: "Progress") -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def show(self, what: str, done: int, total: int, note: str = "") -> None:
        what, note = visible(what), visible(note)
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total, note=note)
        self._bars.update(self._tasks[what], completed=done, total=total, note=note)

    def say(self, line: str) -> None:
        self._bars.console.print(_text(visible(line), self._bars.console), soft_wrap=True)


@contextmanager
def progress_bars() -> Iterator[Bars]:
    """Bars until the block ends, on a terminal of the first process."""
    if not (sys.stderr.isatty() and speaks()):
        yield Bars()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=_err(), transient=True) as bars:
        yield _DrawnBars(bars)


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
        print_table(table.heads, table.cells, right=range(table.words, len(table.heads)))
    for line in (*section.notes, *filter(None, [section.code])):
        say(line)
    for part in section.parts:
        if "terminal" in part.on:
            print_section(part)


def show_study(
    study: "Study",
    out: Path,
    *,
    formats: Sequence[str] = ("html", "md"),
    show_secrets: bool = False,
) -> None:
    """What a command says at its end: the study, where its report and its record are."""
    from lmexposure.core import write_report

    print_document(study.document())
    page, *_ = write_report(study, out, formats=formats, show_secrets=show_secrets)
    if speaks():
        say(f"report  {page}")
    say(f"result  {out / study.NAME}")
    if show_secrets:
        warn(PRIVATE_FILES)


def show_run(out: Path) -> None:
    """The same of a run or a measurement, whose verdict is said too; by one process alone."""
    from lmexposure.core import open_study, write_report

    if not speaks():
        return
    study = open_study(out)
    print_document(study.document())
    written = write_report(study, out)
    say("")
    say_verdict(study)
    for path in written:
        say(f"report  {path}")


def say_verdict(study: "Study") -> None:
    """The verdict with the gate's defaults, and where its numbers come from."""
    from lmexposure.core import judged

    say(judged(study).sentence)
    say(study.provenance.line)
