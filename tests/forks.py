"""Processes for tests, forked from one that has loaded torch and transformers already.

A new interpreter takes six seconds of processor time to load them, and the launcher of two takes
them too. What is forked from has run nothing else: no model, no thread, no state of a test.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

__all__ = ["die_behind", "start", "together"]

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    ["torch.distributed", "transformers.trainer", "lmexposure.cli.app", "lmexposure.integrations"]
)


def start(
    work: Callable[..., object], *arguments: Any, said: Path, environment: dict[str, str]
) -> BaseProcess:
    """Call `work(*arguments)` in a process of its own, whose output is appended to `said`."""
    process = _SERVER.Process(target=_run, args=(work, arguments, said, os.environ | environment))
    process.start()
    return process


def die_behind(number: int) -> None:
    """Have this process killed behind its so-manieth write: nothing of it can tidy up."""
    put, writes = os.replace, count()

    def replace(source: Any, target: Any) -> None:
        put(source, target)
        if next(writes) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace  # type: ignore[assignment]


def together(count: int, work: Callable[..., object], *arguments: Any, said: Path) -> None:
    """The same call in processes that find each other, as torchrun starts them; all end with 0."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "ACCELERATE_USE_CPU": "true",
    }
    started = [
        start(
            work,
            *arguments,
            said=said,
            environment=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(count)
    ]
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0] * count, said.read_text()[-4000:]


def _run(
    work: Callable[..., object], arguments: tuple[Any, ...], said: Path, environment: dict[str, str]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with said.open("ab") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
    work(*arguments)
