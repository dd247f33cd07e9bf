"""What the golden run's tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_transcript import Transcript, transcript_in


@pytest.fixture
def said(tmp_path: Path) -> Iterator[Transcript]:
    with transcript_in(tmp_path) as said:
        yield said
