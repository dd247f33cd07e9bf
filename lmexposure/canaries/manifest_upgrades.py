"""What makes an older manifest.json one of today; kept for good.

An upgrade moves and names; whether what comes out is sound, the record and `manifest` say.
The older versions carried a `checksum`: the hash of all the rest, schema included, which is the
name by which results, sidecars and trained models know the manifest.
"""

import json

from lmexposure._files import content_hash
from lmexposure._record import JsonTable, JsonValue, Upgrades, list_of, table_of
from lmexposure.errors import ManifestError

_FIXED, _TOSSED = "lmexposure.manifest/1", "lmexposure.manifest/2"


def from_version_1(values: JsonTable, _hashed: bool) -> JsonTable:
    """Of before 2026-12, where a fixed number went in: as version 2 would have said it.

    Raises:
        ManifestError: the checksum does not fit.
    """
    _take_checksum(values, _FIXED)
    plan = table_of(values["plan"], "plan")
    if "coins" in plan or "coin_seed" in plan:
        raise ManifestError(f"schema {_FIXED!r} does not go with coins; insert again")
    made: JsonTable = {**values, "plan": {**plan, "coins": None, "coin_seed": None}}
    return {**made, "checksum": content_hash({"schema": _TOSSED, **made})}


def from_version_2(values: JsonTable, _hashed: bool) -> JsonTable:
    """Of before 2026-12, where coins were tossed.

    It had "coins" and "coin_seed", "canaries" for all entries, "excluded" for held out, and said of
    a corpus whether it was verified only where it was not.

    Raises:
        ManifestError: the checksum does not fit.
    """
    _take_checksum(values, _TOSSED)
    plan = dict(table_of(values.pop("plan"), "plan"))
    plan["inclusion_probability"] = plan.pop("coins")
    plan["inclusion_seed"] = plan.pop("coin_seed")
    entries = [
        _entry(table_of(row, "canaries[]")) for row in list_of(values.pop("canaries"), "canaries")
    ]
    corpus: JsonTable = {"verified": True, **table_of(values.pop("corpus"), "corpus")}
    return {**values, "plan": plan, "corpus": corpus, "entries": list[JsonValue](entries)}


def from_version_3(values: JsonTable, _hashed: bool) -> JsonTable:
    """Of before 2026-12, where nothing was said of the records around the canaries."""
    return {**values, "corpus": {**table_of(values["corpus"], "corpus"), "wrapping": None}}


def from_version_4(values: JsonTable, _hashed: bool) -> JsonTable:
    """Of before 2026-12, where all secrets were drawn uniformly."""
    plan = table_of(values["plan"], "plan")
    formats = [
        {**table_of(form, "plan.formats[]"), "kind": "uniform", "known": list[JsonValue]()}
        for form in list_of(plan["formats"], "plan.formats")
    ]
    return {**values, "plan": {**plan, "formats": list[JsonValue](formats)}}


def as_version_4(values: JsonTable) -> JsonTable:
    """The contents of a manifest of uniform secrets as version 4 wrote them."""
    plan = table_of(values["plan"], "plan")
    formats = [
        {k: v for k, v in table_of(form, "plan.formats[]").items() if k not in ("kind", "known")}
        for form in list_of(plan["formats"], "plan.formats")
    ]
    plan = {**plan, "formats": list[JsonValue](formats)}
    values = {**values, "schema": "lmexposure.manifest/4", "plan": plan}
    corpus = table_of(values["corpus"], "corpus")
    if not corpus["wrapping"]:
        return values
    wrapping = table_of(corpus["wrapping"], "corpus.wrapping")
    new = ("prompt_field", "completion_field", "parts", "chat_date")
    wrapping = {k: v for k, v in wrapping.items() if v or k not in new}
    return {**values, "corpus": {**corpus, "wrapping": wrapping}}


def as_version_3(values: JsonTable) -> JsonTable:
    """The contents of a manifest of plain texts as version 3 wrote them."""
    values = as_version_4(values)
    corpus = dict(table_of(values["corpus"], "corpus"))
    del corpus["wrapping"]
    return {**values, "schema": "lmexposure.manifest/3", "corpus": corpus}


def is_older(content: bytes) -> bool:
    """Whether a sound manifest.json is of before version 3."""
    return b'"checksum"' in content and "checksum" in json.loads(content)


def older_name(content: bytes) -> str:
    """The checksum of a sound manifest.json of before version 3."""
    return str(json.loads(content)["checksum"])


def _take_checksum(values: JsonTable, schema: str) -> None:
    checksum = values.pop("checksum", None)
    try:
        fits = checksum == content_hash({"schema": schema, **values})
    except (ValueError, RecursionError):
        fits = False
    if not fits:
        raise ManifestError(
            "the checksum does not fit: the manifest was edited or damaged; take the one that "
            "insertion wrote"
        )


def _entry(row: JsonTable) -> JsonTable:
    return {**row, "role": "held_out"} if row["role"] == "excluded" else row


UPGRADES: Upgrades = {
    1: from_version_1,
    2: from_version_2,
    3: from_version_3,
    4: from_version_4,
}
