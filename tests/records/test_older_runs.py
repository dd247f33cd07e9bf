"""What commit 6101006 left on the disk is read, judged and rendered; resumed: golden/."""

from pathlib import Path

import pytest
from older_runs import FINISHED, older_run

from lmexposure import gate
from lmexposure.records import open_run
from lmexposure.reporting import write_report

OUTCOMES = {"demo": "leak", "coins": "inconclusive", "formats": "leak"}


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_run_is_read_judged_and_rendered(tmp_path: Path, name: str) -> None:
    found = open_run(older_run(name, tmp_path / name))
    scores = found.scores()
    assert scores is not None
    assert scores.ids.size > len(found.result.canaries)
    assert gate.check(found.result).outcome == OUTCOMES[name]
    # The coins' ranks were all counted, those of the others partly drawn.
    narrow = any(
        "intervals of medians and quartiles are too narrow" in w for w in found.result.warnings
    )
    assert narrow == (name != "coins")
    write_report(found, out=tmp_path / "report", formats=("md", "json"))
    text = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert all(form.name in text for form in found.result.formats)
