"""The models of a sweep as tasks of Ray: one a model, each with a core and a thread of its own.

Ray deals out the tasks and calls a lost one again; who is done is seen on the disk that all share.
This file is read by every worker before torch is, so that it imports nothing heavy.
"""

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import ExitStack, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmexposure._files import sha256_file
from lmexposure.errors import BusyError, LmexposureError, ResultError

if TYPE_CHECKING:
    from lmexposure.studies import FailedModel, SweepModel
    from lmexposure.sweeps.driver import Executor, Outcome
    from lmexposure.sweeps.task import SweepDirectory

_RETRIES = 3  # of a task whose worker was lost
_BEAT_SECONDS = 5.0  # in which it is said how far the models are
_CONNECT_SECONDS, _JOIN_SECONDS = 5.0, 30.0  # for an address to answer, and for its cluster to
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Ray reports how it is used, and has advice for its own future, unless it is told not to.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_LONGEST = 40  # characters of a temporary directory, for a socket's path takes 107
_AGAIN = "the same command goes on at the models that are missing"
_JOIN = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False)"


@contextmanager
def on_ray(
    directory: "SweepDirectory",
    *,
    workers: int | None,
    address: str | None,
    beat: Callable[[int], None] = lambda places: None,
) -> Iterator["Executor"]:
    """Train models as tasks of Ray, on a cluster, or on this machine alone.

    The beat is told at once and every few seconds how many are trained side by side.

    A Ray that this process has begun is left as it is. One that is begun here listens on 127.0.0.1,
    and keeps its files in a directory of the user's alone, removed in the end.
    """
    import ray

    with nullcontext() if ray.is_initialized() else _begun(workers, address):
        try:
            tasks = _Tasks(ray, directory, workers, beat)
            try:
                yield tasks.train
            finally:
                tasks.cancel()
        except SystemExit:  # what Ray makes of SIGTERM, and of a cluster that went away
            signal.alarm(0)  # with which Ray would abort this process in three seconds
            raise ResultError(f"Ray ended, or this process was told to end; {_AGAIN}") from None


@contextmanager
def _begun(workers: int | None, address: str | None) -> Iterator[None]:
    """Start Ray on this machine, or join a cluster, until the block ends."""
    import ray

    with ExitStack() as stack:
        settings: dict[str, Any] = {}
        if address is None:
            place = stack.enter_context(_private_directory())
            stack.enter_context(_on_loopback())
            # Ray opens its own directory to everyone: it gets one within.
            settings = {"_node_ip_address": "127.0.0.1", "_temp_dir": str(place / "ray")}
            settings |= {"num_cpus": workers, "include_dashboard": False}
        stack.callback(ray.shutdown)  # before its directory is removed
        _begin(address, **settings)
        yield


@contextmanager
def _private_directory() -> Iterator[Path]:
    """A directory of the user's alone with a short name, removed in the end."""
    there = tempfile.gettempdir()
    short = there if len(there) <= _LONGEST else "/tmp"
    place = Path(tempfile.mkdtemp(prefix="lmexposure-", dir=short))  # mode 0700
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Have Ray stay on the address that it is given; else it takes one that others reach for it."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _begin(address: str | None, **settings: Any) -> None:
    """Start Ray, or join it."""
    import ray

    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    if address is not None:
        _check_reachable(address)
    quiet = {"log_to_driver": False, "configure_logging": False}
    try:
        ray.init(address=address or "local", **quiet, **settings)
    except (Exception, SystemExit) as failure:  # Ray has no kind of its own for it
        where = f"join the Ray cluster at {address}" if address else "start Ray on this machine"
        raise ResultError(
            f"cannot {where}: {_first_line(failure)}; choose workers=1 without an address to do "
            "without Ray"
        ) from failure


def _check_reachable(address: str) -> None:
    """Find out in seconds that a cluster does not answer, which takes Ray minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    refused = f"the Ray cluster at {address} is out of reach: {{}}; name a head node as HOST:PORT"
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        except (OSError, OverflowError) as failure:
            raise ResultError(refused.format(_first_line(failure))) from failure
    # A process of its own: what a broken connection does to the one that has it, no `try` undoes.
    try:
        joined = subprocess.run(
            [sys.executable, "-c", _JOIN, address],
            capture_output=True,
            text=True,
            timeout=_JOIN_SECONDS,
        )
    except subprocess.TimeoutExpired:
        why = f"it did not answer as Ray does within {_JOIN_SECONDS:.0f} s"
        raise ResultError(refused.format(why)) from None
    if joined.returncode:
        said = joined.stderr.strip().splitlines() or ["it refused"]
        raise ResultError(refused.format(said[-1]))


class _Tasks:
    """Tasks of a sweep under way."""

    def __init__(
        self,
        ray: Any,
        directory: "SweepDirectory",
        workers: int | None,
        beat: Callable[[int], None],
    ) -> None:
        self._ray, self._beat = ray, beat
        self._call = (str(directory.out.resolve()), _hash_of_plan(directory.out))
        there = ray.cluster_resources()
        share = gpu_share(directory.plan.settings.run.device, there.get("GPU", 0.0), workers)
        most = there.get("GPU", 0.0) if share else there.get("CPU", 1.0)
        self._side_by_side = workers or max(1, int(most))
        options = {"num_cpus": 1, "max_retries": _RETRIES, "retry_exceptions": False}
        self._task = ray.remote(**options, num_gpus=share)(train_in_worker)
        self._running: dict[Any, int] = {}

    def train(self, numbers: Sequence[int]) -> "Iterator[tuple[int, Outcome | None]]":
        """Train these models; each comes with how it ended, in the order in which they end."""
        waiting = list(reversed(numbers))
        self._beat(self._side_by_side)
        while waiting or self._running:
            while waiting and len(self._running) < self._side_by_side:
                number = waiting.pop()
                self._running[self._task.remote(*self._call, number)] = number
            # Not `ray.wait`, in which an exception that Ctrl-C raises is lost.
            futures = {ref.future(): ref for ref in self._running}
            ended, _ = wait(futures, timeout=_BEAT_SECONDS, return_when=FIRST_COMPLETED)
            if ended:
                yield self._outcome(futures[next(iter(ended))])
            else:
                self._beat(self._side_by_side)

    def cancel(self) -> None:
        """End what is still under way; nothing of it is lost but the time since its checkpoint."""
        for task in self._running:
            self._ray.cancel(task, force=True)

    def _outcome(self, task: Any) -> "tuple[int, Outcome | None]":
        """How a task ended."""
        number = self._running.pop(task)
        try:
            outcome = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as failure:  # no error of ours: a bug
            raise failure.cause from failure
        except self._ray.exceptions.RayError as failure:
            raise ResultError(
                f"the worker of model {number} was lost {1 + _RETRIES} times, and may want more "
                f"memory: {_first_line(failure)}; choose fewer workers, {_AGAIN}"
            ) from failure
        if isinstance(outcome, BusyError):
            return number, None
        if isinstance(outcome, LmexposureError):
            raise outcome
        return number, outcome


def gpu_share(device: str, gpus: float, workers: int | None) -> float:
    """Which part of a GPU each task gets."""
    if device.startswith("cuda") and not gpus:
        raise ResultError(
            f"device={device!r}, and Ray sees no GPU; choose workers=1 without an address, or a "
            "cluster with GPUs"
        )
    if not gpus or not (device == "auto" or device.startswith("cuda")):
        return 0.0
    return min(1.0, gpus / (workers or gpus))


def train_in_worker(
    out: str, plan_sha256: str, number: int
) -> "SweepModel | FailedModel | LmexposureError":
    """One model, in a worker; an error of ours is given back, and no reason to try again."""
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"), TOKENIZERS_PARALLELISM="false")
    from lmexposure.sweeps.task import task  # brings torch, which reads the environment

    try:
        return task(_opened(out, plan_sha256), number)
    except LmexposureError as failure:
        return failure


@lru_cache(maxsize=1)
def _opened(out: str, plan_sha256: str) -> "SweepDirectory":
    """The sweep: a worker that trains several models reads its corpus once."""
    from lmexposure.sweeps.task import SweepDirectory

    _check_shared(Path(out), plan_sha256)
    return SweepDirectory.open(out)


def _check_shared(out: Path, plan_sha256: str) -> None:
    """See that a worker has the driver's disk."""
    try:
        seen = _hash_of_plan(out)
    except OSError:
        seen = None
    if seen != plan_sha256:
        what = "has no plan of a sweep" if seen is None else "has another plan"
        raise ResultError(
            f"the machine {socket.gethostname()} {what} in {out}; choose a directory on a disk "
            "that all machines of the cluster share"
        )


def _hash_of_plan(out: Path) -> str:
    return sha256_file(out / "plan.json")


def _first_line(failure: BaseException) -> str:
    lines = str(failure).strip().splitlines()
    return lines[0] if lines else type(failure).__name__
