"""The commands, by name, and what their `--help` looks like.

A new command is a function in a file of this directory, imported here and added to the list at the
end of this file. It imports heavy rooms only when it runs, so that every help answers at once. A
help is plain text, made of what the command declares: what people use, or with --help-all every
option in its panel, examples below, at the width of the terminal; the same in a pipe.
"""

import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer
from typer.core import TyperCommand

from lmexposure import __version__
from lmexposure._style import visible
from lmexposure.cli.canife import canife
from lmexposure.cli.check import check
from lmexposure.cli.defences import defences
from lmexposure.cli.dp_check import dp_check
from lmexposure.cli.dp_report import dp_report
from lmexposure.cli.epsilon import epsilon
from lmexposure.cli.formats import formats
from lmexposure.cli.identifiers import identifiers
from lmexposure.cli.insert import insert
from lmexposure.cli.measure import measure
from lmexposure.cli.options import EVERYTHING, FILES, HELP_ALL, OTHER, TAKEN, is_manifest
from lmexposure.cli.remove import remove
from lmexposure.cli.report import compare, report
from lmexposure.cli.run import demo, run
from lmexposure.cli.settings import settings
from lmexposure.cli.sweep import sweep
from lmexposure.cli.train import train
from lmexposure.cli.verbatim import verbatim
from lmexposure.cli.verify import verify
from lmexposure.cli.voice import listen
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
    from typer._click import Context, HelpFormatter, Parameter

P = ParamSpec("P")

_PIPED, _WIDEST = 80, 160
_COLUMN = 27  # at most, for an option's name
_ARGUMENTS, _MOST_USED, _ALL = "Arguments", "Most used", "Options"
_PANELS = (
    _ARGUMENTS,
    _MOST_USED,
    COMPARING,
    SWEEPING,
    VERBATIM,
    FEDERATED,
    CANIFE,
    IDENTIFIERS,
    HIDDEN,
    TRAINING,
    THRESHOLDS,
    MEASURING,
    PRIVACY,
    MACHINE,
    FILES,
    OTHER,
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
        elif not ctx.meta.get(EVERYTHING):
            panels = {title: panels[title] for title in (_ARGUMENTS, _MOST_USED)}
            panels[_MOST_USED].append((HELP_ALL, f"Show {rest} more options."))
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
    return OTHER if param.name == "help" else getattr(param, "rich_help_panel", None) or _MOST_USED


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
    epilog="Begin with: lmexposure demo --quick\n\n"
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


def _add_command(command: Callable[P, None], short: str, *examples: tuple[str, str]) -> None:
    """Add a command to the list of them, in the order of the help."""
    epilog = "".join(f"  # {what}\n  lmexposure {words}\n" for what, words in examples)
    app.command(cls=PanelCommand, epilog=epilog or None, short_help=short)(command)


_add_command(
    run,
    "Insert, train, measure and report: the whole test.",
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
)
_add_command(
    insert,
    "Put canaries into a corpus, and write its manifest.",
    (
        "ten PINs inserted once and ten 16 times, into a corpus of one file",
        "insert corpus.txt --format pin --repetitions 1,16 --out canaried",
    ),
    (
        "an audit in one run: each of 2,000 candidates is inserted with probability 0.5",
        "insert train.jsonl --inclusion-probability 0.5 --canaries 2000 --repetitions 1 "
        "--out canaried",
    ),
    (
        "through a pipe",
        "insert - --layout jsonl --out canaried < train.jsonl > canaried.jsonl",
    ),
)
_add_command(verify, "Count the canaries that a corpus holds.")
_add_command(remove, "Take the canaries out again.")
_add_command(train, "Train a model on a corpus.")
_add_command(
    measure,
    "Measure any model against a manifest.",
    ("a first look", "measure my-model canaried/manifest.json --quick --out measured"),
    (
        "all of it, against a claim of epsilon 8",
        "measure my-model canaried/manifest.json --claimed-epsilon 8 --delta 1e-5 --out measured",
    ),
)
_add_command(
    sweep,
    "Train many models, find the worst canary.",
    (
        "64 models, each with about half of 100 canaries and of the ordinary documents",
        "sweep corpus.txt --models 64 --out sweeps/pin --format pin",
    ),
    (
        "the same step by step, for Slurm or machines without Ray: the plan,",
        "sweep corpus.txt --models 64 --out sweeps/pin --format pin --prepare",
    ),
    (
        "model by model, on any machine that shares the directory,",
        "sweep --only 17 --out sweeps/pin",
    ),
    ("and what they show together", "sweep --collect sweeps/pin"),
)
_add_command(
    defences,
    "Compare defences at one utility.",
    (
        "on a slice of 50,000 characters, 32 models of each",
        "defences corpus.txt --methods relaxloss,hamp,dp-sgd --out defences/first",
    ),
    (
        "on the whole corpus, 64 models of each, at 3 % more loss than without a defence",
        "defences corpus.txt --methods goldfish,selena --target 1.03 --full --out defences/full",
    ),
)
_add_command(
    report,
    "Write the report of a run.",
    ("report.html and report.md, next to the result", "report runs/gpt2"),
    (
        "with charts as files, and tables for other tools",
        "report runs/gpt2 --format html --format csv --charts --out shown",
    ),
)
_add_command(compare, "Say which of several runs leaks more.")
_add_command(
    check,
    "Stop a release that leaks: verdict and exit code.",
    ("what stops a release", "check runs/gpt2"),
    (
        "with thresholds of your own, for a build server",
        "check runs/gpt2 --max-guesses 100 --max-epsilon 8 --junit verdict.xml",
    ),
    (
        "a model that is measured first",
        "check --model my-model --manifest canaried/manifest.json --out measured",
    ),
    (
        "a sweep of many models: its worst canary, and its epsilon",
        "check sweeps/pin --max-worst-tpr 0.5 --max-epsilon 3",
    ),
)
_add_command(
    epsilon,
    "Bound epsilon from scores of your own.",
    (
        "of scores of another tool, each included with probability 0.5",
        "epsilon scores.csv --inclusion-probability 0.5 --delta 1e-5",
    ),
    (
        "of losses, in which a lower one means included",
        "epsilon losses.parquet --score loss --included member --lower-is-in",
    ),
)
_add_command(
    identifiers,
    "Audit what a corpus holds anyway, without insertion.",
    (
        "did my-model read the UUIDs and keys of train.txt? the base never saw them",
        "identifiers my-model train.txt --format uuid --format key.toml --base gpt2 --out audited",
    ),
    (
        "several files, with less text in front of each",
        "identifiers my-model 'shards/*.jsonl' --format api_key --left 50 --out audited",
    ),
)
_add_command(
    verbatim,
    "Does a model reproduce its documents? Without canaries.",
    (
        "which documents of train.txt come out of my-model, and of no model that never saw them",
        "verbatim my-model train.txt --reference gpt2 --out looked",
    ),
    (
        "against documents that were split off at random, with longer suffixes",
        "verbatim my-model train.jsonl --held-out test.jsonl --random-split --suffix-tokens 100 "
        "--out looked",
    ),
)
_add_command(
    canife,
    "Audit a federated training round by round, with crafted canaries.",
    (
        "users of records, with noise that promises something",
        "canife posts.jsonl --user-field user --noise-multiplier 0.8 --rounds 20 --every 5 "
        "--out federated",
    ),
    (
        "a text cut into clients, several epochs of small batches each",
        "canife novel.txt --clients 200 --set local_epochs=2 --set local_batch=8 --out federated",
    ),
)
_add_command(
    dp_check,
    "Check a private training, without training.",
    (
        "the training of train --method dp-sgd, of a model and a corpus of yours",
        "dp-check train.txt --model gpt2 --epsilon 8 --delta 1e-5",
    ),
    (
        "a promise for each user, by adapters",
        "dp-check train.jsonl --model gpt2 --lora --epsilon 8 --delta 1e-5 --set unit_field=user",
    ),
)
_add_command(
    dp_report,
    "What a private training let out about each document.",
    (
        "how the epsilons of single documents lie",
        "dp-report runs/private",
    ),
    (
        "which documents are the least private, for you alone",
        "dp-report runs/private --list documents.csv",
    ),
)
_add_command(demo, "The whole test on text that Python carries.")
_add_command(settings, "List what a command can be told, in a file too.")
app.add_typer(formats, name="formats", short_help="List, show and check the formats of secrets.")
