"""The command line: a command for each row of the table, and what their `--help` looks like.

A help is plain text, made of what the row declares: what people use, or with --help-all every
option in its panel, examples below, at the width of the terminal; the same in a pipe.
"""

import shutil
import sys
from collections.abc import Sequence
from inspect import Signature
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

from lmexposure import __version__
from lmexposure._saved_models import is_manifest
from lmexposure._settings import Function
from lmexposure._style import visible
from lmexposure.cli.commands import COMMANDS, Command
from lmexposure.cli.console import listen, show_in
from lmexposure.cli.options import FILES, OTHER, TAKEN, Parameter
from lmexposure.core import THRESHOLDS
from lmexposure.studies import (
    CANIFE,
    COMPARING,
    FEDERATED,
    HIDDEN,
    IDENTIFIERS,
    MACHINE,
    MEASURING,
    PRIVACY,
    SWEEPING,
    TRAINING,
    VERBATIM,
)

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter
    from typer._click import Parameter as Declared

_HELP_ALL, _EVERYTHING = "--help-all", "lmexposure.help"  # the flag, and what the context has of it
_PIPED, _WIDEST = 80, 160
_COLUMN = 27  # at most, for an option's name
_ARGUMENTS, _MOST_USED, _ALL = "Arguments", "Most used", "Options"
_PANELS = (
    *(_ARGUMENTS, _MOST_USED, COMPARING, SWEEPING, VERBATIM, FEDERATED, CANIFE, IDENTIFIERS),
    *(HIDDEN, TRAINING, THRESHOLDS, MEASURING, PRIVACY, MACHINE, FILES, OTHER),
)


def _width() -> int:
    """Columns of a help: the terminal's, up to where lines are read with ease; 80 in a pipe."""
    if sys.stdout is None or not sys.stdout.isatty():
        return _PIPED
    return min(shutil.get_terminal_size().columns, _WIDEST)


class PanelCommand(TyperCommand):
    """A command whose options are shown by their panels, those that people use most first."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """As Typer does, which gives a single word to the last argument: it may be the first."""
        words = list(args)
        listen(str(self.name), self.params)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as failure:
            self._mend_missing(failure, ctx, words)
            raise
        except Exception as failure:
            flag = str(getattr(failure, "option_name", ""))
            name = flag.removeprefix("--").replace("-", "_")
            if self.name in TAKEN and name in TAKEN[self.name].settings:
                said = f"No such option: {flag}; it is given by --set {name}=VALUE"
                vars(failure).update(message=said, possibilities=None)
            if (given := _value_of_switch(words, str(getattr(failure, "message", "")))) is not None:
                vars(failure)["message"] = "{} takes no value; leave out {}".format(*given)
            raise

    def _mend_missing(self, failure: typer.BadParameter, ctx: "Context", words: list[str]) -> None:
        """Where one word is there of names and a last argument, say which of them is missing."""
        names = failure.param
        arguments = [param for param in self.get_params(ctx) if _panel_of(param) == _ARGUMENTS]
        if names is None or names.nargs != -1 or names is arguments[-1]:
            return
        last = arguments[-1]
        word = self.make_parser(ctx).parse_args(args=words)[0].get(last.name)
        if isinstance(word, str):
            missing = names if is_manifest(word) else last
            said = (
                f"{visible(word)!r} alone is there of {names.name} and {last.name}, in this order."
            )
            vars(failure).update(param=missing, message=said)

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write arguments, then what people use, or each panel; without panels, all in one."""
        panels: dict[str, list[tuple[str, str]]] = {title: [] for title in _PANELS}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                panels[_panel_of(param)].append(record)
        rest = sum(len(panels[title]) for title in _PANELS[2:])
        if not any(panels[title] for title in _PANELS[2:-1]):
            others = panels.pop(OTHER)
            panels = {_ARGUMENTS: panels[_ARGUMENTS], _ALL: [*panels[_MOST_USED], *others]}
        elif not ctx.meta.get(_EVERYTHING):
            panels = {title: panels[title] for title in (_ARGUMENTS, _MOST_USED)}
            panels[_MOST_USED].append((_HELP_ALL, f"Show {rest} more options."))
        for title, rows in panels.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=_COLUMN)

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the examples as they are typed: no line of them is broken."""
        if self.epilog:
            formatter.write(f"\nExamples:\n{self.epilog}")


def _value_of_switch(words: Sequence[str], said: str) -> tuple[str, str] | None:
    """A switch and the word behind it, where that is the one too many."""
    pairs = ((a, visible(b)) for a, b in pairwise(words) if a.startswith("--"))
    return next((pair for pair in pairs if said.endswith(f"argument(s) ({pair[1]})")), None)


def _panel_of(param: "Declared") -> str:
    if param.param_type_name == "argument":
        return _ARGUMENTS
    return OTHER if param.name == "help" else getattr(param, "rich_help_panel", None) or _MOST_USED


def _show_all(context: typer.Context, wanted: bool) -> None:
    """Show the help that leaves no option out."""
    if wanted:
        context.meta[_EVERYTHING] = True
        typer.echo(context.get_help())
        raise typer.Exit


def _called(row: Command) -> Function:
    """The function of a command as Typer reads it: its parameters are arguments and flags."""
    parts = {name: (group, group.parameters()) for name, group in row.taken().items()}
    own = [made(help) for made, help in row.arguments.items()]
    shown = [made(help) for made, help in row.told().items()]
    every = [*own, *(each for _, flags in parts.values() for each in flags), *shown]
    more = typer.Option(
        False,
        _HELP_ALL,
        callback=_show_all,
        is_eager=True,
        show_default=False,
        help="Show every option and exit.",
        rich_help_panel=OTHER,
        # Where a help leaves nothing out, it need not be shown.
        hidden=not any(set(group.flags) - set(group.first) for group, _ in parts.values()),
    )
    every.append(Parameter("help_all", Parameter.KEYWORD_ONLY, default=more, annotation=bool))

    def command(**given: object) -> None:
        given = {name: None if value == [] else value for name, value in given.items()}
        words = {each.name: given[each.name] for each in own}
        if shown:
            show_in(**{each.name: bool(given[each.name]) for each in shown})
        for name, (group, flags) in parts.items():
            values = {each.name: given[each.name] for each in flags}
            words[name] = group.make({n: v for n, v in values.items() if v is not None})
        row.does(**words)

    vars(command)["__signature__"] = Signature(every)
    command.__annotations__ = {each.name: each.annotation for each in every}
    return command


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


app = typer.Typer(
    name="lmexposure",
    help="Measure how much of its training data a language model gives away.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": _width(), "terminal_width": _width()},
    epilog="Begin with: lmexposure demo --effort quick\n\n"
    "Exit codes: 0 pass, 1 leak, 2 inconclusive, 3 error, 130 Ctrl-C.",
)


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    # For the help alone: the entry point takes it out of every command line.
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an unexpected failure.")
    ] = False,
) -> None:
    """Measure how much of its training data a language model gives away."""


_groups = {"": app}
for _row in COMMANDS:
    _group, _, _name = _row.name.rpartition(" ")
    if any(other.name.startswith(f"{_row.name} ") for other in COMMANDS):
        _within = typer.Typer(help=_row.help, invoke_without_command=True, rich_markup_mode=None)
        _within.callback()(_row.does)
        app.add_typer(_within, name=_name, short_help=_row.words)
        _groups[_name] = _within
        continue
    _add = _groups[_group].command(
        _name,
        cls=PanelCommand,
        help=_row.help or _row.does.__doc__,
        short_help=_row.words,
        epilog=_row.epilog(),
    )
    _add(_called(_row))
