"""The commands, by name. Each lives in its own file and imports heavy rooms only when it runs."""

from typing import Annotated

import typer

from lmexposure import __version__
from lmexposure.cli.check import check
from lmexposure.cli.compare import compare
from lmexposure.cli.demo import demo
from lmexposure.cli.epsilon import epsilon
from lmexposure.cli.formats import formats
from lmexposure.cli.help import EXAMPLES, PanelCommand, examples, width
from lmexposure.cli.insert import insert
from lmexposure.cli.measure import measure
from lmexposure.cli.remove import remove
from lmexposure.cli.report import report
from lmexposure.cli.run import run
from lmexposure.cli.train import train
from lmexposure.cli.verify import verify

app = typer.Typer(
    name="lmexposure",
    help="Measure how much of its training data a language model gives away.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": width(), "terminal_width": width()},
    epilog="Begin with: lmexposure demo --quick",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    # For the help alone: the entry point takes it out of every command line.
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error of ours.")
    ] = False,
) -> None:
    """Measure how much of its training data a language model gives away."""


# What the list of commands says of each: no more than a narrow terminal shows of it.
_SHORT = {
    "run": "Insert, train, measure and report: the whole test.",
    "insert": "Put canaries into a corpus, and write its manifest.",
    "verify": "Count the canaries that a corpus holds.",
    "remove": "Take the canaries out again.",
    "train": "Train a model on a corpus.",
    "measure": "Measure any model against a manifest.",
    "report": "Write the report of a run.",
    "compare": "Say which of several runs leaks more.",
    "check": "Stop a release that leaks: verdict and exit code.",
    "epsilon": "Bound epsilon from scores of your own.",
    "demo": "The whole test on text that Python carries.",
}

for command in (run, insert, verify, remove, train, measure, report, compare, check, epsilon, demo):
    shown, what = EXAMPLES.get(command.__name__, ()), _SHORT[command.__name__]
    app.command(cls=PanelCommand, epilog=examples(*shown) or None, short_help=what)(command)
app.add_typer(formats, name="formats", short_help="List, show and check the formats of secrets.")
