"""Where the installed command begins: exit codes, and what a person sees of an error.

0 fine; 3 bad input, wrong usage or any failure. (1, a leak, and 2, inconclusive, are verdicts of
the gate.) Click's own 2 for wrong usage and Python's 1 for an uncaught exception become 3.
"""

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn, Protocol, TextIO, runtime_checkable

from lmexposure._text import visible
from lmexposure.errors import LmexposureError, SettingsError

FAILURE = 3
DEBUG = "--debug"
_UNFORESEEN = (
    "a failure that this tool did not foresee: {}; it is an error of ours: please report it, with "
    "what the same command prints with --debug"
)
_INTERRUPTED = 130  # what Typer makes of Ctrl-C


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        code = _run()
    except KeyboardInterrupt:  # in the first second, while modules are still imported
        sys.stderr.write("error: stopped before anything was begun\n")
        sys.exit(FAILURE)
    _leave_group()
    sys.exit(code if _all_was_read() else FAILURE)


def _all_was_read() -> bool:
    """Whether somebody took what was printed; found out here, Python ends as we say."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        sys.stdout = None  # nothing is left to flush
        return False
    return True


def _leave_group() -> None:
    """Part from the other processes that torchrun started: left to the exit, this may abort."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _refuse_nothing(words: Sequence[str]) -> None:
    """No path, name or number is empty; as a path, an empty one would be the current directory.

    Raises:
        SettingsError: an empty word, or a flag that is given nothing.
    """
    for before, word in pairwise(("", *words)):
        flag, equals, value = word.partition("=")
        if not word or (flag.startswith("--") and equals and not value):
            given = before if before.startswith("--") and not word else flag
            raise SettingsError(
                f"{given or 'an argument'} is empty; give a name, such as a path, or leave it out"
            )
        if "\0" in word:
            raise SettingsError(f"{word!r} holds a NUL, and no path or name does; give another")


@runtime_checkable
class _Showing(Protocol):
    """Typer's own exceptions: they know how to be shown."""

    def show(self, file: TextIO | None = None) -> None: ...


def _taken_out(flag: str) -> bool:
    """Whether a flag is anywhere among the command's words; it is taken out of them."""
    words = sys.argv[1 : sys.argv.index("--") if "--" in sys.argv else None]
    if flag in words:
        sys.argv.remove(flag)
    return flag in words


def _usage(failure: _Showing) -> str:
    """What Typer says of wrong usage, the words of a person in one line."""
    message = getattr(failure, "message", None)
    # Of our own help, where nothing was typed, the lines are lines.
    if isinstance(message, str) and not message.startswith("Usage: "):
        vars(failure)["message"] = visible(message)
    said = io.StringIO()
    failure.show(file=said)
    return said.getvalue()


def _wait_patiently() -> None:
    """Before torch loads OpenMP, whose threads otherwise wait for each other in a long loop.

    Beside two busy programs on two cores that makes a training ten times slower. Threads that sleep
    at once cost a quiet machine a fifth; with a short loop two threads are a tenth slower than at
    best where it is quiet, and no slower than one where it is busy.
    """
    if not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}:
        os.environ["GOMP_SPINCOUNT"] = "10000"


def _run() -> int:
    # Third parties report progress and advice in their own way; ours is told by our own table.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    _wait_patiently()

    import typer

    from lmexposure.cli.app import app
    from lmexposure.cli.console import error, show_failure
    from lmexposure.cli.long_work import STOPPED, Stopped

    debug = _taken_out(DEBUG)
    try:
        _refuse_nothing(sys.argv[1:])
        code = app(standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except Stopped as stop:
        error(str(stop))
        return FAILURE
    except (typer.Abort, KeyboardInterrupt):
        error(STOPPED)
        return FAILURE
    except SystemExit:  # Click's answer to a pipe that nobody reads is 1: to ours, a leak
        error("nobody read what was printed; send it to a file instead")
        return FAILURE
    except LmexposureError as failure:
        error(str(failure))
        return FAILURE
    except Exception as failure:
        if isinstance(failure, OSError) and failure.errno == errno.ENAMETOOLONG:
            error(f"a part of a path is longer than the disk takes: {failure.filename}; shorten it")
        elif isinstance(failure, OSError) and failure.errno == errno.ENOSPC:
            error(f"the disk is full: {failure}; free some space and run the same command again")
        elif isinstance(failure, _Showing):  # wrong usage
            show_failure(_usage(failure))
        else:
            if debug:
                show_failure(traceback.format_exc())
            error(_UNFORESEEN.format(f"{type(failure).__name__}: {failure}"))
        return FAILURE
    if code == _INTERRUPTED:
        error(STOPPED)
        return FAILURE
    return code if isinstance(code, int) else 0
