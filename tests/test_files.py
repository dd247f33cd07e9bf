"""What is written is whole or not there, and by one process at a time."""

import errno
import fcntl
import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lmexposure._files import (
    LOCK,
    append,
    atomic_directory,
    atomic_write,
    canonical_json,
    only_writer,
    read_bytes,
    sha256_bytes,
    sha256_file,
    write_json,
)
from lmexposure._integrity import check_seal, read_sealed
from lmexposure._written import LIST, study
from lmexposure.errors import FileError, ResultError


def test_a_file_appears_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "secret.json"
    with atomic_write(path, mode=0o600) as stream:
        stream.write(b"one")
        assert not path.exists()
    assert path.read_bytes() == b"one"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["secret.json"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("old")
    with pytest.raises(KeyError), atomic_write(path, replaces=re.compile(b"old").search) as stream:
        stream.write(b"new")
        raise KeyError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["kept"]


def test_a_full_disk_is_named_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "big"
    for number, said in (
        (errno.ENOSPC, r"No space left.*free some space"),
        (errno.EFBIG, r"File too large; raise the limit \(ulimit -f\)"),
    ):
        with pytest.raises(FileError, match=f"cannot write .*big: {said}"), atomic_write(path):
            raise OSError(number, os.strerror(number))
    assert os.listdir(tmp_path) == []


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write"), atomic_write(tmp_path / "file" / "x"):
        pass


def test_a_directory_appears_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with study(tmp_path):
        with atomic_directory(path) as partial:
            (partial / "old").write_text("")
        with atomic_directory(path) as partial:
            (partial / "new").write_text("")
            assert os.listdir(path) == ["old"]
        assert os.listdir(path) == ["new"]
        with pytest.raises(KeyError), atomic_directory(path) as partial:
            raise KeyError
    assert sorted(os.listdir(tmp_path)) == [LIST, "model"]


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path\n"
        "from lmexposure._files import atomic_directory, atomic_write, only_writer\n"
        "home = Path(sys.argv[1])\n"
        "with only_writer(home), atomic_write(home / 'x'), atomic_directory(home / 'model') as m:\n"
        "    (m / 'stale').write_text('')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert {".x.partial", ".model.partial"} < set(os.listdir(tmp_path))
    with only_writer(tmp_path):
        with atomic_directory(tmp_path / "model") as partial:
            assert (partial.name, os.listdir(partial)) == (".model.partial", [])
        write_json(tmp_path / "x", {"b": 1})
    assert json.loads((tmp_path / "x").read_text()) == {"b": 1}
    assert sorted(os.listdir(tmp_path)) == [LIST, "model", "x"]


def test_canonical_json_has_one_spelling() -> None:
    assert canonical_json({"b": 1, "a": ["é"]}) == '{"a":["é"],"b":1}'.encode()
    with pytest.raises(ValueError, match="Out of range float values"):
        canonical_json(float("nan"))


def test_hashes_are_of_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
    assert sha256_file(tmp_path / "a") == sha256_bytes(b"abc") == known


Write = Callable[[Path, bytes], None]


def _write(path: Path, data: bytes) -> None:
    with atomic_write(path) as stream:
        stream.write(data)


def test_two_who_write_one_file_or_directory_are_told(tmp_path: Path) -> None:
    refused = pytest.raises(FileError, match="another process writes it as well")
    with study(tmp_path), refused, atomic_write(tmp_path / "a") as one:
        one.write(b"one")
        _write(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"
    path = tmp_path / "d"
    with study(tmp_path), refused, atomic_directory(path), atomic_directory(path) as two:
        (two / "two").write_bytes(b"two")
    assert [one.name for one in path.iterdir()] == ["two"]
    assert sorted(os.listdir(tmp_path)) == [LIST, "a", "d"]


@pytest.mark.parametrize("write", [_write, append])
def test_a_link_is_followed_and_stays(tmp_path: Path, write: Write) -> None:
    """The file gets the new content, a link that leads nowhere yet a file; partials lie there."""
    there = tmp_path / "elsewhere"
    there.mkdir()
    (there / "old").write_bytes(b"")
    (tmp_path / "first").symlink_to("elsewhere/old")
    (tmp_path / "second").symlink_to(tmp_path / "first")
    (tmp_path / "dangling").symlink_to(there / "deep" / "new")
    (tmp_path / "home").symlink_to(there)
    for name, target in (("second", "old"), ("dangling", "deep/new"), ("home/third", "third")):
        write(tmp_path / name, name.encode())
        assert (there / target).read_bytes() == name.encode()
    assert all((tmp_path / name).is_symlink() for name in ("first", "second", "dangling", "home"))
    assert sorted(os.listdir(there)) == ["deep", "old", "third"]
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(FileError, match=r"cannot write .*/a: .*choose a path whose links lead"):
        write(tmp_path / "a", b"")


def test_of_hard_links_only_the_name_that_is_written_changes(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"old")
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    with atomic_write(tmp_path / "two", replaces=re.compile(b"old").search) as stream:
        stream.write(b"new")
    assert ((tmp_path / "one").read_bytes(), (tmp_path / "two").read_bytes()) == (b"old", b"new")


def test_a_dash_is_standard_output_which_keeps_its_order_and_gets_all_or_none(
    tmp_path: Path,
) -> None:
    script = (
        "import contextlib\n"
        "from lmexposure._files import STDOUT, atomic_write, is_taken\n"
        "print('first')\n"
        "with atomic_write(STDOUT) as out: out.write(b'second\\n')\n"
        "print('third')\n"
        "with contextlib.suppress(KeyError), atomic_write(STDOUT) as out:\n"
        "    out.write(b'half')\n"
        "    raise KeyError\n"
        "assert not is_taken(STDOUT)\n"
    )
    (tmp_path / "-").write_bytes(b"another's")
    with open(tmp_path / "out", "wb") as out:
        subprocess.run([sys.executable, "-c", script], stdout=out, check=True, cwd=tmp_path)
    assert (tmp_path / "out").read_text().split() == ["first", "second", "third"]
    assert sorted(os.listdir(tmp_path)) == ["-", "out"]
    reading, writing = os.pipe()
    os.close(reading)
    script = (
        "from lmexposure._files import STDOUT, atomic_write\n"
        "with atomic_write(STDOUT) as out: out.write(b'lost')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    assert "cannot write -: Broken pipe; its reader ended early; let it read" in done.stderr
    os.close(writing)


@pytest.mark.parametrize("write", [_write, append])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, write: Write) -> None:
    """A descriptor's name too, where a file is behind it: other writers of it would be lost."""
    (tmp_path / "d").mkdir()
    (tmp_path / "to-d").symlink_to("d")
    for name in ("d", "to-d"):
        with pytest.raises(FileError, match="it is a directory; give the name of a file, or -"):
            write(tmp_path / name, b"")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-null").symlink_to(os.devnull)
    with open(tmp_path / "log", "wb") as log, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        opened = (f"/dev/fd/{log.fileno()}", f"/proc/self/fd/{log.fileno()}", "/dev/stdout")
        made = (tmp_path / name for name in ("pipe", "to-null", "s"))
        for path in (*map(Path, opened), Path(os.devnull), *made):
            with pytest.raises(
                FileError, match="it is no regular file; give the name of a file, or - for standard"
            ):
                write(path, b"lost")
    assert sorted(os.listdir(tmp_path)) == ["d", "log", "pipe", "s", "to-d", "to-null"]
    assert (tmp_path / "log").read_bytes() == b""


def test_a_directory_is_built_where_its_link_leads(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "model").symlink_to("disk")
    with atomic_directory(tmp_path / "model") as partial:
        (partial / "new").write_text("")
    assert (tmp_path / "model").is_symlink()
    assert os.listdir(tmp_path / "disk") == ["new"]
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="it is no directory; choose another name"):
        atomic_directory(tmp_path / "file").__enter__()
    assert sorted(os.listdir(tmp_path)) == ["disk", "file", "model"]


def test_a_directory_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, then the directories that name them, then the name, then what holds the name."""
    done: list[str] = []
    sync, rename = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    def renamed(before: Path, after: Path) -> None:
        done.append(f"{before.name} -> {after.name}")
        rename(before, after)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    for number in range(2):
        done.clear()
        with study(tmp_path), atomic_directory(tmp_path / "model") as partial:
            (partial / "inner").mkdir()
            (partial / "inner" / f"file{number}").write_text("")
    inside = [LIST, "file1", "inner", ".model.partial"]
    # What is listed is so before it has its name.
    names = [LIST, LIST, "model -> .model.old", ".model.partial -> model"]
    assert [one for one in done if one != LIST] == [
        one for one in (*inside, *names, tmp_path.name) if one != LIST
    ]
    assert done.index(LIST) < done.index(".model.partial -> model")
    done.clear()
    _write(tmp_path / "file", b"")
    assert done == [".file.partial", ".file.partial -> file", tmp_path.name]


def test_a_disk_that_promises_nothing_for_directories_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(number: int) -> Callable[[int], None]:
        def fsync(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(number, os.strerror(number))

        return fsync

    monkeypatch.setattr(os, "fsync", refusing(errno.EINVAL))
    _write(tmp_path / "a", b"")
    monkeypatch.setattr(os, "fsync", refusing(errno.EIO))
    with pytest.raises(FileError, match="Input/output error"):
        _write(tmp_path / "b", b"")


HOLD = """
import subprocess, sys, time
from lmexposure._files import only_writer
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


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.EIO])
def test_a_file_system_without_locks_is_said_once_and_used_and_other_failures_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    if number == errno.EIO:
        with pytest.raises(FileError, match="Input/output error"), only_writer(tmp_path):
            pass
    else:
        with only_writer(tmp_path):
            (tmp_path / "done").write_text("")
        assert "is on a file system without locks" in caplog.text


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


@pytest.mark.timeout(20)
def test_a_pipe_is_read_to_its_end_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_bytes(tmp_path / "pipe") == b""
    reader, writer = os.pipe()
    os.write(writer, b"passed on")
    os.close(writer)
    assert read_bytes(f"/dev/fd/{reader}") == b"passed on"
    os.close(reader)
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("read", [sha256_file, check_seal, read_sealed])
def test_what_is_no_regular_file_is_neither_waited_for_nor_hashed(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(OSError, match="no regular file"):
            read(path)
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(OSError, match="Is a directory"):
        read(tmp_path)
    assert len(os.listdir("/dev/fd")) == before
