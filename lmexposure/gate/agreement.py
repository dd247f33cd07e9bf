"""Whether the parts of a result speak of the same canaries: a class that vanished was not tested.

A result is made in one piece. Where its parts contradict each other, somebody changed one of them,
and no verdict is drawn from the rest.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from lmexposure.errors import ResultError
from lmexposure.gate.fields import table, whole
from lmexposure.gate.wording import visible
from lmexposure.records import Result
from lmexposure.result_checks import wrong_part

__all__ = ["check_agreement"]

_ALTERNATIVES = {"canary": "memorised", "control": "different"}
_Key = tuple[str, str, int]


def check_agreement(result: Result) -> None:
    """Refuse a result whose parts are not what they should be, or contradict each other.

    Args:
        result: what was measured.

    Raises:
        ResultError: a part of another kind; a class of canaries or controls without its row in the
            summary, or a row without its class; a guessing test of other numbers; a hash that is
            no text.
    """
    problem = wrong_part(result) or _wrong_hashes(result)
    if problem:
        raise ResultError(f"the result: {problem}; measure again")
    canaries = Counter(_class_of_canary(vars(one)) for one in result.canaries)
    rows = Counter(_class_of_row(row) for row in result.summary)
    _check_classes(set(canaries), set(rows))
    for key, times in rows.items():
        if times > 1:
            raise ResultError(f"the summary has {times} rows of {_named(key)}; measure again")
    formats = {str(row["name"]): row for row in result.formats}
    for row in result.summary:
        _check_test(row, canaries[_class_of_row(row)], formats)


def _wrong_hashes(result: Result) -> str | None:
    hashes = {
        "inputs_sha256": result.inputs_sha256,
        "manifest_sha256": result.manifest_sha256,
        "weights_sha256": result.model.get("weights_sha256", ""),
    }
    wrong = (name for name, value in hashes.items() if not isinstance(value, str))
    return next((f"{name} is no text" for name in wrong), None)


def _class_of_canary(values: Mapping[str, Any]) -> _Key:
    where = f"canary {visible(values['id'])}"
    if values["role"] not in _ALTERNATIVES:
        raise ResultError(
            f"{where} has role {visible(repr(values['role']))}, which is neither canary nor "
            "control; measure again"
        )
    copies = whole(values, "repetitions", low=int(values["role"] == "canary"), where=where)
    return values["format"], values["role"], copies


def _class_of_row(row: Mapping[str, Any]) -> _Key:
    name, role = row.get("format"), row.get("role")
    if not isinstance(name, str) or role not in tuple(_ALTERNATIVES):
        raise ResultError(
            f"a row of the summary is of format {visible(repr(name))[:60]} and role "
            f"{visible(repr(role))[:60]}; measure again"
        )
    return name, str(role), whole(row, "repetitions", low=0, where="a row of the summary")


def _check_classes(canaries: set[_Key], rows: set[_Key]) -> None:
    missing, beyond = sorted(canaries - rows), sorted(rows - canaries)
    if missing:
        raise ResultError(
            f"the summary says nothing of {_named(missing[0])}, which the result holds; measure "
            "again"
        )
    if beyond:
        raise ResultError(
            f"the summary speaks of {_named(beyond[0])}, of which the result holds none; measure "
            "again"
        )


def _named(key: _Key) -> str:
    name, role, copies = key
    return f"{visible(name)}, {role}, repetitions {copies}"


def _check_test(row: Mapping[str, Any], n: int, formats: Mapping[str, Mapping[str, Any]]) -> None:
    """A row is of these canaries; its guessing test of them, these references, this question."""
    of = f"of {_named(_class_of_row(row))}"
    _same(row, "n", n, f"row {of}")
    test = table(row.get("guessing_test"), where="a guessing test of the summary")
    if not test:  # the gate says that it is missing
        return
    wanted = {
        "n": n,
        "references": formats[row["format"]]["references"],
        "alternative": _ALTERNATIVES[row["role"]],
    }
    for key, value in wanted.items():
        _same(test, key, value, f"guessing test {of}")


def _same(record: Mapping[str, Any], key: str, value: object, where: str) -> None:
    found = record.get(key)
    if found != value or isinstance(found, bool):
        raise ResultError(
            f"{where}: {key}={visible(repr(found))[:60]}, but the result holds {value!r}; measure "
            "again"
        )
