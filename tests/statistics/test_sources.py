"""Every public definition says where it comes from, or where its proof is."""

import inspect
import typing
from dataclasses import is_dataclass

import lmexposure.statistics as room

# They hold what others computed: their own sources say how.
CONTAINERS = {"Estimate", "ExposureEstimate"}
CONSTANTS = {"GUESSING", "Method", "Validity"}


def cites(value: object) -> bool:
    return "Source:" in (inspect.getdoc(value) or "")


def returned_by(function: object) -> set[type]:
    """The classes of what a function returns, those within a list, a union or a part included."""
    found, rest = set(), [typing.get_type_hints(function)["return"]]
    while rest:
        kind = rest.pop()
        rest += typing.get_args(kind)
        if inspect.isclass(kind) and kind not in found:
            found.add(kind)
            rest += typing.get_type_hints(kind).values() if is_dataclass(kind) else ()
    return found


def test_functions_cite_their_sources_and_classes_too_or_a_function_returns_them() -> None:
    members = {name: getattr(room, name) for name in room.__all__}
    functions = {name: value for name, value in members.items() if inspect.isfunction(value)}
    classes = {name: value for name, value in members.items() if inspect.isclass(value)}
    assert members.keys() - functions.keys() - classes.keys() == CONSTANTS
    assert [name for name, value in functions.items() if not cites(value)] == []
    results = set().union(*map(returned_by, functions.values()))
    others = {name for name, value in classes.items() if value not in results}
    unproven = {name for name in others if not cites(members[name])}
    assert unproven == CONTAINERS
