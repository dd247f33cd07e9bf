"""compare.md: runs, classes and differences, and no markup of somebody else."""

from pathlib import Path

import pytest
from made_results import hostile_run, small_run

from lmexposure.records import open_run
from lmexposure.reporting import (
    compare_data,
)
from lmexposure.reporting.compare_markdown import compare_markdown


def test_markdown_shows_runs_classes_and_differences(tmp_path: Path) -> None:
    runs = [
        open_run(small_run(tmp_path / "base", memorised=())),
        open_run(small_run(tmp_path / "tuned")),
    ]
    text = compare_markdown(compare_data(runs))
    assert text.startswith("# Compared: base and tuned")
    assert "| repetitions | `base` | `tuned` |" in text
    assert "| `random_number, 4×` | `tuned` | +" in text
    assert "\n- **tuned leaks more than base: secrets inserted 4 times are " in text
    assert text.count("lmexposure run") == 2


def test_markdown_of_hostile_names(tmp_path: Path) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    data = compare_data([open_run(hostile_run(tmp_path / n)) for n in ("<b>", "|x|`")])
    parser = markdown_it.MarkdownIt("gfm-like", {"linkify": False, "html": True})
    html = parser.render(compare_markdown(data))
    assert "<script" not in html
    assert "<b>" not in html
    assert "<a " not in html
