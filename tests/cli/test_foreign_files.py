"""Forty files and folders of somebody else in the way of each command: none is touched.

A command is given again and again, without what it refused, until it does its work beside the rest.
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import PLAN, SMALL, Call, Outcome, run_command
from tiny_sweeps import FLAGS as SWEEP

import lmexposure.defences.driver
from lmexposure._written import LIST

QUICK = (
    "--set",
    "references=50",
    *("--set", "revealed=1", "--set", "budget_steps=500", "--set", "draws=100"),
)
FILES = (
    *("training.json", "checkpoint.pt", "metrics.jsonl", "result.json", "scores.parquet"),
    *("run.json", "manifest.json", "report.html", "report.md", "report.csv", "verbatim.json"),
    *("passages.json", "canife.json", "identifiers.json", "sweep.json", "seeds.json"),
    *("plan.json", "base.npz", "matrices.npz", "compare.html", "compare.md", "best-of-all.txt"),
    *(".report.html.partial", ".lmexposure.lock"),
)
FOLDERS = (
    *("model", "best-1", "best-of-all", ".best-x", ".best-1.partial", ".model.old", "teachers"),
    *("snapshots", "parts", "corpus", "models", "work", "search", ".work"),
)
LINKS = ("charts", "tokenizer")  # to a folder elsewhere
NAMES = (*FILES, *FOLDERS, *LINKS)
# What a command writes in the end is a link to a file elsewhere, which it must not follow.
LINKED = ("report.html", "compare.md", "metrics.jsonl", "manifest.json")


@pytest.fixture(scope="module")
def made(trained: Path) -> Path:
    """What the commands take: a corpus with canaries, a model, a measurement, a look, rounds."""
    home, model = trained, trained / "t" / "model"
    hexes = [
        f"{n * 7919 % 2**32:08x}-{n % 65536:04x}-4abc-9def-{n * 104729:012x}" for n in range(160)
    ]
    text = "".join(f"the key {key} is of number {n}\n\n" for n, key in enumerate(hexes))
    (home / "ids.txt").write_text(text, encoding="utf-8")
    for command in (
        ("measure", model, home / "i" / "manifest.json", "--out", home / "m", *QUICK),
        ("train", home / "ids.txt", "--out", home / "t2", *SMALL),
        LOOK(home, home / "vb"),
        ROUNDS(home, home / "cf"),
    ):
        assert run_command(*command) == 0, command
    return home


def LOOK(home: Path, out: Path) -> tuple[object, ...]:  # noqa: N802
    return (
        *("verbatim", home / "t" / "model", home / "corpus.txt", "--out", out, "--windows", 2),
        *("--prefix-tokens", 5, "--suffix-tokens", 5, "--samples", 0, "--set", "near_windows=0"),
    )


def ROUNDS(home: Path, out: Path) -> tuple[object, ...]:  # noqa: N802
    return (
        *("canife", home / "corpus.txt", "--clients", 12, "--noise-multiplier", 0.8, "--rounds", 1),
        *("--mock-rounds", 8, "--set", "design_clients=2", "--set", "length=5", "--iterations", 2),
        *("--set", "units=8", "--set", "layers=1", "--out", out),
    )


Command = Callable[[Path, Path], tuple[object, ...]]
COMMANDS: dict[str, Command] = {
    "insert": lambda h, o: ("insert", h / "corpus.txt", "--out", o, *PLAN),
    "train": lambda h, o: ("train", h / "corpus.txt", "--out", o, *SMALL),
    "dp-sgd": lambda h, o: (
        *("train", h / "corpus.txt", "--out", o, *SMALL, "--method", "dp-sgd", "--epsilon", 8),
        *("--delta", "1e-3", "--set", "document_norms=true"),
    ),
    "selena": lambda h, o: ("train", h / "corpus.txt", "--out", o, *SMALL, "--method", "selena"),
    "run": lambda h, o: ("run", h / "corpus.txt", "--out", o, *PLAN, *SMALL, *QUICK),
    "sweep": lambda h, o: ("sweep", h / "corpus.txt", "--out", o, *SWEEP, "--workers", 1),
    "measure": lambda h, o: (
        *("measure", h / "t" / "model", h / "i" / "manifest.json", "--out", o, *QUICK),
    ),
    "verbatim": LOOK,
    "canife": ROUNDS,
    "identifiers": lambda h, o: (
        *("identifiers", h / "t2" / "model", h / "ids.txt", "--format", "uuid", "--out", o),
        *("--draws", 99, "--left", 5),
    ),
    "defences": lambda h, o: (
        *("defences", h / "corpus.txt", "--out", o, "--methods", "early-stop", "--models", 77),
        *("--canaries", 16, "--set", "layers=1", "--set", "units=8", "--set", "tries=3"),
        *("--workers", 1),
    ),
    "report": lambda h, o: ("report", h / "m", "--out", o),
    "report of a look": lambda h, o: ("report", h / "vb", "--out", o),
    "report of rounds": lambda h, o: ("report", h / "cf", "--out", o),
    "compare": lambda h, o: ("compare", h / "m", h / "m", "--out", o),
    "compare looks": lambda h, o: ("compare", h / "vb", h / "vb", "--out", o),
}


def put(out: Path, elsewhere: Path, linked: tuple[str, ...] = ()) -> None:
    """Forty things, each with a text of somebody's in it."""
    (elsewhere / "folder").mkdir(parents=True)
    out.mkdir()
    for name in NAMES:
        (elsewhere / name).write_text(f"precious {name}", encoding="utf-8")
        if name in linked:
            (out / name).symlink_to(elsewhere / name)
        elif name in LINKS:
            (out / name).symlink_to(elsewhere / "folder")
        elif name in FOLDERS:
            (out / name).mkdir()
            (out / name / "weights.bin").write_text(f"precious {name}", encoding="utf-8")
        else:
            (out / name).write_text(f"precious {name}", encoding="utf-8")
    for path in (*out.rglob("*"), *elsewhere.rglob("*")):
        os.utime(path, ns=(10**18, 10**18), follow_symlinks=False)


def seen_at(*homes: Path) -> dict[str, tuple[int, str]]:
    """Every file with its time of change and content, every link with where it leads."""
    found = {}
    for home in homes:
        for path in home.rglob("*"):
            if path.is_symlink():
                found[str(path)] = (path.lstat().st_mtime_ns, os.readlink(path))
            elif path.is_file():
                content = path.read_bytes().decode(errors="replace")
                found[str(path)] = (path.stat().st_mtime_ns, content)
    return found


def refused(answer: Outcome, out: Path, left: set[str]) -> list[str]:
    """The things that a refusal names."""
    named = [name for name in left if str(out / name) in answer.err or f"'{name}'" in answer.err]
    named += [name for name in left if f"({name})" in answer.err]
    return sorted(named, key=len)[-1:]


def _stop(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


# Each time: the quick commands, and links in the way of two of them.
OFTEN: set[tuple[str, tuple[str, ...]]] = {
    (name, ()) for name in COMMANDS.keys() - {"dp-sgd", "run", "sweep", "identifiers"}
}
OFTEN |= {("insert", LINKED), ("compare", LINKED)}
IN_THE_WAY = [
    pytest.param(
        name,
        linked,
        marks=() if (name, linked) in OFTEN else pytest.mark.slow,
        id=f"{name}-{'links' if linked else 'files'}",
    )
    for name in COMMANDS
    for linked in ((), LINKED)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "linked"), IN_THE_WAY)
def test_what_is_in_the_way_stays(
    call: Call,
    made: Path,
    tmp_path: Path,
    name: str,
    linked: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(NAMES) == 40
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    put(out, elsewhere, linked)
    if name == "defences":  # its work is hours; what it refuses, it refuses before
        monkeypatch.setattr(lmexposure.defences.driver._Ahead, "by_trials", _stop)
    left, answers = set(NAMES), 0
    while True:
        before = seen_at(out, elsewhere)
        answer = call(*COMMANDS[name](made, out))
        after = seen_at(out, elsewhere)
        changed = {path for path, what in before.items() if after.get(path) != what}
        assert not changed, answer.err
        if answer.code != 3:
            break
        assert "bug in lmexposure" not in answer.err
        named = refused(answer, out, left)
        if not named:
            assert name == "defences", answer.err
            break
        # Before the work, nothing was written.
        assert set(after) == set(before), (named, set(after) - set(before))
        assert re.search(r"choose|give|take|another directory|move it away", answer.err), answer.err
        answers += 1
        for gone in named:
            left.discard(gone)
            path = out / gone
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    assert answers >= 1
    assert (out / "best-of-all").exists() or name in ("run", "sweep", "defences")


STUDIES = ("i", "t", "m", "vb", "cf")
INTO_OTHERS = [
    (name, held)
    for name, homes in {
        "train": ("t", "cf"),
        "run": STUDIES,
        "sweep": STUDIES,
        "measure": ("vb", "cf"),
        "other look": ("vb", "m", "cf", "i"),
        "other rounds": ("cf", "vb", "m", "t"),
        "report": ("vb", "cf", "t"),
        "report of a look": ("m", "cf"),
        "report of rounds": ("m", "vb", "t"),
        "compare": STUDIES,
    }.items()
    for held in homes
]


@pytest.mark.parametrize(("name", "held"), INTO_OTHERS)
def test_no_study_replaces_what_another_wrote(
    call: Call, made: Path, tmp_path: Path, name: str, held: str
) -> None:
    out = shutil.copytree(made / held, tmp_path / "out", symlinks=True)
    if name == "compare":
        call.done("compare", made / "vb", made / "vb", "--out", out)
    before = seen_at(out)
    command = COMMANDS.get(name)
    if command is not None:
        call(*command(made, out))
    elif name == "other look":
        look = LOOK(made, out)
        call(look[0], made / "t2" / "model", *look[2:])
    else:
        call(*ROUNDS(made, out), "--rounds", 2)
    after = seen_at(out)
    changed = {path for path, what in before.items() if after.get(path) != what}
    assert {Path(path).name for path in changed} <= {".lmexposure.files"}


def test_what_a_person_adds_to_a_study_stays(call: Call, made: Path, tmp_path: Path) -> None:
    """Own files beside and within what is ours, while it is made again or gone on with."""
    inserted = made / "i"
    train = (
        *("train", inserted / "corpus" / "corpus.txt", "--manifest", inserted / "manifest.json"),
        *("--out", tmp_path / "t", *SMALL),
    )
    out = shutil.copytree(made / "t", tmp_path / "t")
    weights = out / "model" / "model.safetensors"
    weights.write_bytes(b"of another fine-tune")
    (out / "best-of-all").mkdir()
    (out / "best-of-all" / "w").write_text("mine", encoding="utf-8")
    (out / "model" / "README.md").write_text("mine", encoding="utf-8")
    call(*train).refused("README.md is there already, and lmexposure did not write it")
    (out / "model" / "README.md").unlink()
    call.done(*train)
    assert (out / "damaged-1" / "model" / weights.name).read_bytes() == b"of another fine-tune"
    assert weights.read_bytes() == (made / "t" / "model" / weights.name).read_bytes()
    assert (out / "best-of-all" / "w").read_text(encoding="utf-8") == "mine"


def test_a_report_that_was_changed_stays(call: Call, made: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        call.done("report", made / "m", "--out", out)
    (out / "report.md").write_text("my notes", encoding="utf-8")
    seen = call("report", made / "m", "--out", out)
    assert (seen.code, (out / "report.md").read_text(encoding="utf-8")) == (3, "my notes")
    assert "report.md was changed since lmexposure wrote it; choose another directory" in seen.err


@pytest.mark.parametrize("flag", ["--json", "--junit", "--sarif"])
def test_check_writes_its_own_output_again_and_no_other(
    call: Call, made: Path, tmp_path: Path, flag: str
) -> None:
    path, link = tmp_path / "verdict", tmp_path / "link"
    path.touch()  # as mktemp leaves it
    for _ in range(2):
        assert call("check", made / "m", flag, path).code in (0, 1, 2)
    whole = path.read_bytes()
    assert whole
    link.symlink_to(path)
    assert call("check", made / "m", flag, link).code in (0, 1, 2)
    assert (link.is_symlink(), path.read_bytes()) == (True, whole)
    text = whole.decode()
    other = {"tool": {"driver": {"name": "CodeQL"}}, "results": []}
    suite = '<testsuite name="lmexposure check"/>'
    merged = {
        "--json": lambda: [json.dumps([json.loads(text), "mine"]), "[" * 100_000, '{"schema": 1}'],
        "--junit": lambda: [
            text.replace("</testsuites>", '<testsuite name="pytest"/></testsuites>'),
            text.replace("<testsuites>", f"<testsuites>{suite}"),
        ],
        "--sarif": lambda: [
            json.dumps({**json.loads(text), "runs": [*json.loads(text)["runs"], other]}),
            json.dumps({**json.loads(text), "inlineExternalProperties": ["mine"]}),
        ],
    }[flag]()
    for content in ("mine", '{"schema": "lmexposure.result/1"}', "<testsuites/>", *merged):
        path.write_text(content)
        seen = call("check", made / "m", flag, path)
        seen.refused("verdict is there already, and lmexposure did not write it; choose ano")
        assert (seen.out, path.read_text()) == ("", content)


def test_every_file_is_in_the_table_with_its_mode(made: Path) -> None:
    """SECURITY.md says of every file of these studies who may read it."""
    page = (Path(__file__).parents[2] / "SECURITY.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in row.split("|")[1:4]] for row in page.splitlines()[7:]]
    table = [row for row in rows if len(row) == 3 and row[0].startswith("`")]
    of = {"i": "insert", "t": "train", "m": "measure", "vb": "verbatim", "cf": "canife"}
    checked = set()
    for home, command in of.items():
        for path in (made / home).rglob("*"):
            if path.is_dir():
                continue
            name = path.relative_to(made / home).as_posix()
            kinds = {kind for names, who, kind in table if _fits(name, names) and _of(who, command)}
            assert len(kinds) == 1, (name, kinds)
            mode = {"private": 0o600, "open": 0o644}.get(kinds.pop())
            assert mode in (None, path.stat().st_mode & 0o777), name
            checked.add(name)
    assert {"manifest.json", "verbatim.json", "canife.json", "report.csv", LIST} <= checked


def _fits(name: str, names: str) -> bool:
    for pattern in re.findall("`([^`]+)`", names):
        likely = re.escape(pattern).replace("NAME", r"[^/]+").replace(r"\*", "[a-z]+")
        if re.fullmatch(likely + (".*" if pattern.endswith("/") else ""), name):
            return not (name.endswith(".canaries.json") and pattern == "corpus/NAME")
    return False


def _of(who: str, command: str) -> bool:
    return command in who or who.startswith("all")
