"""What is published of the records is what they are, and nobody reads them by literal keys."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from made_results import clean, small_manifest, small_run
from made_sweeps import written_sweep

from lmexposure._record import FileRecord
from lmexposure.canaries.manifest import ManifestFile
from lmexposure.studies import Result, RunRecord, SweepResult

ROOT = Path(__file__).parents[1]
FIELDS = runpy.run_path(str(ROOT / "scripts" / "documentation" / "fields.py"))
SCHEMAS = ROOT / "docs" / "schemas"
RECORDS: list[type[FileRecord]] = FIELDS["records"]()


def test_no_record_is_read_by_literal_keys() -> None:
    script = ROOT / "scripts" / "literal_keys"
    counted = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert counted.returncode == 0, counted.stdout


@pytest.mark.parametrize("record", RECORDS)
def test_the_published_schema_is_that_of_the_record(record: type[FileRecord]) -> None:
    path = SCHEMAS / f"{record.schema_name().replace('/', '-')}.json"
    published = json.loads(path.read_text(encoding="utf-8"))
    assert published == FIELDS["published"](record), "publish it: scripts/schemas"
    assert set(SCHEMAS.iterdir()) >= {path}


def test_files_fit_their_schemas(tmp_path: Path) -> None:
    """By another reader of JSON Schema than the one that wrote it."""
    run = small_run(tmp_path / "run", inclusion_probability=0.5, canaries=30)
    clean().write(run / "made.json")
    small_manifest().write(run / "other_manifest.json")
    written_sweep(run)
    records: dict[str, type[FileRecord]] = {
        "result.json": Result,
        "made.json": Result,
        "run.json": RunRecord,
        "sweep.json": SweepResult,
        "manifest.json": ManifestFile,
        "other_manifest.json": ManifestFile,
    }
    for name, record in records.items():
        values = json.loads((run / name).read_text())
        jsonschema.Draft202012Validator(record.json_schema()).validate(values)
