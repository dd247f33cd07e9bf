"""Parts of a measurement are used only as they were written."""

from pathlib import Path

import pytest

from lmexposure._integrity import write_sealed
from lmexposure.audit.parts import keep_part, read_part
from lmexposure.records import Extraction

# Its fills are more than a float can count.
FOUND = Extraction(
    method="best_first",
    revealed=0,
    width=1_000,
    found=False,
    place=None,
    steps=9,
    proven=1_000,
    fills_left=10**40 + 1,
    by_chance=0.1 + 0.2,
)


def test_what_is_kept_is_read(tmp_path: Path) -> None:
    keep_part(tmp_path / "parts" / "x.json", FOUND)
    assert read_part(tmp_path / "parts" / "x.json", Extraction) == FOUND
    assert (tmp_path / "parts" / "x.json").stat().st_mode & 0o777 == 0o600


def test_nothing_is_kept_without_a_place(tmp_path: Path) -> None:
    keep_part(None, FOUND)
    assert read_part(None, Extraction) is None
    assert read_part(tmp_path / "none.json", Extraction) is None


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"method": "greedy"}'])
def test_what_another_version_wrote_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    write_sealed(tmp_path / "x.json", content)
    assert read_part(tmp_path / "x.json", Extraction) is None
    assert "x.json is not as this version writes it: it is made again" in caplog.text
