"""The shipped formats and people's own TOML files."""

import math
from pathlib import Path

import pytest

from lmexposure.canaries import check_format_file, load_format, shipped_formats
from lmexposure.errors import FormatError

OWN = 'name = "own"\ntemplate = "My code is {digits:6}"\ndescription = "A code"\n'

SHIPPED = sorted(
    path.stem for path in (Path(__file__).parents[2] / "canary_formats").glob("*.toml")
)
# Counted by hand from the templates; a format without a line here is tested like the others.
SIZES = {
    "random_number": 10**9,
    "ssn": 10**9,
    "card_number": 10**16,
    "credit_card": 10**15,
    "phone": 10**10,
    "email": 26**8 * 36**4,
    "password": 94**12,
    "api_key": 16**32,
    "pin": 10**4,
    "uuid": 2**122,
    "medical_record": 26**2 * 10**7 * 38,
    "street_address": 10**9 * 32 * 8 * 32,
}


def test_shipped_sizes() -> None:
    sizes = {name: form.size for name, form in shipped_formats().items()}
    assert sizes | SIZES == sizes


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_formats_are_sound(name: str) -> None:
    one = load_format(name)
    assert one.name == name
    assert one.description
    assert one.source
    assert one.prefix
    assert one.bits == math.log2(one.size)
    for index in (0, one.size - 1, *one.sample(20, seed=2)):
        assert one.index(one.text(index)) == index


def test_shipped_file_names_are_format_names() -> None:
    assert sorted(shipped_formats()) == SHIPPED


def test_the_papers_format() -> None:
    assert load_format("random_number").text(281265017) == "The random number is 281265017"


def test_own_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN, encoding="utf-8")
    assert load_format(path) == load_format(str(path))
    assert load_format(path).size == 10**6
    check = check_format_file(path)
    assert check.format == load_format(path)
    assert check.problems == check.advice == ()


def test_a_list_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'name = "own"\ntemplate = "{choice:a}{digits:1}"\n[lists]\na = ["x", "y"]\n', "utf-8"
    )
    check = check_format_file(path)
    assert check.format is not None
    assert check.format.lists == {"a": ("x", "y")}
    assert len(check.advice) == 3
    assert "no literal text" in check.advice[0]
    assert "only 4.3 bits" in check.advice[1]
    assert "no description" in check.advice[2]


def test_the_shipped_copy_cannot_be_changed() -> None:
    shipped_formats().clear()
    assert shipped_formats()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name = ", "is not TOML"),
        (OWN + 'colour = "red"\n', "unknown keys: colour; a format has description, lists"),
        ('name = "own"\n', "missing keys: template"),
        ('name = "own"\ntemplate = "{digit:3}"\n', "unknown hole"),
        ('name = "own"\ntemplate = "{digits:3}"\nlists = 3\n', "lists must be a table"),
    ],
)
def test_broken_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(FormatError, match=message):
        load_format(path)
    check = check_format_file(path)
    assert check.format is None
    assert "own.toml" in check.problems[0]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no format 'luhn'; the shipped ones are api_key, "):
        load_format("luhn")
    with pytest.raises(FormatError, match=r"no format 'PINN'; did you mean 'pin'\? The shipped"):
        load_format("PINN")
    with pytest.raises(FormatError, match=r"cannot read the format file .*: No such file"):
        load_format(tmp_path / "missing.toml")
    (tmp_path / "latin.toml").write_bytes(b"\xe9")
    with pytest.raises(FormatError, match="not UTF-8 text"):
        load_format(tmp_path / "latin.toml")
