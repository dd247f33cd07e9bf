"""The house as agreed: rooms stand on each other, faces are explicit, the names people rely on."""

import ast
import compileall
import importlib
import importlib.util
import inspect
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lmexposure"
SCRIPTS = PACKAGE.parent / "scripts"
# From the ground up; canaries and statistics stand side by side.
FLOORS = {
    "errors": 0,
    "_lazy": 0,
    "_style": 0,
    "_notebook": 1,
    "_quantiles": 1,
    "_validate": 1,
    "_written": 1,
    "_files": 2,
    "_saved_models": 3,
    "_types": 2,
    "_forecast": 2,
    "_settings": 3,
    "_integrity": 3,
    "_record": 4,
    "core": 5,
    "canaries": 5,
    "statistics": 5,
    "studies": 6,
    "models": 7,
    "scoring": 8,
    "audit": 9,
    "federated": 10,
    "regurgitation": 10,
    "sweeps": 10,
    "defences": 11,
    "integrations": 12,
    "doors": 13,
    "calls": 13,
    "cli": 14,
    "__main__": 15,
}
HOLDERS = {"models", "scoring"}
ASKING = {"audit", "defences", "federated", "integrations", "regurgitation", "sweeps"}
LIBRARIES = {"torch", "transformers", "peft", "accelerate", "safetensors", "opacus", "torchao"}
# Of a model of transformers: what depends on the library, and on its version.
INSIDE = {
    *("config", "device", "dtype", "parameters", "num_parameters", "modules", "state_dict"),
    *("forward", "generate", "get_input_embeddings", "get_output_embeddings", "peft_config"),
}
# The classes of a model that is asked, and what makes one.
LOADED = {"LoadedModel", "TorchModel", "BaseModel", "LanguageModel", "TokenModel", "Stepping"}
LOADED |= {"load_model", "new_model", "load_for_measuring", "model_in_memory", "load_base"}
ROOMS = sorted({path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"cli"})
# Their names are imported when they are asked for: a light command needs few of them. Those of
# models too, but for the LSTM, which registers itself with transformers on import.
LAZY = [room for room in ROOMS if room != "models"]


def imports_of(path: Path) -> set[str]:
    """The modules of lmexposure that a file imports from, at its top or inside functions."""
    return {
        str(node.module)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lmexposure.")
    }


IMPORTS = {path: imports_of(path) for path in sorted(PACKAGE.rglob("*.py"))}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_a_package_in_a_zip_file_has_its_faces_and_formats(tmp_path: Path) -> None:
    sources = {path: path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*.py")}
    formats = PACKAGE.parent / "canary_formats"
    sources |= {path: Path("lmexposure", "canary_formats", path.name) for path in formats.iterdir()}
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        for path, name in sources.items():
            packed.write(path, name)
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'packed.zip')!r})\n"
        "import lmexposure as lx; assert 'packed.zip' in lx.__file__\n"
        "assert len(lx.insert(['a', 'b'], formats='pin', repetitions=[1])[0]) == 12\n"
        "from lmexposure.statistics import exact_exposure\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


def test_a_face_that_is_there_compiled_alone_says_so(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "lmexposure", ignore=shutil.ignore_patterns("*.pyc"))
    compileall.compile_dir(tmp_path / "lmexposure", maxlevels=0, quiet=2, legacy=True)
    (tmp_path / "lmexposure" / "__init__.py").unlink()
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import lmexposure"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert re.search(
        r"ImportError: lmexposure cannot read its own source, .*\.py files", done.stderr
    )


def test_a_room_imports_only_rooms_below() -> None:
    above = {
        (str(path.relative_to(PACKAGE)), module)
        for path, modules in IMPORTS.items()
        for module in modules
        # The top of the house imports a room when it is asked for a name of it.
        if path != PACKAGE / "__init__.py"
        and module.split(".")[1] != room_of(path)
        and FLOORS[module.split(".")[1]] >= FLOORS[room_of(path)]
    }
    assert above == set()


def test_only_models_and_scoring_touch_torch() -> None:
    """At any depth of a file, and for type checkers too; a Trainer calls classes of its own."""
    found = {
        (str(path.relative_to(PACKAGE)), name)
        for path in IMPORTS
        if room_of(path) not in HOLDERS
        for name in libraries_of(path)
    }
    trainer = {("callback", "Trainer"), ("callback", "TrainerCallback")}
    trainer |= {("delivered", "TrainerCallback")}
    assert found == {(f"integrations/{file}.py", f"transformers.{name}") for file, name in trainer}


def libraries_of(path: Path) -> Iterator[str]:
    """What a file imports of the libraries that a model of torch is made with."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = [module + alias.name for alias in node.names]
            yield from (name for name in names if name.split(".")[0] in LIBRARIES)


def test_only_models_and_scoring_read_what_is_in_a_model_of_torch() -> None:
    """What a measurement needs of one, `core.lm` names."""
    found = {
        (str(path.relative_to(PACKAGE)), node.lineno, node.attr)
        for path in IMPORTS
        if room_of(path) in ASKING
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in INSIDE and is_model(node.value)
    }
    assert found == set()


def test_only_models_and_scoring_take_the_model_of_torch_out_of_a_loaded_one() -> None:
    """The others hand on the loaded model; a training by name, of weights that it changes."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in IMPORTS
        if room_of(path) not in HOLDERS
    }
    # A field of one file is asked for by its name in another.
    fields = {
        name
        for path, tree in trees.items()
        if room_of(path) in ASKING
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for name in loaded_names(node)
    }
    assert fields >= {"lm", "loaded", "base"}
    found = {
        (str(path.relative_to(PACKAGE)), ast.unparse(node))
        for path, tree in trees.items()
        for loaded in [{*loaded_names(tree), *(fields if room_of(path) in ASKING else ())}]
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "model"
        if last_name(node.value) in loaded
    }
    assert found == {("federated/canife.py", "loaded.model")}


def loaded_names(tree: ast.AST) -> Iterator[str]:
    """What a file says is a loaded model: by annotation, or as what a maker of them gave."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            names, told = [node.arg], node.annotation
        elif isinstance(node, ast.AnnAssign):
            names, told = [last_name(node.target)], node.annotation
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            names, told = list(map(last_name, node.targets)), node.value.func
        else:
            continue
        if LOADED & set(re.findall(r"\w+", ast.unparse(told))):
            yield from names


def last_name(node: ast.expr) -> str:
    return str(getattr(node, "id", getattr(node, "attr", "")))


def is_model(node: ast.expr) -> bool:
    """Whether it is `model`, or somebody's `.model`."""
    return last_name(node) == "model"


def test_protocols_of_a_model_bring_numpy_alone() -> None:
    script = (
        "import sys, lmexposure.core; from lmexposure.core import Encoded, Stepping\n"
        "assert 'numpy' in sys.modules and Encoded.__module__ == 'lmexposure.core.lm'\n"
        f"assert not {LIBRARIES | {'scipy', 'pydantic'}} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_rooms_meet_at_their_faces() -> None:
    """What a room takes from another comes through that room's `__init__.py`."""
    past = {
        (str(path.relative_to(PACKAGE)), module)
        for path, modules in IMPORTS.items()
        for module in modules
        if module.count(".") > 1
        and module.split(".")[1] != room_of(path)
        and not (PACKAGE.parent / module.replace(".", "/") / "__init__.py").exists()
    }
    # `python -m lmexposure`: cli has no face
    assert past == {("__main__.py", "lmexposure.cli.entry")}


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_has_an_explicit_face(room: str) -> None:
    module = importlib.import_module(f"lmexposure.{room}")
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        getattr(module, name)  # a lazy face has it from now on
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    modules = {name for name, value in vars(module).items() if inspect.ismodule(value)}
    assert public - {"TYPE_CHECKING"} - modules == set(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(getattr(module, name).__doc__ for name in module.__all__ if name[0].islower())


def told(room: str) -> dict[str, str]:
    """Public name -> module, as a face tells a type checker, which looks at no table."""
    face = ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))
    (branch,) = (node for node in face.body if isinstance(node, ast.If))
    assert isinstance(branch.test, ast.Name)
    assert branch.test.id == "TYPE_CHECKING"
    imports = [node for node in branch.body if isinstance(node, ast.ImportFrom)]
    assert len(imports) == len(branch.body)
    return {name.name: str(node.module) for node in imports for name in node.names}


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_a_lazy_face_gives_what_it_tells_a_type_checker(room: str) -> None:
    module, homes = importlib.import_module(f"lmexposure.{room}".strip(".")), told(room)
    assert set(homes) == set(module.__all__) - {"__version__"} <= set(dir(module))
    for name, home in homes.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
    inside = {path.stem for path in (PACKAGE / room).iterdir()}
    assert not inside & set(module.__all__), "a module takes the place of a lazy name"


def test_names_and_rooms_come_in_any_order_and_stay_what_they_are() -> None:
    """A module that is imported takes the place of its name in the package above it."""
    script = (
        "import importlib, inspect, random, sys\n"
        "for seed in range(2):\n"
        "    for name in [m for m in sys.modules if m.split('.')[0] == 'lmexposure']:\n"
        "        del sys.modules[name]\n"
        "    lx = importlib.import_module('lmexposure')\n"
        f"    wanted = [*lx.__all__, *{[f'lmexposure.{room}' for room in ROOMS]}]\n"
        "    random.Random(seed).shuffle(wanted)\n"
        "    for name in wanted:\n"
        "        importlib.import_module(name) if '.' in name else getattr(lx, name)\n"
        "    assert not [n for n in lx.__all__ if inspect.ismodule(getattr(lx, n))]\n"
        "    for _ in range(2):\n"
        "        assert lx.exposure(3.5, range(1, 17)).value.tolist() == [2.0]\n"
        "        assert len(lx.insert(['a'], formats='pin', repetitions=[1])[0]) == 11\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_lazy_faces_import_nothing_before_they_are_asked() -> None:
    script = (
        "import sys, lmexposure\n"
        "heavy = {'torch', 'transformers', 'numpy', 'scipy', 'pydantic', 'typer'}\n"
        "own = {m for m in sys.modules if m.startswith('lmexposure.')}\n"
        "assert own <= {'lmexposure._lazy'}\n"
        + "".join(f"import lmexposure.{room}\n" for room in LAZY)
        + "homes = [m for m in sys.modules if m.startswith('lmexposure.')]\n"
        f"rooms = {{*{[f'lmexposure.{room}' for room in LAZY]}}}\n"
        "assert set(homes) == {*rooms, 'lmexposure._lazy', 'lmexposure.core.registry'}\n"
        "assert not heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_lazy_face_refuses_a_name_that_it_does_not_have() -> None:
    with pytest.raises(ImportError, match="cannot import name 'insert_into_nothing'"):
        from lmexposure.canaries import insert_into_nothing  # type: ignore[attr-defined]  # noqa: F401
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        importlib.import_module("lmexposure.canaries").nothing  # noqa: B018


def test_every_module_says_what_it_is() -> None:
    silent = [p for p in IMPORTS if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))]
    assert silent == []


def test_data_pipelines_import_no_trainer() -> None:
    script = (
        "import sys, lmexposure as lx\n"
        "lx.insert(['a', 'b'], formats=['pin'], repetitions=(1,)); lx.insert_files; lx.verify\n"
        "lx.InsertionStep.of(lx.Plan(formats=['pin'], repetitions=(1,)), total=9)\n"
        "assert not {'torch', 'transformers', 'datasets', 'pandas'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("canaries.Format", ["name", "template"]),
        ("canaries.Format.text", ["index"]),
        ("canaries.Format.index", ["text"]),
        ("canaries.Format.fills", ["index"]),
        ("canaries.Format.sample", ["n", "seed"]),
        ("statistics.sampled_exposure", ["canary_bits", "reference_bits"]),
        ("statistics.skew_normal_exposure", ["canary_bits", "reference_bits"]),
        ("scoring.log_perplexity", ["model", "tokenizer", "texts", "context"]),
        ("audit.run", ["corpus", "out", "settings"]),
        ("audit.measure", ["model", "manifest", "out", "settings"]),
    ],
)
def test_names_that_others_rely_on(name: str, parameters: list[str]) -> None:
    room, *path = name.split(".")
    found = importlib.import_module(f"lmexposure.{room}")
    for part in path:
        found = getattr(found, part)
    assert set(parameters) <= set(inspect.signature(found).parameters)  # type: ignore[arg-type]


def test_scripts_import_names_that_are_there() -> None:
    """Type checks leave scripts out, and most benchmarks run for too long to be tests."""
    missing = {
        (path.stem, node.module, alias.name)
        for path in SCRIPTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lmexposure.")
        for alias in node.names
        if not hasattr(importlib.import_module(str(node.module)), alias.name)
        and importlib.util.find_spec(f"{node.module}.{alias.name}") is None
    }
    assert missing == set()
