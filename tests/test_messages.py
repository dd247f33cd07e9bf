"""What the library raises or warns names arguments as Python does; flags are the command line's."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer.main
from corpora import write_corpus

import lmexposure as lx
from lmexposure._settings import Setting, settings_of
from lmexposure.canaries import Wrapping, wrapping_among
from lmexposure.cli.app import app
from lmexposure.core import Thresholds
from lmexposure.errors import LmexposureError, SettingsError
from lmexposure.studies import (
    CanifeSettings,
    DefencesSettings,
    FederatedSettings,
    MeasureSettings,
    RowsRecord,
    RunSettings,
    SweepSettings,
    TrainingSettings,
    VerbatimSettings,
)

PACKAGE = Path(lx.__file__).parent
_FLAG = re.compile(r"(?<!-)--(?:[a-z]|$)")
_NAMED = re.compile(r"(?<![\w-])--(?!chart)[a-z][a-z-]+")  # but for variables of a stylesheet
_NAME = re.compile(r"--[a-z-]*(?:/--[a-z-]+)?")  # a flag, or a variable of a stylesheet, alone
# Calls that declare a flag with its help, or what the document of a study says.
_DECLARED = {"setting", "CheckKind"}
# Words of reports, which show commands; by function or constant.
REPORTS = {
    "core/charts/chart.py": {"_ids", "_say"},  # ids of a drawing
    "core/charts/style.py": {"VARIABLES"},
    "studies/canife.py": {"_MORE", "_of_epsilon", "checks"},
    "studies/defences.py": {"checks"},
    "studies/dp.py": {"checks"},
    "studies/exposure/check_classes.py": {"_MORE_CANARIES"},
    "studies/exposure/checks.py": {
        "_OF_CANARIES",
        "_UNKNOWN_ROWS",
        "_lost",
        "_not_shown",
        "check_full",
    },
    "studies/exposure/facts.py": {"_flags"},
    "studies/exposure/result.py": {"_UNKNOWN", "_undecided", "_after_a_pass"},
    "studies/exposure/tables.py": {"_SIGNS", "_of_references"},
    "studies/setting_words.py": {"set_words"},
    "studies/sweep.py": {"steps", "beside"},
    "studies/sweep_checks.py": {"_untested"},
    "studies/verbatim_record.py": {"_longest_check", "_share_check"},
    "studies/white_box.py": {"_MORE", "_check"},
}


def _declares(call: ast.Call) -> bool:
    """Whether it declares words, or gives such a declaration its help."""
    match call.func:
        case ast.Name(id="replace"):
            return any(word.arg == "help" for word in call.keywords)
        case ast.Name(id=name):
            return name in _DECLARED
    return False


def flags_in(node: ast.AST, name: str = "", *, within: bool = False) -> Iterator[tuple[str, str]]:
    """Strings of a module that name a flag, each with the function or constant that has it.

    Docstrings, declarations and a flag by itself are none. `within`: an f-string, a raise.
    """
    match node:
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Call() if _declares(node):
            return
        case ast.Constant(value=str(text)):
            if _FLAG.search(text) and (within or not _NAME.fullmatch(text)):
                yield name, text
            return
        case ast.FunctionDef() | ast.ClassDef():
            name = node.name
        case (
            ast.Assign(targets=[ast.Name(id=target)]) | ast.AnnAssign(target=ast.Name(id=target))
        ) if target.isupper():
            name = target
        case ast.Raise():
            name, within = "raise", True
        case ast.JoinedStr():
            within = True
    for child in ast.iter_child_nodes(node):
        yield from flags_in(child, name, within=within)


def test_no_string_that_is_raised_or_warned_names_a_flag() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.is_relative_to(PACKAGE / "cli"):
            continue
        for name, _ in flags_in(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(path.relative_to(PACKAGE).as_posix(), set()).add(name)
    assert found == REPORTS


def test_every_flag_that_is_named_is_one_of_a_command() -> None:
    known = {"--help", *flags_under(typer.main.get_command(app))}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else None
            named = set(_NAMED.findall(text)) if isinstance(text, str) else set()
            assert named <= known, (path.name, named - known)


def flags_under(command: Any) -> Iterator[str]:
    """The flags of a command and of those under it."""
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for other in getattr(command, "commands", {}).values():
        yield from flags_under(other)


def test_a_flag_in_a_message_is_found() -> None:
    module = """
AGAIN = "sweep again: --collect DIR"
FLAG = "--epochs"
epochs: int = setting(1, "as --steps", flag_name="--epochs")
def refuse(name):
    '''Say --epochs.'''
    x = "give --epochs"
    y = f"--{name}"
    raise SettingsError("--epochs")
"""
    found = [name for name, _ in flags_in(ast.parse(module))]
    assert found == ["AGAIN", "refuse", "refuse", "raise"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "array.json").write_text('[{"text": "a"}]')
    (tmp_path / "record.json").write_text('{"text": "a"}')
    (tmp_path / "plan.json").write_text("{}")
    write_corpus(tmp_path / "corpus.txt", 300)
    return tmp_path / "corpus.txt"


def wrong_calls(corpus: Path) -> Iterator[Callable[[], object]]:
    """Calls of every door that are refused before long work."""
    texts, home, out = ["one", "two", "My PIN is 0042"], corpus.parent, corpus.parent / "out"
    once: dict[str, Any] = {"canaries": 1, "repetitions": (1,), "controls": 1, "seed": 0}
    witness = lx.Format(name="witness", template="w {hex:8}")
    yield partial(lx.insert, texts, formats=["pin"], **once)
    yield partial(lx.insert, texts, formats=["pins"], **once)
    yield partial(lx.insert, texts, formats=[witness], **once)
    yield partial(Wrapping, turn="system")  # type: ignore[arg-type]
    yield partial(lx.insert, texts, formats=["pin"], canaries=0)
    yield partial(lx.insert, texts, formats=["pin"], inclusion_seed=3)
    yield partial(wrapping_among, [{"question": "a"}])
    yield partial(wrapping_among, [{"prompt": "a"}])
    yield partial(Wrapping, loss="assistant", rendering="text")
    for name in ("table.csv", "array.json", "record.json", "none.txt"):
        yield partial(lx.insert_files, home / name, out, lx.Plan(formats=["pin"]))
    yield partial(lx.run, corpus, out=corpus)
    of_runs: list[dict[str, Any]] = [
        {"kinds": ["texts"]},
        {"kinds": ["trigram"]},
        {"inclusion_seed": 3},
        {"inclusion_probability": 0.5},
        {"method": "importance"},
        {"units": 0},
    ]
    of_trainings: list[dict[str, Any]] = [{"epsilon": 4.0}, {"method": "dp-sgd"}, {"delta": 2.0}]
    yield from (partial(lx.run, corpus, out=out, **wrong) for wrong in of_runs)
    yield from (partial(TrainingSettings, **wrong) for wrong in of_trainings)
    yield partial(TrainingSettings.for_model, "lstm", lora_rank=4)
    yield partial(lx.run, corpus, out=out, kinds=("uniform", "new_token"))
    tossed: dict[str, Any] = {"inclusion_probability": 0.5, "canaries": 2}
    yield partial(lx.run, corpus, out=out, kinds=("new_token",), **tossed)
    yield partial(lx.measure, "lstm", home / "none.json")
    measured = partial(lx.measure, "model", home / "none.json")
    yield partial(measured, budget_steps=0)
    yield partial(measured, estimate="dp-sgd")
    yield partial(measured, claimed_epsilon=4.0)
    yield partial(measured, epochs=4)
    yield partial(lx.sweep, corpus, out=out, models=3)
    yield partial(lx.sweep, [corpus, corpus], out=out)
    yield lambda: SweepSettings(run=RunSettings(controls=4))
    yield partial(lx.verbatim, "lstm", corpus, out=out)
    for look in ({"random_split": True}, {"temperature": 0}, {"windows": 0}):
        yield partial(lx.verbatim, "lstm", corpus, out=out, **look)
    for door in (lx.open, lx.check, partial(lx.report, out=home / "r.html")):
        yield partial(door, home)
        yield partial(door, home / "none")
    yield partial(lx.report, home, out="")
    yield partial(lx.compare, [home], out)
    yield partial(lx.compare, home, out)  # type: ignore[arg-type]
    yield partial(lx.Thresholds, quantile_exposure=(0.9, 1))
    yield partial(lx.epsilon, [1.0, 2.0], [True, False], deltas=(2.0,))
    yield partial(lx.epsilon, [1.0, 2.0], [True, True], claim=-1.0)
    yield partial(lx.canife, corpus, out=out, clients=10**9)
    yield partial(lx.canife, corpus, out=out, clients=3)
    yield partial(lx.canife, home / "record.json", out=out, user_field="user")
    yield partial(lx.identifiers, "lstm", corpus, formats=["pin"], out=out)
    yield partial(lx.identifiers, "lstm", corpus, formats=["uuid"], draws=99)
    yield partial(lx.identifiers, "lstm", corpus, formats=["uuid"], left=-1)
    yield partial(RowsRecord.read, home / "rows.json")
    yield partial(lx.verify, texts, home / "none.json")
    yield partial(lx.remove, texts, home / "none.json")
    yield partial(lx.load_model, home)


def test_wrong_calls_are_refused_without_flags(corpus: Path) -> None:
    refused = 0
    for call in wrong_calls(corpus):
        with pytest.raises(LmexposureError) as failure:
            call()
        assert "--" not in str(failure.value), failure.value
        assert "command line" not in str(failure.value)
        refused += 1
    assert refused > 55


def refusal(setting: Setting, value: object) -> str | None:
    """What is said of a wrong value; None: it is taken."""
    try:
        setting.check(value)
    except SettingsError as failure:
        return str(failure)
    return None


@pytest.mark.parametrize(
    "record",
    [
        RunSettings,
        MeasureSettings,
        SweepSettings,
        VerbatimSettings,
        Thresholds,
        TrainingSettings,
        DefencesSettings,
        FederatedSettings,
        CanifeSettings,
    ],
)
def test_a_setting_is_refused_by_its_name(record: type) -> None:
    for name, declared in settings_of(record).items():
        said = refusal(declared, -1)
        assert said is None or (said.startswith(f"{name}=-1 ") and "--" not in said)
