"""What is published: one package with its formats, the metadata, the sdist; see scripts/build."""

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

import lmexposure
from lmexposure.canaries.format import _folder

ROOT = Path(__file__).parents[1]
FORMATS = {path.name for path in (ROOT / "canary_formats").glob("*.toml")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def built(target: str, folder: Path) -> Path:
    """What the build backend of pyproject.toml makes of the checkout."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return next(folder.iterdir())


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(built("wheel", tmp_path_factory.mktemp("wheel"))) as archive:
        archive.extractall(folder)
    return folder


def test_the_wheel_holds_one_package_with_its_formats_and_types(unpacked: Path) -> None:
    made = {path.name for path in unpacked.iterdir()}
    assert made == {"lmexposure", f"lmexposure-{lmexposure.__version__}.dist-info"}
    package = unpacked / "lmexposure"
    assert {path.name for path in (package / "canary_formats").iterdir()} == FORMATS
    assert (package / "py.typed").exists()
    modules = {path.relative_to(ROOT) for path in (ROOT / "lmexposure").rglob("*.py")}
    assert {path.relative_to(unpacked) for path in unpacked.rglob("*.py")} == modules


def test_the_wheel_finds_its_formats_without_the_checkout(unpacked: Path, tmp_path: Path) -> None:
    code = (
        "import lmexposure, lmexposure.canaries as canaries\n"
        "print(lmexposure.__file__)\n"
        "print(*canaries.shipped_formats())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        check=True,
        capture_output=True,
        text=True,
    )
    where, names = done.stdout.splitlines()
    assert Path(where).parent == unpacked / "lmexposure"
    assert {f"{name}.toml" for name in names.split()} == FORMATS


def test_a_checkout_reads_the_folder_at_its_top() -> None:
    """As an editable install has it: what is added there is used at once."""
    assert Path(str(_folder())) == ROOT / "canary_formats"


def test_metadata_citation_and_changelog_agree_and_the_licence_is_whole(unpacked: Path) -> None:
    metadata = Parser().parsestr(next(unpacked.glob("*.dist-info/METADATA")).read_text("utf-8"))
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest
    assert metadata["Name"] == "lmexposure"
    assert metadata["Version"] == lmexposure.__version__ == newest[1]
    assert metadata["License-Expression"] == cited["license"] == "Apache-2.0"
    assert (
        [{"name": metadata["Author"]}] == cited["authors"] == [{"name": "the lmexposure authors"}]
    )
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert set(cited) >= {"cff-version", "message", "title"}
    assert PROJECT["dynamic"] == ["version"]  # it is in one place
    assert "version" not in cited
    shipped = next(unpacked.glob("*.dist-info/licenses/LICENSE")).read_text("utf-8")
    assert shipped == (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in shipped
    assert "END OF TERMS AND CONDITIONS" in shipped


def test_direct_imports_are_declared() -> None:
    """Not what comes with something else today and need not tomorrow."""
    imported = {name for path in (ROOT / "lmexposure").rglob("*.py") for name in imports_of(path)}
    foreign = imported - {*sys.stdlib_module_names, "lmexposure"}
    extras = PROJECT["optional-dependencies"]
    needs = [*PROJECT["dependencies"], *(need for name in extras for need in extras[name])]
    declared = {re.split(r"[\[<>=]", need)[0].replace("-", "_") for need in needs}
    # Parts of what is declared: jinja2 and pydantic pin or bound them, and give out their types.
    declared |= {"markupsafe", "pydantic_core", "typing_extensions"}
    assert {name.replace("yaml", "pyyaml") for name in foreign} - declared == set()


def imports_of(path: Path) -> Iterator[str]:
    """The packages that a module imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.split(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).split(".")[0]


def test_the_sdist_holds_what_tests_need(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout, so what is committed is not known")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\n")
    committed = {name for name in listed if (ROOT / name).is_file()}
    with tarfile.open(built("sdist", tmp_path)) as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers()}
    assert committed - set(members) == set()
    assert members["scripts/demo"].mode & 0o100
    assert not {name.split("/")[0] for name in members} & {".venv", "runs", "dist"}
