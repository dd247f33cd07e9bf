"""Where the installed command begins: exit codes, and what a person sees of an error.

0 fine; 3 bad input, wrong usage or any failure; 130 Ctrl-C or SIGTERM. (1, a leak, and 2,
inconclusive, are verdicts.) Click's own 2 for wrong usage and Python's 1 for an uncaught exception
become 3. A pipe whose reader has had enough is no failure and nothing is said of it: what is done
keeps its code, such as a verdict; work that it cut short ends as by SIGPIPE, with the shells' 141.
"""

import errno
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn, Protocol, TextIO, runtime_checkable

from lmexposure._style import visible
from lmexposure.errors import LmexposureError, SettingsError

FAILURE = 3
INTERRUPTED = 130  # what shells say of Ctrl-C, and Typer too
CLOSED = 141  # and of a program that wrote into a closed pipe
DEBUG = "--debug"
_BUG = (
    "unexpected failure: {}; this is a bug in lmexposure: please report it, with what the same "
    "command prints with --debug"
)


def main() -> NoReturn:
    """Run the command line and exit."""
    _end_as_by_ctrl_c()
    try:
        code = _run()
        _leave_group()
    except KeyboardInterrupt:  # while modules are imported, or a second one
        sys.stderr.write("error: stopped\n")
        code = INTERRUPTED
    sys.exit(code if _all_was_written() or code == INTERRUPTED else FAILURE)


def _end_as_by_ctrl_c() -> None:
    """SIGTERM, of schedulers, is Ctrl-C; where that is ignored it ends us as it always did."""
    usual = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if usual and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def _all_was_written() -> bool:
    """Whether all was printed that has a reader; found out here: Python would exit with 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as failure:
        sys.stdout = None  # nothing is left to flush
        return failure.errno == errno.EPIPE
    return True


def _leave_group() -> None:
    """Leave the group of processes that torchrun started: left to the exit, this may abort."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _refuse_nothing(words: Sequence[str]) -> None:
    """No path, name or number is empty; as a path, an empty one would be the current directory."""
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
    """Typer's own exceptions, which can be shown."""

    def show(self, file: TextIO | None = None) -> None: ...


def _taken_out(flag: str) -> bool:
    """Whether a flag is among the words of the command line; it is removed from them."""
    words = sys.argv[1 : sys.argv.index("--") if "--" in sys.argv else None]
    if flag in words:
        sys.argv.remove(flag)
    return flag in words


def _usage(failure: _Showing) -> str:
    """What Typer says of wrong usage, with what was typed on one line."""
    message = getattr(failure, "message", None)
    # A help, where nothing was typed, keeps its lines.
    if isinstance(message, str) and not message.startswith("Usage: "):
        vars(failure)["message"] = visible(message)
    shown = io.StringIO()
    failure.show(file=shown)
    return shown.getvalue()


def _say_failure(failure: BaseException, *, debug: bool) -> None:
    """Say what ended a command: an error of ours, Ctrl-C, wrong usage, the disk, or a bug."""
    import typer

    from lmexposure.cli.console import STOPPED, Stopped, error, said, show_failure

    match failure:
        case LmexposureError() | Stopped():
            error(said(str(failure)))
        case typer.Abort() | KeyboardInterrupt():
            error(STOPPED)
        case OSError(errno=errno.ENAMETOOLONG):
            error(f"a part of a path is longer than the disk takes: {failure.filename}; shorten it")
        case OSError(errno=errno.ENOSPC):
            error(f"the disk is full: {failure}; free some space and run the same command again")
        case OSError(errno=errno.EFBIG):
            error(
                f"a file may not get larger here: {failure}; raise the limit (ulimit -f), or send "
                "what is printed to another place, and run the same command again"
            )
        case _Showing():  # wrong usage
            show_failure(_usage(failure))
        case _:
            if debug:
                show_failure(traceback.format_exc())
            error(_BUG.format(f"{type(failure).__name__}: {failure}"))


def _wait_patiently() -> None:
    """Have threads of OpenMP, which torch loads, not wait for each other in a long loop.

    With two busy programs on two cores that makes a training ten times slower. Threads that sleep
    at once cost a quiet machine a fifth; with a short loop two threads are a tenth slower than at
    best where it is quiet, and no slower than one where it is busy.
    """
    if not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}:
        os.environ["GOMP_SPINCOUNT"] = "10000"


def _hush() -> None:
    """Leave unsaid what libraries log, when they are imported, of kernels for other machines."""
    import logging

    for name in ("torchao", "bitsandbytes", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _run() -> int:
    # Other packages report progress and advice in their own ways; we show our own.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    _wait_patiently()
    _hush()

    import typer

    from lmexposure.cli.app import app
    from lmexposure.cli.console import STOPPED, Stopped, error

    debug = _taken_out(DEBUG)
    try:
        _refuse_nothing(sys.argv[1:])
        code = app(standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except SystemExit:  # rich's answer to a closed pipe is 1, which here would mean a leak
        return CLOSED
    except (Exception, KeyboardInterrupt, Stopped) as failure:
        _say_failure(failure, debug=debug)
        pressed = isinstance(failure, typer.Abort | KeyboardInterrupt | Stopped)
        return INTERRUPTED if pressed else FAILURE
    if code == INTERRUPTED:
        error(STOPPED)
    return code if isinstance(code, int) else 0
