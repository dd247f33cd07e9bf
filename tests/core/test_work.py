"""Work in a directory: claimed once, refused by the name that differs, parts whole or not there."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lmexposure._files import canonical_json, only_writer
from lmexposure.core import Work, claimed, open_study
from lmexposure.errors import FileError, ResultError
from lmexposure.studies import Canife, NaturalIdentifiers

ASKED: dict[str, Any] = {"rounds": 3, "clip": 1.0, "seed": 7, "corpus": "ab" * 32}
HIDDEN = frozenset({"seed", "corpus"})


@contextmanager
def work(out: Path, **changes: Any) -> Iterator[Work[Canife]]:
    with (
        claimed(Canife, out, writes=("model",)) as held,
        held.work({**ASKED, **changes}, hidden=HIDDEN) as begun,
    ):
        yield begun


def test_a_part_is_there_for_the_same_work_alone(tmp_path: Path) -> None:
    with work(tmp_path / "o") as begun:
        assert begun.part("weights").read() is None
        begun.part("weights").write(b"\0abc\n")
    with work(tmp_path / "o") as again:
        assert again.part("weights").read() == b"\0abc\n"
        assert again.part("weights").path.stat().st_mode & 0o777 == 0o600
        other = dataclasses.replace(again, asked={**ASKED, "rounds": 4})
        assert other.part("weights").read() is None
        again.drop()
        assert again.part("weights").read() is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 4}, "its rounds was 3, now 4 is asked for"),
        ({"seed": 8}, "its seed was another; choose another directory"),
        ({"seed": None}, "its seed was given, and now it is not"),
        ({"rounds": [*range(99)]}, "its rounds was another; choose another directory"),
        ({"corpus": "cd" * 32}, "its corpus was another"),
        ({"units": 5}, "its units was None, now 5 is asked for"),
    ],
)
def test_another_wish_is_refused_by_its_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with work(tmp_path):
        pass
    with pytest.raises(ResultError, match=message), work(tmp_path, **changes):
        pass
    assert not any(secret in message for secret in ("7", "abab"))


def test_what_was_asked_is_not_guessed_where_it_is_damaged(tmp_path: Path) -> None:
    """Moved away, the same wish goes on, and another one takes no part of it."""
    with work(tmp_path) as first:
        first.part("weights").write(b"first")
    path = tmp_path / ".work" / "asked.json"
    path.write_bytes(path.read_bytes()[:-1])
    refused = pytest.raises(ResultError, match=r"asked\.json is damaged.*move it away")
    with refused, work(tmp_path):
        pass
    path.rename(tmp_path / "away")
    with work(tmp_path) as again:
        assert again.part("weights").read() == b"first"
    path.unlink()
    with work(tmp_path, rounds=9) as other:
        assert other.part("weights").read() is None
    with pytest.raises(ResultError, match="its rounds was 9, now 3"), work(tmp_path):
        pass


def test_a_damaged_part_is_made_again(tmp_path: Path) -> None:
    with work(tmp_path) as begun:
        part = begun.part("weights")
        part.write(b"0123456789")
        whole = part.path.read_bytes()
        for place in range(len(whole)):
            part.path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            assert part.read() is None
        for end in range(len(whole)):
            part.path.write_bytes(whole[:end])
            assert part.read() is None


def test_a_part_in_the_place_of_another_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with work(tmp_path) as begun:
        trained, held_out = begun.part("trained"), begun.part("held out")
        trained.write(b"1")
        trained.path.rename(held_out.path)
        assert trained.read() is None
        assert held_out.read() is None
    assert "is damaged, or another part than its name says" in caplog.text


def test_what_was_begun_is_of_one_kind(tmp_path: Path) -> None:
    """Another kind of study is refused as if it were done, and `report` names what is missing."""
    with work(tmp_path) as begun:
        begun.part("weights").write(b"kept")
    wanted = r"holds a federated training \(.work/asked.json\), whose files"
    with pytest.raises(ResultError, match=wanted), claimed(NaturalIdentifiers, tmp_path):
        pass
    said = r"holds a federated training without canife\.json; "
    with pytest.raises(ResultError, match=f"{said}it is not done: give its command again"):
        open_study(tmp_path)
    held = pytest.raises(ResultError, match=f"{said}another process is at work there")
    with only_writer(tmp_path), held:
        open_study(tmp_path)
    with work(tmp_path) as again:
        assert again.part("weights").read() == b"kept"


def test_nobody_elses_directory_is_taken(tmp_path: Path) -> None:
    (tmp_path / ".work").mkdir()
    (tmp_path / ".work" / "mine").write_text("mine")
    with pytest.raises(FileError, match="did not write it"), work(tmp_path):
        pass
    assert (tmp_path / ".work" / "mine").read_text() == "mine"
    (tmp_path / "other").mkdir()
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / ".work").symlink_to(tmp_path / "other")
    with pytest.raises(FileError, match="is a link"), work(tmp_path / "link"):
        pass
    assert not list((tmp_path / "other").iterdir())


def test_its_directory_is_held_as_long(tmp_path: Path) -> None:
    with work(tmp_path):
        assert (tmp_path / ".lmexposure.lock").exists()
        with only_writer(tmp_path):  # a step of the same work
            pass
    assert not (tmp_path / ".lmexposure.lock").exists()


def test_what_came_to_nothing_holds_no_other_wish_up(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), work(tmp_path / "o"):
        raise KeyboardInterrupt
    assert not (tmp_path / "o").exists()
    with pytest.raises(KeyboardInterrupt), work(tmp_path / "o", rounds=4) as begun:
        begun.part("weights").write(b"kept")
        raise KeyboardInterrupt
    with work(tmp_path / "o", rounds=4) as again:
        assert again.part("weights").read() == b"kept"


def test_what_was_begun_before_is_not_forgotten_when_it_ends_again(tmp_path: Path) -> None:
    """Without parts, too: a comparison of defences keeps what it has in directories of its own."""
    with work(tmp_path):
        pass
    with pytest.raises(KeyboardInterrupt), work(tmp_path):
        raise KeyboardInterrupt
    with pytest.raises(ResultError, match="its rounds was 3, now 4"), work(tmp_path, rounds=4):
        pass


def test_work_that_may_begin_anew_keeps_nothing_of_another_wish(tmp_path: Path) -> None:
    def parts(asked: Any) -> list[bytes | None]:
        with claimed(Canife, tmp_path) as held, held.work(asked, anew=True) as begun:
            before = [begun.part(name).read() for name in ("a", "b")]
            begun.part("a").write(canonical_json(asked))
            return before

    assert parts({"references": 50}) == [None, None]
    assert parts({"references": 50}) == [b'{"references":50}', None]
    assert parts({"references": 60}) == [None, None]
    assert parts({"references": 50}) == [None, None]  # what it had went with the other wish
    (tmp_path / ".work" / "asked.json").write_bytes(b"torn")
    assert parts({"references": 50}) == [None, None]
    assert sorted(path.name[:2] for path in (tmp_path / ".work").iterdir()) == ["a-", "as"]
