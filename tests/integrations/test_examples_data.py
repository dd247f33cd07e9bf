"""The streaming pipeline in scripts/examples runs as it stands (test_ray_data runs that of Ray)."""

import json
import runpy
from pathlib import Path

import pytest

from lmexposure.canaries import Manifest

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"


@pytest.mark.filterwarnings("ignore")
def test_streaming_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, manifest = tmp_path / "corpus.jsonl", tmp_path / "manifest.json"
    rows = [{"text": f"document {number}"} for number in range(100)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr("sys.argv", ["streaming_datasets.py", str(corpus), str(manifest)])
    runpy.run_path(str(EXAMPLES / "streaming_datasets.py"))
    told = "100 documents and 48 canary rows went through the loader\n"
    assert capsys.readouterr().out.endswith(told)
    assert Manifest.read(manifest).corpus.documents == 100
