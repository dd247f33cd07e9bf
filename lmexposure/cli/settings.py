"""`lmexposure settings`: what each command can be told, by flag, by file and from Python."""

from typing import Annotated

import typer

from lmexposure._settings import Setting, refuse_unknown, settings_taken
from lmexposure._style import count
from lmexposure.cli import options
from lmexposure.cli.console import print_table, say
from lmexposure.core import Thresholds

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
        numbers = [(name, count(len(settings_of_command(name)), "setting")) for name in TAKEN]
        print_table(("command", "takes"), numbers)
        say("lmexposure settings COMMAND lists them")
        return
    refuse_unknown([command], TAKEN, what="command")
    flags = TAKEN[command].flags
    rows = [
        (name, told.flag if name in flags else "", told.shown_default, told.range, told.help)
        for name, told in settings_of_command(command).items()
    ]
    print_table(("key", "flag", "default", "range", "what it decides"), rows)
    if TAKEN[command].record is Thresholds:
        say("in a settings file they are in the table [check]")


def settings_of_command(name: str) -> dict[str, Setting]:
    """What a command can be told, by key: flags first, then what a file or --set says."""
    group = TAKEN[name]
    every = group.flags if group.record is None else settings_taken(group.record)
    return {**group.flags, **every}
