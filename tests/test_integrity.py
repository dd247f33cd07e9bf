"""What is read is what was written, or its file is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from lmexposure._integrity import (
    check_seal,
    damaged_file,
    file_hashes,
    read_sealed,
    take_hash,
    write_hashed,
    write_sealed,
)
from lmexposure._written import study
from lmexposure.errors import FileError


def _read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_bytes())
    return record


def test_a_record_carries_the_hash_of_its_own_content(tmp_path: Path) -> None:
    record = {"b": (1, 2.5, 1e-05, None), "a": {"é": -0.0, "2": 10**30}}
    write_hashed(tmp_path / "r.json", record, mode=0o600)
    assert (tmp_path / "r.json").stat().st_mode & 0o777 == 0o600
    read = _read(tmp_path / "r.json")
    # sha256 of '{"a":{"2":1000000000000000000000000000000,"é":-0.0},"b":[1,2.5,1e-05,null]}'
    assert read["content_sha256"].startswith("78f6b06dc2eeaac7")
    assert take_hash(read)
    assert read == {"b": [1, 2.5, 1e-05, None], "a": {"é": 0.0, "2": 10**30}}


@pytest.mark.parametrize(
    "change",
    [{"a": 2}, {"b": None}, {"content_sha256": "0" * 64}, {"content_sha256": None}, {"a": 1.0}],
)
def test_a_record_that_was_changed_does_not_fit(tmp_path: Path, change: dict[str, Any]) -> None:
    write_hashed(tmp_path / "r.json", {"a": 1})
    assert not take_hash({**_read(tmp_path / "r.json"), **change})
    assert not take_hash({"a": 1})


def test_what_no_record_of_ours_holds_does_not_fit() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for strange in (float("nan"), "\ud800", deep):
        assert not take_hash({"a": strange, "content_sha256": "0" * 64})


def test_the_files_of_a_directory_by_hash(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("b", "a", "inner/c"):
        (tmp_path / name).write_text(name)
    hashes = file_hashes(tmp_path)
    assert list(hashes) == ["a", "b", "inner/c"]
    (tmp_path / "README.md").write_text("somebody's")
    assert damaged_file(tmp_path, hashes) is None
    (tmp_path / "inner" / "c").write_text("C")
    assert damaged_file(tmp_path, hashes) == tmp_path / "inner" / "c"
    (tmp_path / "b").unlink()
    assert damaged_file(tmp_path, hashes) == tmp_path / "b"


def test_a_sealed_part_is_whole_or_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "part"
    assert read_sealed(path) is None
    for data in (b"", b"the part\n", b"x" * (1 << 21), b"the part"):
        with study(tmp_path):
            write_sealed(path, data)
        assert read_sealed(path) == data
    assert not caplog.text
    whole = path.read_bytes()
    for at in range(len(whole)):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]):
            path.write_bytes(damaged)
            assert read_sealed(path) is None
            assert f"{path} is damaged" in caplog.text
            caplog.clear()
    path.write_bytes(b"no seal")
    assert check_seal(path) is None
    assert read_sealed(path) is None
    assert f"{path} is damaged: it ends in no hash" in caplog.text


def test_a_directory_in_the_place_of_a_part_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    with pytest.raises(FileError, match=r"cannot read .*part: Is a directory; move it away, and"):
        read_sealed(tmp_path / "part")


def test_only_the_first_process_names_what_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    (tmp_path / "part").write_bytes(b"damaged")
    assert read_sealed(tmp_path / "part") is None
    assert not caplog.text
