"""`lmexposure settings`: what each command can be told, by flag, by file and from Python."""

from typing import Annotated

import typer

from lmexposure._settings import refuse_unknown
from lmexposure._style import count
from lmexposure.cli import options
from lmexposure.cli.console import print_table, say

TAKEN = {**options.TAKEN, "check": options.THRESHOLDS}


def settings(
    command: Annotated[
        str | None, typer.Argument(help=f"Which: {', '.join(TAKEN)}.  [default: all, by number]")
    ] = None,
) -> None:
    """List the settings of COMMAND: key of a settings file, flag, default, and what it decides.

    A key is also the keyword of the Python function of that name. What has no flag is set by --set
    KEY=VALUE, or in a file that --settings names.
    """
    if command is None:
        numbers = [(name, count(len(TAKEN[name].settings), "setting")) for name in TAKEN]
        print_table(("command", "takes"), numbers)
        say("lmexposure settings COMMAND lists them")
        return
    refuse_unknown([command], TAKEN, what="command")
    flags = TAKEN[command].flags
    rows = [
        (name, told.flag if name in flags else "", *TAKEN[command].words(name), told.range)
        for name, told in TAKEN[command].settings.items()
    ]
    print_table(("key", "flag", "default", "what it decides", "range"), rows)
    if command == "check":
        say("in a settings file they are in the table [check]")
