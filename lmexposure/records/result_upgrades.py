"""What makes an older result.json one of today; kept for good.

An upgrade moves and names, and fills in what was not kept then; whether what comes out is sound,
the record says. What is no table or list raises a TypeError, which the door puts into words.
"""

import math

from lmexposure._record import JsonTable, JsonValue, list_of, table_of

_NARROW = (
    "written by a version that took references and draws for all there is: its intervals of "
    "medians and quartiles are too narrow where many canaries share few references; lmexposure "
    "check computes its own, and measuring again with another directory gives right ones"
)
_NOT_SAID = "the file of an older version has no number here, and does not say why"
_GUESSING: JsonTable = {"mean": 1 / math.log(2), "median": 1.0, "upper_quartile": 2.0}


def from_version_1(values: JsonTable, hashed: bool) -> JsonTable:
    """Of before 2026-12: `lmexposure.result/1`.

    It had "coins" for the inclusion probability, "excluded" for held out, "ceiling" and
    "attainable" for the most attainable, numbers for seeds and places, and left out what did not
    apply.

    Args:
        values: its contents, without schema and hash.
        hashed: whether it carried the hash of its contents; the first ones did not.

    Raises:
        ValueError: it has a part that came with a later version.
    """
    for name in ("context", "base", "trajectory", "kinds", "witness"):
        if name in values:
            raise ValueError(f"it has a part {name!r}, which came later")
    made = {"lmexposure": None, "scores_sha256": None, "privacy": None, **values}
    made["model"] = _with({"context_window": None, "validation": None}, values["model"], "model")
    made["settings"] = settings_from_version_1(values["settings"])
    made["formats"] = [_format(row) for row in list_of(values["formats"], "formats")]
    canaries = [_canary(row) for row in list_of(values["canaries"], "canaries")]
    made["canaries"] = list[JsonValue](canaries)
    made["summary"] = [_summary(row) for row in list_of(values["summary"], "summary")]
    if made["privacy"] is not None:
        made["privacy"] = _privacy(made["privacy"])
    warnings = list(list_of(values["warnings"], "warnings"))
    if not hashed and any(_is_drawn(canary) for canary in canaries):
        warnings.append(_NARROW)
    if any(canary["log_perplexity_bits"] is None for canary in canaries) and not warnings:
        warnings.append(f"log-perplexities are missing: {_NOT_SAID}")
    made["warnings"] = warnings
    return made


def from_version_2(values: JsonTable, _hashed: bool) -> JsonTable:
    """Of before 2026-12: canaries were scored as texts of their own, against no base model."""
    settings = {**table_of(values["settings"], "settings"), "left_context": None}
    return {**values, "settings": settings, "context": None, "base": None, "trajectory": []}


def from_version_3(values: JsonTable, _hashed: bool) -> JsonTable:
    """Of before 2026-12: all canaries were uniform fills."""
    return {**values, "kinds": []}


def _with(usual: JsonTable, value: JsonValue, where: str) -> JsonTable:
    """A copy with what it lacks."""
    return {**usual, **table_of(value, where)}


def _renamed(value: JsonValue, names: dict[str, str], where: str) -> JsonTable:
    return {names.get(name, name): inner for name, inner in table_of(value, where).items()}


def _in_digits(table: JsonTable, *names: str) -> JsonTable:
    """A copy with these integers as decimal strings."""
    digits = {name: table.get(name) for name in names}
    return {**table, **{n: str(v) if type(v) is int else v for n, v in digits.items()}}


def settings_from_version_1(value: JsonValue) -> JsonTable:
    """What was asked of a measurement, also where a run.json says it."""
    return _in_digits(
        _with({"quick": False, "threads": None}, value, "settings"), "seed", "budget_steps"
    )


def _format(value: JsonValue) -> JsonTable:
    usual: JsonTable = {
        "exhaustive": False,
        "set_aside": 0,
        "shared_tokens": 0,
        "certifiable": False,
        "first_unscored": False,
        "reference_bits_quantiles": [],
        "skew_normal": None,
        "search": None,
    }
    row = _with(usual, value, "formats[]")
    row["reference_bits_quantiles"] = row["reference_bits_quantiles"] or []
    search = dict(table_of(row["search"] or {}, "formats[].search"))
    row["interrupted"] = search.pop("interrupted", False)
    row["search"] = _search(search) if search else None
    return row


def _search(search: JsonTable) -> JsonTable:
    names = ("draws", "draw_steps", "walk_steps", "most_live", "guesses_proven", "guess_steps")
    return _in_digits({**dict.fromkeys(names), **search}, "budget_steps")


def _canary(value: JsonValue) -> JsonTable:
    canary = _with({"estimates": {}, "extraction": []}, value, "canaries[]")
    exposure = _estimate(canary["exposure"])
    estimates = {
        name: _estimate(row)
        for name, row in table_of(canary["estimates"], "canaries[].estimates").items()
    }
    if not estimates:
        estimates[str(exposure["method"]).partition(" ")[0]] = exposure
    canary["exposure"] = exposure
    canary["estimates"] = dict[str, JsonValue](estimates)
    canary["extraction"] = [
        _in_digits(_with({"proven": None}, row, "canaries[].extraction[]"), "place")
        for row in list_of(canary["extraction"], "canaries[].extraction")
    ]
    return canary


def _estimate(value: JsonValue) -> JsonTable:
    usual: JsonTable = {
        **dict.fromkeys(("rank", "place", "draws", "effective_draws", "steps")),
        "assumptions": [],
        "warnings": [],
    }
    row = _in_digits(_with(usual, value, "an estimate"), "rank", "place")
    if None in (row["value"], row["low"], row["high"]) and not row["warnings"]:
        row["warnings"] = [_NOT_SAID]
    return row


def _is_drawn(canary: JsonTable) -> bool:
    """Whether the exposure that is shown rests on a sample of the fills."""
    return table_of(canary["exposure"], "canaries[].exposure")["method"] in (
        "sampled",
        "importance",
    )


def _summary(value: JsonValue) -> JsonTable:
    usual: JsonTable = {
        "controls": None,
        "guessing": _GUESSING,
        "other_medians": {},
        "skew_normal_flagged": None,
        "guessing_test": None,
        "extraction": [],
        "guesses": [],
    }
    row = _with(usual, value, "summary[]")
    for name in ("mean_interval", "controls", "guessing_test"):
        if row[name] is not None:
            row[name] = _in_digits(table_of(row[name], f"summary[].{name}"), "seed")
    return row


def _privacy(value: JsonValue) -> JsonTable:
    names = {"coins": "inclusion_probability", "attainable": "max_attainable"}
    section = {"notes": [], **_renamed(value, names, "privacy")}
    if section["inclusion_probability"] == "fixed":
        section["inclusion_probability"] = None
    section["primary"] = _bound(section["primary"])
    section["classes"] = [
        _privacy_class(row) for row in list_of(section["classes"], "privacy.classes")
    ]
    if section["claim"] is not None:
        section["claim"] = _renamed(
            section["claim"], {"ceiling": "max_attainable"}, "privacy.claim"
        )
    _sum_levels(section)
    return section


def _bound(value: JsonValue) -> JsonValue:
    if value is None:
        return None
    return {"mu": None, **_renamed(value, {"ceiling": "max_attainable"}, "a bound")}


def _privacy_class(value: JsonValue) -> JsonTable:
    row = {"note": None, **_renamed(value, {"excluded": "held_out"}, "privacy.classes[]")}
    if row["bounds"] is not None:
        names = {"coins": "inclusion_probability"}
        bounds = _renamed(row["bounds"], names, "privacy.classes[].bounds")
        bounds["primary"] = _bound(bounds["primary"])
        bounds["others"] = [_bound(bound) for bound in list_of(bounds["others"], "others")]
        row["bounds"] = bounds
    return row


def _sum_levels(section: JsonTable) -> None:
    """The largest of several bounds has the sum of their levels.

    Until 2026-11 the primary bound, and the verdict on a claim, had the level of one class.
    """
    parts = "privacy.classes"
    classes = [table_of(row, parts) for row in list_of(section["classes"], parts)]
    bounds = [table_of(row["bounds"], parts) for row in classes if row["bounds"] is not None]
    shares = [table_of(row["primary"], parts).get("significance") for row in bounds]
    if section["primary"] is None or not all(isinstance(share, int | float) for share in shares):
        return
    primary = table_of(section["primary"], "privacy.primary")
    stored = primary.get("significance")
    together = math.fsum(share for share in shares if isinstance(share, int | float))
    if not isinstance(stored, int | float) or not stored < together * (1 - 1e-9) < 1:
        return
    primary["significance"] = together
    claim = section["claim"]
    if isinstance(claim, dict) and claim.get("significance") == stored:
        claim["significance"] = together
        old, right = (f"significance {level:g})" for level in (stored, together))
        claim["reason"] = str(claim.get("reason")).replace(old, right)
