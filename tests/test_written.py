"""The list of a study's files: what is not in it is neither replaced nor removed."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lmexposure._files import atomic_directory, atomic_write, is_held, only_writer, refuse_unlike
from lmexposure._integrity import write_sealed
from lmexposure._written import LIST, LOCK, check, claim, refuse_foreign, remove, study
from lmexposure.errors import FileError


def write(path: Path, content: str = "ours") -> None:
    with atomic_write(path) as stream:
        stream.write(content.encode())


def test_a_file_of_ours_is_replaced_and_another_is_not(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with study(tmp_path):
        for content in ("one", "two"):
            write(tmp_path / "deep" / "file", content)
        with pytest.raises(FileError, match=r"mine is there already, and lmexposure did not write"):
            write(tmp_path / "mine")
    assert (tmp_path / "deep" / "file").read_text() == "two"
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_directory_with_something_of_somebodys_is_not_replaced(tmp_path: Path) -> None:
    with study(tmp_path):
        for _ in range(2):
            with atomic_directory(tmp_path / "model") as made:
                (made / "weights").write_text("ours")
        (tmp_path / "model" / "README.md").write_text("precious")
        refused = pytest.raises(FileError, match=r"model/README.md is there already, and lmexp")
        with refused, atomic_directory(tmp_path / "model"):
            pass
        remove(tmp_path / "model")
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["README.md"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "w").write_text("precious")
    for held in (True, False):
        with pytest.raises(FileError, match=r"other/?w? is there already, and lmexposure did not"):
            if held:
                with study(tmp_path), atomic_directory(tmp_path / "other"):
                    pass
            else:
                with atomic_directory(tmp_path / "other"):
                    pass
    assert (tmp_path / "other" / "w").read_text() == "precious"


def test_links_are_neither_followed_nor_removed(tmp_path: Path) -> None:
    there, out = tmp_path / "there", tmp_path / "out"
    there.mkdir()
    (there / "file").write_text("precious")
    with only_writer(out):
        write(out / "parts" / "file")
        write(out / "file")
        (out / "file").unlink()
        (out / "file").symlink_to(there / "file")
        (out / "parts" / "file").unlink()
        (out / "parts").rmdir()
        (out / "parts").symlink_to(there)
        for path in ("file", "parts/file"):
            with pytest.raises(FileError, match="is a link, which is not followed; choose another"):
                write(out / path)
        for path in ("file", "parts"):
            with pytest.raises(FileError, match="is a link, which is not followed"):
                refuse_foreign(out, [path])
            remove(out / path)
    assert (out / "file").is_symlink()
    assert (out / "parts").is_symlink()
    assert (there / "file").read_text() == "precious"


def test_what_is_removed_is_no_longer_ours(tmp_path: Path) -> None:
    with study(tmp_path):
        write(tmp_path / "parts" / "a")
        with study(tmp_path / "parts" / "inner"):
            write(tmp_path / "parts" / "inner" / "b")
        refuse_foreign(tmp_path, ["parts", "none", "par*"])
        remove(tmp_path / "parts")
        assert not (tmp_path / "parts").exists()
        (tmp_path / "parts").mkdir()
        refuse_foreign(tmp_path, ["parts"])  # it is empty
        (tmp_path / "parts" / "a").write_text("precious")
        for names in (["parts"], ["none", "par*"]):
            with pytest.raises(FileError, match="parts is there already, and lmexposure did not"):
                refuse_foreign(tmp_path, names)
        remove(tmp_path / "parts")
    assert (tmp_path / "parts" / "a").read_text() == "precious"


def test_a_directory_in_the_place_of_a_file_is_refused_though_it_is_empty(tmp_path: Path) -> None:
    for name in ("checkpoint.pt", "run.json", "report.html", "model", "best-1.5", ".work"):
        (tmp_path / name).mkdir()
    refuse_foreign(tmp_path, ["model", "best-[0-9]*", ".work", "none.json"])
    for name in ("checkpoint.pt", "run.json", "report.html"):
        with pytest.raises(FileError, match=f"{name} is there already, and lmexposure did not"):
            refuse_foreign(tmp_path, ["model", name])


def test_a_study_within_another_is_removed_by_a_relative_path_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    work = Path("out", "work", "one")
    with only_writer("out"):
        with only_writer(work):
            write(work / "model" / "weights")
            remove(work)
        assert not work.exists()


def test_a_study_taken_as_a_whole_keeps_its_list_when_it_is_moved(tmp_path: Path) -> None:
    with study(tmp_path / "a"):
        write(tmp_path / "a" / "file")
    (tmp_path / "a").rename(tmp_path / "b")
    with study(tmp_path / "b"):
        write(tmp_path / "b" / "file", "again")
    assert (tmp_path / "b" / "file").read_text() == "again"


def test_a_file_that_was_changed_or_is_of_another_study_stays(tmp_path: Path) -> None:
    path, sha256 = tmp_path / "report", "0" * 64
    with study(tmp_path):
        with atomic_write(path, of=["run a"]) as stream:
            stream.write(b"of a")
        refused = pytest.raises(FileError, match="report is of another study, and would be repl")
        with refused, atomic_write(path, of=["run b", "place b"]):
            pass
        with atomic_write(path, of=["run b", "run a"], sha256=sha256) as stream:
            stream.write(b"more of a")
        with pytest.raises(FileError, match="report was changed since lmexposure wrote it; choose"):
            check(path)
    assert path.read_bytes() == b"more of a"


def test_a_list_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (tmp_path / "text", tmp_path / "folder"):
        place.mkdir()
    (tmp_path / "text" / LIST).write_text("my files")
    (tmp_path / "folder" / LIST).mkdir()
    for place in (tmp_path / "text", tmp_path / "folder"):
        refused = pytest.raises(FileError, match=f"{LIST} is no list of ours; move it away")
        with study(place), refused:
            write(place / "file")
    with study(tmp_path):
        write(tmp_path / "file")

        def unreadable(path: Path) -> bytes:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        (tmp_path / LIST).write_bytes((tmp_path / LIST).read_bytes() + b"\n")  # not the one known
        monkeypatch.setattr(Path, "read_bytes", unreadable)
        with pytest.raises(FileError, match=f"cannot read .*{LIST}: Permission denied; choose"):
            write(tmp_path / "file")


@pytest.mark.parametrize(
    "line",
    [
        '{"name": "THERE/docs/"}',
        '{"name": "THERE/file"}',
        '{"name": ""}',
        '{"name": "."}',
        '{"name": "./"}',
        '{"name": "../there/file"}',
        '{"name": "a/../../there/docs/"}',
        '{"name": "a//b"}',
        '{"name": "a\\u0000b"}',
        '{"name": "a\\ud800b"}',
        '{"name": 5}',
        '{"name": null}',
        '{"name": "a", "of": "run"}',
        '{"name": "a", "of": [1]}',
        '{"name": "a", "sha256": ["x"]}',
        '{"gone": "abc"}',
        '{"gone": ["../file"]}',
        '["name"]',
        "5",
        "[" * 100_000,
    ],
    ids=lambda line: line[:30],
)
def test_a_forged_list_is_refused_and_removes_nothing(tmp_path: Path, line: str) -> None:
    there, out = tmp_path / "there", tmp_path / "out"
    (there / "docs").mkdir(parents=True)
    (there / "docs" / "a").write_text("precious")
    (there / "file").write_text("precious")
    for inner in (".work", "work/001", "parts/2", "slice/work/1"):
        home = out / inner
        with study(home):
            write(home / "ours")
        with open(home / LIST, "a") as file:
            file.write("\n" + line.replace("THERE", str(there)))
        top = out / inner.partition("/")[0]
        refused = r"\.lmexposure\.files is no list of ours, it has .*; move it away$"
        with pytest.raises(FileError, match=refused):
            refuse_foreign(out, [top.name])
        with study(out), pytest.raises(FileError, match=refused):
            remove(top)
        with study(home), pytest.raises(FileError, match=refused):
            write(home / "ours")
        assert (home / "ours").read_text() == "ours"
    assert [(there / name).read_text() for name in ("docs/a", "file")] == ["precious"] * 2


def test_a_list_of_the_root_is_refused(tmp_path: Path) -> None:
    for name in ("/", "//", "/.", ".//"):  # only read here: were it believed, all would be lost
        home = tmp_path / "parts"
        home.mkdir(exist_ok=True)
        (home / LIST).write_text(f'{{"schema": "lmexposure.files/1"}}\n{{"name": "{name}"}}')
        with pytest.raises(FileError, match="is no list of ours, it has"):
            refuse_foreign(tmp_path, ["parts"])


def test_a_name_that_a_link_leads_away_from_stays(tmp_path: Path) -> None:
    there, out = tmp_path / "there", tmp_path / "out"
    there.mkdir()
    (there / "file").write_text("precious")
    with study(out / "parts"):
        write(out / "parts" / "ours")
    (out / "parts" / "link").symlink_to(there)
    with open(out / "parts" / LIST, "a") as file:
        file.write('\n{"name": "link/file"}\n{"name": "link/"}')
    with study(out):
        remove(out / "parts")
    assert (there / "file").read_text() == "precious"
    assert os.listdir(out / "parts") == ["link"]


def test_a_list_that_does_not_fit_the_disk_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    with study(tmp_path):
        write(tmp_path / "one")
        before = (tmp_path / LIST).read_bytes()
        monkeypatch.setattr(os, "write", lambda to, data: real(to, data[:5]))
        with pytest.raises(FileError, match=r"cannot write .*two: No space left.*free some space"):
            write(tmp_path / "two")
    assert (tmp_path / LIST).read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == [LIST, "one"]


def test_a_line_that_was_cut_short_is_passed_over(tmp_path: Path) -> None:
    with study(tmp_path):
        write(tmp_path / "one")
        with open(tmp_path / LIST, "ab") as file:
            file.write(b'\n{"name": "tw')
        write(tmp_path / "three")
        write(tmp_path / "three", "again")
        (tmp_path / "two").write_text("precious")
        with pytest.raises(FileError, match="two is there already"):
            write(tmp_path / "two")


def test_partial_names_of_somebody_else_are_left(tmp_path: Path) -> None:
    (tmp_path / ".file.partial").write_text("precious")
    (tmp_path / ".model.partial").mkdir()
    (tmp_path / ".model.partial" / "w").write_text("precious")
    (tmp_path / ".model.old").mkdir()
    (tmp_path / ".model.old" / "w").write_text("precious")
    with study(tmp_path):
        write(tmp_path / "file")
        with atomic_directory(tmp_path / "model") as made:
            (made / "weights").write_text("ours")
        refused = pytest.raises(FileError, match=r"\.model\.old is there already, and lmexposure")
        with refused, atomic_directory(tmp_path / "model") as made:
            (made / "weights").write_text("again")
    assert (tmp_path / "model" / "weights").read_text() == "ours"
    for name in (".file.partial", ".model.partial/w", ".model.old/w"):
        assert (tmp_path / name).read_text() == "precious"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("precious"),
        lambda path: path.touch(0o644),
        lambda path: os.mkfifo(path, 0o600),
    ],
)
def test_a_lock_of_somebody_else_is_left(tmp_path: Path, make: Callable[[Path], object]) -> None:
    lock = tmp_path / "out" / LOCK
    lock.parent.mkdir()
    make(lock)
    before = lock.lstat()
    assert not is_held(lock.parent)
    with only_writer(tmp_path / "out"):
        write(tmp_path / "out" / "file")
        remove(tmp_path / "out" / "file")
    assert lock.lstat().st_ino == before.st_ino
    assert lock.lstat().st_size == before.st_size


def test_what_a_killed_process_left_of_its_lock_goes(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch(0o600)
    with only_writer(tmp_path):
        pass
    assert os.listdir(tmp_path) == []


def test_outside_of_a_study_only_records_of_ours_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text('{\n "schema": "lmexposure.result/1"}')
    write(path, "text")
    with pytest.raises(FileError, match="file is there already, and lmexposure did not write it"):
        write_sealed(path, b"other")
    path.write_text('[{"schema": "lmexposure.result/1"}, "mine"]')
    with pytest.raises(FileError, match="file is there already, and lmexposure did not write it"):
        write(path, "text")
    path.write_text("")
    write(path, "text")
    refuse_unlike(tmp_path / "none", re.compile(b"x").search)
    assert sorted(os.listdir(tmp_path)) == ["file"]


@pytest.mark.parametrize("kind", ["somebody's", "a sound list", "a link"])
def test_a_list_that_was_there_before_stays_when_the_work_is_refused(
    tmp_path: Path, kind: str
) -> None:
    """Copied first from another directory, or a person's own file of this name."""
    out = tmp_path / "out"
    out.mkdir()
    there = out / LIST
    sound = b'\n{"schema": "lmexposure.files/1"}\n{"name": "model/", "sha256": null, "of": []}'
    (tmp_path / "elsewhere").write_bytes(sound)
    if kind == "a link":
        there.symlink_to(tmp_path / "elsewhere")
    else:
        there.write_bytes(sound if kind == "a sound list" else b"my list of files\n")
    with pytest.raises(ZeroDivisionError), only_writer(out):
        raise ZeroDivisionError  # any refusal
    assert there.is_symlink() == (kind == "a link")
    assert there.exists()


def test_a_list_that_this_process_began_goes_with_all_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ZeroDivisionError), only_writer(out):
        with study(out):
            claim(out / "model")
        raise ZeroDivisionError
    assert not out.exists() or not list(out.iterdir())
