import sys
import types
from pathlib import Path

import pytest

from lmexposure.audit import demo_corpus, demo_settings, estimate_cost
from lmexposure.errors import CorpusError


def test_the_corpus_is_real_english_of_this_python(tmp_path: Path) -> None:
    path = demo_corpus(tmp_path / "source" / "topics.txt")
    text = path.read_text(encoding="utf-8")
    assert 300_000 < len(text) < 2_000_000
    assert 'The "with" statement' in text
    assert "1." in estimate_cost(path, demo_settings())
    assert "scoring 1,052 texts" in estimate_cost(path, demo_settings(quick=True))


def test_a_python_without_the_text_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", types.ModuleType("pydoc_data.topics"))
    with pytest.raises(CorpusError, match=r"carries no pydoc_data\.topics"):
        demo_corpus(tmp_path / "topics.txt")
    assert list(tmp_path.iterdir()) == []
