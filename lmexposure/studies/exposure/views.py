"""What people ask of a result: one class, a quantile, a share of secrets found; and its saving.

`Result` has these as methods. Nothing here is part of the file; scipy is imported where it is
needed.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lmexposure._files import disk_errors, sha256_file
from lmexposure._quantiles import ExposureEstimate
from lmexposure._style import count, visible
from lmexposure._validate import integer
from lmexposure._written import remove, study
from lmexposure.errors import ResultError
from lmexposure.statistics import QuantileInterval
from lmexposure.studies.exposure.parts import CanaryResult, ClassKey, ClassSummary
from lmexposure.studies.exposure.record import ResultNumbers

if TYPE_CHECKING:
    from lmexposure.studies.exposure.scores import Scores


@dataclass(frozen=True, kw_only=True)
class FoundShare:
    """Of how many secrets of a class an attacker finds some; higher = more memorised."""

    # found, of: secrets
    found: int
    of: int
    guesses: int  # that the attacker makes for each, the likeliest first, with nothing given
    value: float  # found / of
    # low, high: the interval of Clopper and Pearson, for canaries drawn like these
    low: float
    high: float
    level: float  # its coverage
    # whether as many of the likeliest fills were tried, in proven order, for each secret not found;
    # else `value` is a lower bound, and `high` allows for those that more guesses would find
    complete: bool


def class_of(result: ResultNumbers, name: str | None, repetitions: int | None) -> ClassSummary:
    """The one class of this format and number of repetitions."""
    rows = [row for row in result.summary if name in (None, row.format)]
    if repetitions is None:
        rows = [row for row in rows if row.role == "canary"]
    else:
        repetitions = integer("repetitions", repetitions, low=0)
        rows = [row for row in rows if row.repetitions == repetitions]
    if len(rows) == 1:
        return rows[0]
    asked = "" if name is None else f"format {visible(name)!r}"
    asked += "" if repetitions is None else f"{', ' * bool(asked)}repetitions={repetitions}"
    problem = "several classes fit" if rows else "no class fits"
    raise ResultError(
        f"{problem} {asked or 'without a format and repetitions'}; there are "
        f"{'; '.join(_listed(result))}: name one, as in ({result.summary[-1].format!r}, "
        f"repetitions={result.summary[-1].repetitions})"
    )


def _listed(result: ResultNumbers) -> Iterator[str]:
    """Each format with its classes: "pin (repetitions 0, 1, 16)"."""
    for form in result.formats:
        classes = [str(row.repetitions) for row in result.summary if row.format == form.name]
        yield f"{visible(form.name)} (repetitions {', '.join(classes)})"


def quantile_of_class(result: ResultNumbers, quantile: float, key: ClassKey) -> QuantileInterval:
    """A quantile of a class's exposures, with an interval as that of its median."""
    from lmexposure.statistics import estimated_quantile

    form = result.format_named[key[0]]
    estimates = [_estimate(canary, form.references, form.bits) for canary in result.classes[key]]
    return estimated_quantile(estimates, quantile, level=result.settings.level)


def _estimate(canary: CanaryResult, references: int, space_bits: float) -> ExposureEstimate:
    """The exposure shown, with what its error comes from."""
    found = canary.exposure.with_error(
        canary.log_perplexity_bits, references=references, space_bits=space_bits
    )
    if found is None:
        raise ResultError(
            f"canary {visible(canary.id)} has no exposure, so its class has no quantiles; the "
            "result's warnings say why"
        )
    return found


def share_found(result: ResultNumbers, key: ClassKey, guesses: int) -> FoundShare:
    """How many secrets of a class fall within this many guesses, with nothing of them given."""
    from lmexposure.statistics import binomial_interval

    guesses = integer("guesses", guesses, low=1)
    searches = [canary.blind_searches for canary in result.classes[key]]
    if not any(searches):
        raise ResultError(
            "the secrets of this class were not searched for; measure with extraction=True and "
            "revealed=0 or more"
        )
    wanted = min(guesses, result.format_named[key[0]].space_size)
    found = [any(s.found_at is not None and s.found_at <= guesses for s in own) for own in searches]
    # What is proven was tried in order; a beam may pass some of the likeliest fills over.
    short = [max((s.proven or 0 for s in own), default=0) < wanted for own in searches]
    n, left = len(found), sum(not got and few for got, few in zip(found, short, strict=True))
    level = result.settings.level
    ends = binomial_interval([sum(found), sum(found) + left], n, level=level)
    return FoundShare(
        found=sum(found),
        of=n,
        guesses=guesses,
        value=sum(found) / n,
        low=float(ends.low[0]),
        high=float(ends.high[1]),
        level=level,
        complete=not left,
    )


def title_of(result: ResultNumbers) -> str:
    """What a result is of, on one line."""
    inserted = sum(canary.role == "canary" for canary in result.canaries)
    controls = count(len(result.canaries) - inserted, "control")
    formats = ", ".join(form.name for form in result.formats)
    return (
        f"Result of {visible(result.model.path)}: {count(inserted, 'canary', 'canaries')} and "
        f"{controls} of {visible(formats)}"
    )


def _refuse_another_run(directory: Path, scores: "Scores | None") -> None:
    """Refuse scores without a result here, which are of another, and a run that was begun here."""
    for path in (directory / "scores.parquet", directory / "run.json"):
        if path.exists() and not (path.suffix == ".parquet" and _holds(path, scores)):
            raise ResultError(
                f"{path} is there already, and not of this result; choose another directory"
            )


def _holds(table: Path, scores: "Scores | None") -> bool:
    """Whether the file is what would be written of these scores."""
    from lmexposure.studies.exposure.scores import write_score_table

    if scores is None:
        return False
    with tempfile.TemporaryDirectory() as aside:
        again = Path(aside) / table.name
        write_score_table(again, scores)
        return table.is_file() and sha256_file(table) == sha256_file(again)


def save(result: ResultNumbers, directory: Path) -> Path:
    """Write result.json and, where the scores are known, scores.parquet; see `Result.save`."""
    from lmexposure.studies.exposure.scores import write_score_table  # brings numpy

    path, table, scores = directory / result.NAME, directory / "scores.parquet", result.scores
    if path.exists():
        if not result.same_as(type(result).read_alone(path)):
            raise ResultError(f"{path} is another result; choose another directory")
        if table.exists() or scores is None:
            return path
    else:
        _refuse_another_run(directory, scores)
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with study(directory):
        if scores is None:
            result.write(path)
            return path
        write_score_table(table, scores)
        try:
            result.model_copy(update={"scores_sha256": sha256_file(table)}).write(path)
        except BaseException:
            if not path.exists():  # scores alone would be taken for another's at the next try
                remove(table)
            raise
    return path
