"""The rows of a report: classes and canaries, as the result holds them, ready to be read."""

from collections.abc import Iterable, Mapping
from typing import Any

from lmexposure.canaries.manifest import Manifest
from lmexposure.records import CanaryResult, Result
from lmexposure.reporting.data import CanaryRow, ClassRow, Found

__all__ = ["canary_rows", "class_rows"]

_WITH_SOME_GIVEN = ("greedy", "beam")


def class_rows(result: Result, form: Mapping[str, Any]) -> tuple[ClassRow, ...]:
    """The classes of one format: controls first, then by ascending repetitions.

    Args:
        result: the result.
        form: the format's record in it.
    """
    rows = [row for row in result.summary if row["format"] == form["name"]]
    rows.sort(key=lambda row: (row["role"] != "control", row["repetitions"]))
    return tuple(_class_row(row, int(form["space_size"])) for row in rows)


def _class_row(row: Mapping[str, Any], size: int) -> ClassRow:
    median, epsilon = row["median"], row.get("epsilon")
    return ClassRow(
        role=row["role"],
        repetitions=row["repetitions"],
        n=row["n"],
        mean=row["mean"],
        median=median["value"],
        low=median["low"],
        high=median["high"],
        level=row["level"],
        capped=bool(row.get("median_capped")),
        p_value=(row.get("guessing_test") or {}).get("p_value"),
        epsilon=None if epsilon is None else epsilon["value"],
        exact=sum(n for name, n in row.get("methods", {}).items() if name.startswith("exact")),
        guesses=tuple(
            Found(
                given=one["guesses"],
                found=one["found"],
                of=one["of"],
                by_chance=one["of"] * min(1.0, one["guesses"] / size),
            )
            for one in row.get("guesses", ())
        ),
        revealed=_revealed(row.get("extraction", ())),
    )


def _revealed(rows: Iterable[Mapping[str, Any]]) -> tuple[Found, ...]:
    """The better search for each number of characters, beside the better chance of both."""
    by_given: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["method"] in _WITH_SOME_GIVEN:
            by_given.setdefault(row["revealed"], []).append(row)
    return tuple(
        Found(
            given=given,
            found=max(row["found"] for row in both),
            of=max(row["of"] for row in both),
            by_chance=max(row["by_chance"] for row in both),
        )
        for given, both in sorted(by_given.items())
    )


def canary_rows(
    result: Result, name: str, secrets_of: Manifest | None = None
) -> tuple[CanaryRow, ...]:
    """The canaries and controls of one format, in the result's order.

    Args:
        result: the result.
        name: of the format.
        secrets_of: the manifest, where the secrets are to be shown.
    """
    secrets = {} if secrets_of is None else _secrets(secrets_of, name)
    return tuple(
        _canary_row(one, secrets.get(one.id)) for one in result.canaries if one.format == name
    )


def _secrets(manifest: Manifest, name: str) -> dict[str, str]:
    """What stands in the holes, by the canary's id."""
    form = manifest.formats[name]
    drawn = (one for one in manifest.entries if one.format == name)
    return {one.id: " ".join(form.fills(one.index)) for one in drawn}


def _canary_row(one: CanaryResult, secret: str | None) -> CanaryRow:
    exposure = one.exposure
    found, tried = _guesses(one)
    rank = exposure.get("rank")
    return CanaryRow(
        id=one.id,
        role=one.role,
        repetitions=one.repetitions,
        log_perplexity_bits=one.log_perplexity_bits,
        exposure=exposure.get("value"),
        low=exposure.get("low"),
        high=exposure.get("high"),
        capped=bool(exposure.get("capped")),
        method=str(exposure.get("method", "none")),
        rank=None if rank is None else str(rank),
        guesses=found,
        guesses_tried=tried,
        revealed=_fewest_revealed(one.extraction),
        secret=secret,
    )


def _guesses(one: CanaryResult) -> tuple[int | None, int | None]:
    """(guesses that find it, guesses that best-first search made); a counted rank knows the first.

    The search stops where its guesses are spent; who goes on in the same order finds the secret at
    the place that an exact count gives it.
    """
    counted = _counted_place(one.exposure)
    for row in one.extraction:
        if row["method"] == "best_first" and row["revealed"] == 0:
            place = row["place"] if row["found"] else counted
            return place, row.get("proven") or None
    return counted, None


def _counted_place(exposure: Mapping[str, Any]) -> int | None:
    place = exposure.get("place")
    exact = exposure.get("method") == "exact" and not exposure.get("capped")
    return int(place) if exact and place is not None else None


def _fewest_revealed(rows: Iterable[Mapping[str, Any]]) -> int | None:
    """Finds that guessing would have made as likely as not count for nothing."""
    given = [
        row["revealed"]
        for row in rows
        if row["method"] in _WITH_SOME_GIVEN and row["found"] and 2 * row["by_chance"] < 1
    ]
    return min(given, default=None)
