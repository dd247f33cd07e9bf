"""The numbers for other tools: canaries as CSV, everything as JSON."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from lmexposure._text import printable
from lmexposure.gate import Verdict
from lmexposure.records import Provenance, plain
from lmexposure.reporting.compare import CompareData
from lmexposure.reporting.data import CanaryRow, ReportData

__all__ = [
    "COMPARE_SCHEMA",
    "REPORT_SCHEMA",
    "compare_csv",
    "compare_json",
    "report_csv",
    "report_json",
]

REPORT_SCHEMA = "lmexposure.reporting/1"
COMPARE_SCHEMA = "lmexposure.compare/1"

# A spreadsheet takes a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")

_CANARY_COLUMNS = {
    "id": "id",
    "role": "role",
    "repetitions": "repetitions",
    "log_perplexity_bits": "log_perplexity_bits",
    "exposure": "exposure_bits",
    "low": "exposure_low_bits",
    "high": "exposure_high_bits",
    "capped": "capped",
    "method": "method",
    "rank": "rank",
    "guesses": "guesses",
    "guesses_tried": "guesses_tried",
    "revealed": "revealed",
}
_CLASS_COLUMNS = ("n", "mean", "median", "low", "high", "level", "capped", "p_value", "exact")


def report_csv(data: ReportData) -> str:
    """One row per canary and control (RFC 4180); numbers in full, missing ones empty.

    A text that a spreadsheet would take for a formula gets an apostrophe in front.

    Args:
        data: what `report_data` gave.
    """
    names = dict(_CANARY_COLUMNS) | ({} if data.redacted else {"secret": "secret"})
    origin = _origin(data.provenance)
    rows = (
        [_text(form.name), *(_cell(one, name) for name in names), *origin.values()]
        for form in data.formats
        for one in form.canaries
    )
    return _written(["format", *names.values(), *origin], rows)


def _origin(provenance: Provenance) -> dict[str, str]:
    """Columns that say in each row where its numbers come from; empty where it is not known."""
    return {name: _text(value or "") for name, value in provenance.to_dict().items()}


def _cell(one: CanaryRow, name: str) -> Any:
    value = getattr(one, name)
    # A rank is a number that may pass 2^53, so it comes as digits.
    digits = name == "rank" and isinstance(value, str) and value.isdecimal()
    return value if digits or not isinstance(value, str) else _text(value)


def compare_csv(data: CompareData) -> str:
    """One row per run, format and number of repetitions.

    Args:
        data: what `compare_data` gave.
    """
    header = ["run", "format", "role", "repetitions", *_CLASS_COLUMNS, "guesses", "found"]
    header += Provenance().to_dict()
    rows = (
        [
            _text(run.name),
            _text(form.name),
            _text(one.role),
            one.repetitions,
            *(getattr(cell, name) for name in _CLASS_COLUMNS),
            *((cell.guesses[-1].given, cell.guesses[-1].found) if cell.guesses else ("", "")),
            *_origin(run.provenance).values(),
        ]
        for form in data.formats
        for one in form.classes
        for run, cell in zip(data.runs, one.cells, strict=True)
        if cell is not None
    )
    return _written(header, rows)


def _text(value: str) -> str:
    return f"'{value}" if value.startswith(_FORMULA) else value


def _written(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows(rows)
    return printable(stream.getvalue())


def report_json(data: ReportData) -> str:
    """Everything that a report shows, as plain values; a missing number is null.

    Args:
        data: what `report_data` gave.
    """
    return _json(REPORT_SCHEMA, data)


def compare_json(data: CompareData) -> str:
    """Everything that a comparison shows, as plain values; a missing number is null.

    Args:
        data: what `compare_data` gave.
    """
    return _json(COMPARE_SCHEMA, data)


def _json(schema: str, data: Any) -> str:
    values = {"schema": schema, **plain(_values(data))}
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return printable(text, json_escapes=True)


def _values(value: Any) -> Any:
    """Dataclasses as tables; arrays are left to `plain`."""
    if isinstance(value, Verdict):
        return _values(value.to_dict())
    if is_dataclass(value):
        return {one.name: _values(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, list | tuple):
        return [_values(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _values(one) for key, one in value.items()}
    return value
