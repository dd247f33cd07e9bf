"""One process at a time in a directory, and none after it was killed."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lmexposure._locks import LOCK, only_writer
from lmexposure.errors import FileError, ResultError

HOLD = """
import subprocess, sys, time
from lmexposure._locks import only_writer
with only_writer(sys.argv[1]):
    if len(sys.argv) > 2:  # a child that outlives its parent must not inherit the lock
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(9)"], close_fds=False)
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def _held(out: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds a directory."""
    words = [sys.executable, "-c", HOLD, str(out), *more]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with _held(out, "with a child") as process:
        with (
            pytest.raises(ResultError, match=r"at work in .*/run; wait until it has ended, or"),
            only_writer(out),
        ):
            pass
        assert (out / LOCK).exists()
        process.kill()
        process.wait()
        with only_writer(out):
            pass
    assert os.listdir(out) == []


def test_a_step_goes_on_in_its_run_and_a_thread_does_not(tmp_path: Path) -> None:
    refused: list[str] = []

    def intrude() -> None:
        try:
            with only_writer(tmp_path):
                pass
        except ResultError as failure:
            refused.append(str(failure))

    (tmp_path / "link").symlink_to(tmp_path)
    with only_writer(tmp_path):
        with only_writer(tmp_path / "link"):
            pass
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
    assert "another process is at work" in refused[0]
    intrude()
    assert len(refused) == 1
    assert os.listdir(tmp_path) == ["link"]


def test_a_lock_that_its_holder_removed_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking, the holder may remove the file, and a third make another."""
    flock = fcntl.flock
    opened: list[int] = []

    def late(descriptor: int, how: int) -> None:
        if not opened:
            (tmp_path / LOCK).unlink()
        opened.append(descriptor)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with only_writer(tmp_path):
        held = os.stat(tmp_path / LOCK).st_ino
        assert len(opened) == 2
        assert os.fstat(opened[-1]).st_ino == held
    assert not (tmp_path / LOCK).exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_is_said_once_and_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with only_writer(tmp_path):
        (tmp_path / "done").write_text("")
    assert "is on a file system without locks" in caplog.text


def test_what_the_disk_says_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int, how: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(FileError, match="Input/output error"), only_writer(tmp_path):
        pass


def test_a_directory_that_may_not_be_written_to_is_not_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with only_writer(tmp_path):
        pass
    assert os.listdir(tmp_path) == []


def test_a_file_is_left_to_who_wants_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with only_writer(tmp_path / "file"):
        pass
    with pytest.raises(FileError, match="cannot write"), only_writer(tmp_path / "file" / "run"):
        pass


def test_of_several_processes_of_one_training_only_the_first_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    with only_writer(tmp_path):
        assert os.listdir(tmp_path) == []
