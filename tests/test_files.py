import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmexposure._files import (
    atomic_directory,
    atomic_write,
    canonical_json,
    sha256_bytes,
    sha256_file,
    write_json,
)
from lmexposure.errors import FileError


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
    with pytest.raises(KeyError), atomic_write(path) as stream:
        stream.write(b"new")
        raise KeyError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["kept"]


def test_a_full_disk_is_named_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "big"
    with (
        pytest.raises(FileError, match=r"cannot write .*big: No space left.*free some space"),
        atomic_write(path),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_json_onto_a_full_disk(tmp_path: Path) -> None:
    """A real ENOSPC: the partial file is a link to a device that is always full."""
    script = (
        "import os, sys\n"
        "from lmexposure import _files\n"
        "real = os.open\n"
        "os.open = lambda path, *rest: real('/dev/full', os.O_WRONLY)\n"
        "_files.write_json(_files.Path(sys.argv[1]), {'a': 1})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "x.json")], capture_output=True, text=True
    )
    assert "FileError" in done.stderr
    assert "No space left on device" in done.stderr
    assert not (tmp_path / "x.json").exists()


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write"), atomic_write(tmp_path / "file" / "x"):
        pass


def test_a_directory_appears_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").write_text("")
    with atomic_directory(path) as partial:
        (partial / "new").write_text("")
        assert os.listdir(path) == ["old"]
    assert os.listdir(path) == ["new"]
    with pytest.raises(KeyError), atomic_directory(path) as partial:
        raise KeyError
    assert os.listdir(tmp_path) == ["model"]


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".model.partial").mkdir()
    (tmp_path / ".model.partial" / "stale").write_text("")
    with atomic_directory(tmp_path / "model") as partial:
        assert os.listdir(partial) == []
    (tmp_path / ".x.partial").write_text("stale")
    write_json(tmp_path / "x", {"b": 1})
    assert json.loads((tmp_path / "x").read_text()) == {"b": 1}


def test_canonical_json_has_one_spelling() -> None:
    assert canonical_json({"b": 1, "a": ["é"]}) == '{"a":["é"],"b":1}'.encode()
    with pytest.raises(ValueError, match="Out of range float values"):
        canonical_json(float("nan"))


def test_hashes_are_of_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
    assert sha256_file(tmp_path / "a") == sha256_bytes(b"abc") == known


def test_two_who_write_one_file_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a"
    told = pytest.raises(FileError, match="another process writes it, too")
    with told, atomic_write(path) as one:
        one.write(b"one")
        with atomic_write(path) as two:
            two.write(b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_two_who_write_one_directory_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a"
    told = pytest.raises(FileError, match="another process writes it, too")
    with told, atomic_directory(path), atomic_directory(path) as two:
        (two / "two").write_bytes(b"two")
    assert [one.name for one in path.iterdir()] == ["two"]
