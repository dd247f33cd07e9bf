import inspect

import pytest

from lmexposure import errors


def test_every_error_is_exported_and_of_the_tree() -> None:
    found = {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert sorted(found) == errors.__all__
    assert all(issubclass(value, errors.LmexposureError) for value in found.values())


@pytest.mark.parametrize("name", errors.__all__)
def test_the_tree_at_the_top_names_every_error(name: str) -> None:
    assert name in (errors.__doc__ or "")


def test_python_catches_them_by_the_usual_names() -> None:
    assert issubclass(errors.FormatError, ValueError)
    assert issubclass(errors.FileError, OSError)
    assert issubclass(errors.NumericalError, ArithmeticError)


def test_a_disk_error_is_shown_without_its_number() -> None:
    assert str(errors.FileError(28, "cannot write x")) == "cannot write x"
    assert errors.FileError(28, "cannot write x").errno == 28
    assert str(errors.FileError()) == ""
