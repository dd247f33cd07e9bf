"""The numbers for other tools: canaries as CSV, everything as JSON."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass

from lmexposure._record import JsonTable, JsonValue, Record, plain
from lmexposure._text import printable
from lmexposure.core import Verdict
from lmexposure.reporting.compare import CompareData
from lmexposure.reporting.data import CanaryRow, ReportData
from lmexposure.studies import (
    Evaluation,
    KindMembership,
    Provenance,
    WhiteBoxAudit,
)

# Each is of the version that the names of its parts are of: those of result/2.
REPORT_SCHEMA = "lmexposure.report/2"
COMPARE_SCHEMA = "lmexposure.compare/2"

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
# Of chosen texts, which have none of the numbers of ranks.
_KIND_COLUMNS = ("kind", "included", "secret_bits")
_CLASS_COLUMNS = ("n", "mean", "median", "low", "high", "level", "capped", "p_value", "exact")


def report_csv(data: ReportData) -> str:
    """One row per canary and control (RFC 4180); numbers in full, missing ones empty."""
    names = dict(_CANARY_COLUMNS) | ({} if data.redacted else {"secret": "secret"})
    origin = _origin(data.provenance)
    more = _KIND_COLUMNS if data.kinds else ()
    rows = [
        {"format": _text(form.name)} | {names[name]: _cell(canary, name) for name in names}
        for form in data.formats
        for canary in form.canaries
    ]
    header = ["format", *names.values(), *more, *origin]
    every = [row | origin for row in (*rows, *_kind_rows(data.kinds))]
    return _written(header, ([row.get(name, "") for name in header] for row in every))


def _kind_rows(kinds: Iterable[KindMembership]) -> Iterator[dict[str, object]]:
    for row in kinds:
        for candidate in row.candidates:
            yield {
                "format": _text(row.format),
                "id": _text(candidate.id),
                "role": "canary" if candidate.included else "held_out",
                "repetitions": row.repetitions,
                "kind": _text(row.kind),
                "included": candidate.included,
                "secret_bits": candidate.secret_bits,
            }


def _origin(provenance: Provenance) -> dict[str, str]:
    """Columns that say in each row where its numbers come from; empty where it is not known."""
    return {name: _text(value or "") for name, value in provenance.to_dict().items()}


def _cell(canary: CanaryRow, name: str) -> object:
    value: object = getattr(canary, name)
    # A rank is a number that may pass 2^53, so it comes as digits.
    digits = name == "rank" and isinstance(value, str) and value.isdecimal()
    return value if digits or not isinstance(value, str) else _text(value)


def compare_csv(data: CompareData) -> str:
    """One row per run, format and number of repetitions."""
    header = ["run", "format", "role", "repetitions", *_CLASS_COLUMNS, "guesses", "found"]
    header += [field.name for field in fields(Provenance)]
    rows = (
        [
            _text(run.name),
            _text(form.name),
            _text(row.role),
            row.repetitions,
            *(getattr(cell, name) for name in _CLASS_COLUMNS),
            *((cell.guesses[-1].given, cell.guesses[-1].found) if cell.guesses else ("", "")),
            *_origin(run.provenance).values(),
        ]
        for form in data.formats
        for row in form.classes
        for run, cell in zip(data.runs, row.cells, strict=True)
        if cell is not None
    )
    return _written(header, rows)


def _text(value: str) -> str:
    return f"'{value}" if value.startswith(_FORMULA) else value


def _written(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows(rows)
    return printable(stream.getvalue())


def report_json(data: ReportData) -> str:
    """Everything that a report shows, as plain values; a missing number is null."""
    return _json(REPORT_SCHEMA, data)


def compare_json(data: CompareData) -> str:
    """Everything that a comparison shows, as plain values; a missing number is null."""
    return _json(COMPARE_SCHEMA, data)


def _json(schema: str, data: ReportData | CompareData) -> str:
    values: JsonTable = {
        "schema": schema,
        **{f.name: _value(getattr(data, f.name)) for f in fields(data)},
    }
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return printable(text, json_escapes=True)


def _value(value: object) -> JsonValue:
    """Dataclasses and records as tables, arrays as lists."""
    if isinstance(value, Verdict):
        return plain(value.to_dict())
    if isinstance(value, WhiteBoxAudit):
        value = value.bounds  # scores and coins are private, in a file of their own
    if isinstance(value, Record):
        return plain(value.model_dump(mode="json"))
    if is_dataclass(value):
        table: JsonTable = {f.name: _value(getattr(value, f.name)) for f in fields(value)}
        if isinstance(value, Evaluation):
            table |= {"exposures": plain(dict(value.exposures))}
        return table
    return [_value(part) for part in value] if isinstance(value, tuple) else plain(value)
