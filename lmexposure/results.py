"""The result record: what was measured, as a file that later versions can still read."""

import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lmexposure._integrity import CONTENT, take_hash, write_hashed
from lmexposure._text import visible
from lmexposure.errors import ResultError

__all__ = [
    "MEASURE_AGAIN",
    "RESULT_SCHEMA",
    "CanaryResult",
    "Result",
    "foreign",
    "plain",
    "read_result",
]

RESULT_SCHEMA = "lmexposure.result/1"
# Advice that destroys nothing.
MEASURE_AGAIN = "measure again with another --out, or move the file aside before"
_NARROW = (
    "written by a version that took references and draws for all there is: its intervals of "
    "medians and quartiles are too narrow where many canaries share few references; lmexposure "
    "check computes its own, and measuring again with another --out gives right ones"
)
_FAMILY, _VERSION = RESULT_SCHEMA.split("/")
_LONGEST_VERSION = 9  # digits
_SHOWN = 60  # characters of a value in a message
_HALF = re.compile("[\ud800-\udfff]")


def plain(value: Any) -> Any:
    """A value as JSON can hold it: non-finite numbers become None, numpy becomes Python."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def foreign(value: Any) -> str | None:
    """What JSON can hold and no file of ours does: half a character, a number beyond any float.

    Args:
        value: as `json.loads` gave it.

    Returns:
        the first such thing in words; None where there is none.
    """
    if isinstance(value, str):
        half = _HALF.search(value)
        return None if half is None else f"half a character ({half[0]!a}) in a text"
    if isinstance(value, int):
        return f"a number of {len(str(value))} digits" if abs(value) > sys.float_info.max else None
    if isinstance(value, dict):
        return next(filter(None, map(foreign, [*value, *value.values()])), None)
    return next(filter(None, map(foreign, value)), None) if isinstance(value, list) else None


@dataclass(frozen=True, kw_only=True)
class CanaryResult:
    """What was measured of one canary or control. Its secret is not here; the manifest holds it.

    Attributes:
        id, format, role, repetitions: as in the manifest; role is "canary" or "control".
        log_perplexity_bits: bits, lower = more memorised.
        exposure: the chosen estimate, bits, higher = more memorised.
        estimates: every estimate that was made, by method.
        extraction: one row per method and number of revealed characters.
    """

    id: str
    format: str
    role: str
    repetitions: int
    log_perplexity_bits: float
    exposure: dict[str, Any]
    estimates: dict[str, dict[str, Any]]
    extraction: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Everything that one measurement found (schema "lmexposure.result/1").

    Attributes:
        inputs_sha256: hash of all that decides the numbers: manifest, weights, settings.
        manifest_sha256: hash of the manifest file's content.
        model: path, type, parameters, dtype, weights hash, validation loss where known.
        settings: what was asked of the measurement.
        formats: per format its name, space_size (decimal string), bits, references, and how the
            estimates fitted.
        canaries: canaries and controls, in the manifest's order.
        summary: per format and repetitions, with the guessing baseline beside it.
        warnings: what a reader must know before believing a number.
        privacy: bounds on epsilon with their conditions, and membership metrics; None in results
            of versions that had none.
        scores_sha256: of the scores.parquet beside it; None where there is none, or in results of
            versions that did not say.
        lmexposure: the version that measured; None in results of versions that did not say. The
            date is in run.json, so that the same measurement gives the same bytes.
    """

    inputs_sha256: str
    manifest_sha256: str
    model: dict[str, Any]
    settings: dict[str, Any]
    formats: list[dict[str, Any]]
    canaries: list[CanaryResult]
    summary: list[dict[str, Any]]
    warnings: list[str]
    privacy: dict[str, Any] | None = None
    scores_sha256: str | None = None
    lmexposure: str | None = None
    schema: str = RESULT_SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """The record as plain JSON values; a number that is not finite is None."""
        values = asdict(self)
        record: dict[str, Any] = plain({"schema": values.pop("schema"), **values})
        return record

    def write(self, path: Path) -> None:
        """Write result.json, whole or not at all, with the hash of its own content."""
        write_hashed(path, self.to_dict())


def read_result(path: Path) -> Result:
    """Read a result.json of this or an older schema version.

    Raises:
        ResultError: missing, not JSON, no result file, of a newer schema version, with a value
            that no result of ours holds, or edited or damaged since it was written.
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
        strange = foreign(record)
    except FileNotFoundError as failure:
        raise ResultError(f"no result at {path}; make one: lmexposure measure") from failure
    except (OSError, ValueError, RecursionError) as failure:
        raise ResultError(f"{path} is not readable JSON ({failure}); {MEASURE_AGAIN}") from failure
    _check_schema(path, record)
    if strange:
        raise ResultError(f"{path} holds {strange}; {MEASURE_AGAIN}")
    before_hashes = CONTENT not in record
    if not take_hash(record):
        raise ResultError(
            f"{path} does not fit its {CONTENT}: it was edited or damaged after it was written; "
            f"{MEASURE_AGAIN}"
        )
    _mend_level(record.get("privacy"))
    try:
        canaries = [CanaryResult(**one) for one in record.pop("canaries")]
        result = Result(canaries=canaries, **record)
    except (TypeError, KeyError) as failure:
        raise ResultError(
            f"{path} lacks or adds fields ({visible(failure)}); {MEASURE_AGAIN}"
        ) from failure
    if before_hashes and isinstance(result.warnings, list) and _has_drawn_ranks(canaries):
        result.warnings.append(_NARROW)
    return result


def _has_drawn_ranks(canaries: list[CanaryResult]) -> bool:
    """Whether an exposure rests on a sample of the fills."""
    shown = (one.exposure for one in canaries if isinstance(one.exposure, dict))
    return any(one.get("method") in ("sampled", "importance") for one in shown)


def _mend_level(section: Any) -> None:
    """Give the largest of several bounds the sum of their levels, also in a file of before.

    Until 2026-11 the primary bound, and the verdict on a claim, had the level of one class. A
    section that is not what it should be is left to those who refuse it.
    """
    try:
        primary, claim = section["primary"], section["claim"]
        bounds = [one["bounds"] for one in section["classes"] if one["bounds"] is not None]
        shares = [one["primary"]["significance"] for one in bounds]
        stored, together = primary["significance"], math.fsum(shares)
    except (TypeError, KeyError, ValueError):  # no bound, or no section of ours
        return
    if not isinstance(stored, float) or not stored < together * (1 - 1e-9) < 1:
        return
    primary["significance"] = together
    if isinstance(claim, dict) and claim.get("significance") == stored:
        claim["significance"] = together
        said, right = (f"significance {level:g})" for level in (stored, together))
        claim["reason"] = str(claim.get("reason")).replace(said, right)


def _check_schema(path: Path, record: Any) -> None:
    schema = record.get("schema") if isinstance(record, dict) else None
    family, _, version = str(schema).partition("/")
    shown = ascii(schema) if len(str(schema)) <= _SHOWN else f"{ascii(schema)[:_SHOWN]}..."
    if family != _FAMILY or not version.isdecimal():
        raise ResultError(f"{path} has schema {shown}; expected {RESULT_SCHEMA!r}")
    if len(version) > _LONGEST_VERSION or int(version) > int(_VERSION):
        raise ResultError(
            f"{path} has schema {shown}, newer than {RESULT_SCHEMA!r}; install a newer lmexposure"
        )
