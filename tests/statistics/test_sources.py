"""Every public definition says where it comes from, or where its proof is."""

import inspect
import typing

import pytest

import lmexposure.statistics as room

# They hold what others computed: their own sources say how.
CONTAINERS = {"ClaimCheck", "ExposureEstimate"}
CONSTANTS = {"GUESSING"}


def cites(value: object) -> bool:
    return "Source:" in (inspect.getdoc(value) or "")


def returned_by(function: object) -> set[type]:
    """The classes of what a function returns, those within a list or a union included."""
    found, rest = set(), [typing.get_type_hints(function)["return"]]
    while rest:
        kind = rest.pop()
        found |= {kind} if inspect.isclass(kind) else set()
        rest += typing.get_args(kind)
    return found


FUNCTIONS = [name for name in room.__all__ if inspect.isfunction(getattr(room, name))]
CLASSES = [name for name in room.__all__ if inspect.isclass(getattr(room, name))]


def test_the_face_holds_functions_classes_and_few_constants() -> None:
    assert set(room.__all__) - {*FUNCTIONS, *CLASSES} == CONSTANTS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_cites_its_source(name: str) -> None:
    assert cites(getattr(room, name))


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_cites_its_source_or_is_what_a_function_returns(name: str) -> None:
    results = set().union(*(returned_by(getattr(room, function)) for function in FUNCTIONS))
    held = name in CONTAINERS
    assert held != (cites(getattr(room, name)) or getattr(room, name) in results)
