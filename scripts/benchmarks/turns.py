"""Processes that take turns, so that what slows the machine for a while slows them all alike.

Step times of one training differ by a tenth from one minute to the next where others use the
machine. Trainings that run one after the other would show that difference as their own.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Turns", "alternate", "workers"]


class Turns:
    """In a process: waits for its turn, and a clock that stands still while it waits."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._waited = connection, 0.0

    def clock(self) -> float:
        """Seconds of its own turns."""
        return time.perf_counter() - self._waited

    def next(self) -> None:
        """Let the others have theirs."""
        began = time.perf_counter()
        self._connection.send(None)
        self._connection.recv()
        self._waited += time.perf_counter() - began


@contextmanager
def workers(number: int, serve: Callable[[Connection], None]) -> Iterator[list[Connection]]:
    """So many fresh processes that serve, all ready; at the end they end.

    Args:
        serve: receives jobs until it gets None; says something once it is ready, and at the end
            of each job.
    """
    context, connections, processes = get_context("spawn"), [], []
    try:
        for _ in range(number):
            here, there = context.Pipe()
            processes.append(context.Process(target=serve, args=(there,), daemon=True))
            connections.append(here)
            processes[-1].start()
            there.close()  # a worker that dies is then heard of
        for connection in connections:
            connection.recv()
        yield connections
    finally:
        for connection in connections:
            connection.close()
        for process in processes:
            process.join(10)
            process.kill()


def alternate(connections: Sequence[Connection], jobs: Sequence[Any]) -> list[Any]:
    """Give each its job, let them work in turn, forth and back (ABCCBA); what each says at the end.

    Raises:
        EOFError: one of them died.
    """
    said: list[Any] = [None] * len(jobs)
    left, forth = list(range(len(jobs))), True
    begun: set[int] = set()
    while left:
        for i in left if forth else left[::-1]:
            connections[i].send(None if i in begun else jobs[i])
            said[i] = connections[i].recv()
            begun.add(i)
        left, forth = [i for i in left if said[i] is None], not forth
    return said
