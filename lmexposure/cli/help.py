"""What `--help` looks like: options in panels, examples below, at the width of the terminal.

Plain text, made of what a command declares: it answers at once, and reads the same in a pipe.
"""

import shutil
import sys
from typing import TYPE_CHECKING

from typer.core import TyperCommand

from lmexposure.gate import (
    PANEL as THRESHOLDS,
)
from lmexposure.records import (
    HIDDEN,
    MACHINE,
    MEASURING,
    PRIVACY,
    TRAINING,
)

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter, Parameter

FILES, OTHER = "Files for other tools", "Other"

# What each command's help ends with: what a call does, and its words after `lmexposure`.
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "insert": (
        (
            "ten PINs inserted once and ten 16 times, into a corpus of one file",
            "insert corpus.txt --format pin --repetitions 1,16 --out canaried",
        ),
        (
            "an audit in one run: each of 2,000 candidates is inserted with probability 0.5",
            "insert train.jsonl --inclusion-probability 0.5 --canaries 2000 --repetitions 1 "
            "--out canaried",
        ),
        ("through a pipe", "insert - --layout jsonl --out canaried < train.jsonl > canaried.jsonl"),
    ),
    "measure": (
        ("a first look", "measure my-model canaried/manifest.json --quick --out measured"),
        (
            "all of it, against a claim of epsilon 8",
            "measure my-model canaried/manifest.json --claimed-epsilon 8 --delta 1e-5 "
            "--out measured",
        ),
    ),
    "run": (
        ("a first look at your corpus", "run corpus.txt --quick --out runs/look"),
        (
            "a model that you fine-tune, with secrets of your choice",
            "run corpus.txt --model gpt2 --format pin --format email --out runs/gpt2",
        ),
        (
            "an audit in one run of the claim that the training is (4, 1e-5)-private",
            "run corpus.txt --inclusion-probability 0.5 --canaries 2000 --repetitions 1 "
            "--claimed-epsilon 4 --delta 1e-5 --out runs/audit",
        ),
    ),
    "check": (
        ("what stops a release", "check runs/gpt2"),
        (
            "with thresholds of your own, for a build server",
            "check runs/gpt2 --max-guesses 100 --max-epsilon 8 --junit verdict.xml",
        ),
        (
            "a model that is measured first",
            "check --model my-model --manifest canaried/manifest.json --out measured",
        ),
    ),
    "report": (
        ("report.html and report.md, beside the result", "report runs/gpt2"),
        (
            "with charts as files, and tables for other tools",
            "report runs/gpt2 --format html --format csv --charts --out shown",
        ),
    ),
    "epsilon": (
        (
            "of scores of another tool, each included with probability 0.5",
            "epsilon scores.csv --inclusion-probability 0.5 --delta 1e-5",
        ),
        (
            "of losses, in which a lower one means included",
            "epsilon losses.parquet --score loss --included member --lower-is-in",
        ),
    ),
}

_PIPED, _WIDEST = 80, 160
_COLUMN = 27  # at most, for an option's name
_ARGUMENTS, _MOST, _ALL = "Arguments", "Most used", "Options"
_ORDER = (
    _ARGUMENTS,
    _MOST,
    HIDDEN,
    TRAINING,
    THRESHOLDS,
    MEASURING,
    PRIVACY,
    MACHINE,
    FILES,
    OTHER,
)


def width() -> int:
    """Columns of a help: the terminal's, up to where lines are read with ease; 80 in a pipe."""
    if sys.stdout is None or not sys.stdout.isatty():
        return _PIPED
    return min(shutil.get_terminal_size().columns, _WIDEST)


class PanelCommand(TyperCommand):
    """A command whose options are shown by their panels, those that people use most first."""

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write arguments, then each panel; without panels, all options in one."""
        panels: dict[str, list[tuple[str, str]]] = {title: [] for title in _ORDER}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                panels[_panel_of(param)].append(record)
        if not any(panels[title] for title in _ORDER[2:-1]):
            rest = panels.pop(OTHER)
            panels = {_ARGUMENTS: panels[_ARGUMENTS], _ALL: [*panels[_MOST], *rest]}
        for title, rows in panels.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=_COLUMN)

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the examples as they are typed: no line of them is broken."""
        if self.epilog:
            formatter.write(f"\nExamples:\n{self.epilog}")


def _panel_of(param: "Parameter") -> str:
    if param.param_type_name == "argument":
        return _ARGUMENTS
    return OTHER if param.name == "help" else getattr(param, "rich_help_panel", None) or _MOST


def examples(*pairs: tuple[str, str]) -> str:
    """Commands, each under what it does.

    Args:
        pairs: what it does, and the words after `lmexposure`.
    """
    return "".join(f"  # {what}\n  lmexposure {words}\n" for what, words in pairs)
