import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from cli.conftest import Call
from typer.main import get_command

import lmexposure
from lmexposure.cli import entry
from lmexposure.cli.app import PanelCommand, app
from lmexposure.cli.console import Stopped


def test_the_installed_command_and_the_module_are_one() -> None:
    script = Path(sys.executable).with_name("lmexposure")
    for command in ([str(script)], [sys.executable, "-m", "lmexposure"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.strip()) == (0, lmexposure.__version__)


@pytest.mark.parametrize("own", [None, "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_threads_do_not_wait_in_a_long_loop_unless_the_user_says_otherwise(
    call: Call, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.setenv(name, "")  # so that it is put back in the end
        monkeypatch.delenv(name)
    if own is not None:
        monkeypatch.setenv(own, "7")
    call("--version")
    expected = {None: "10000", "GOMP_SPINCOUNT": "7"}.get(own)
    assert os.environ.get("GOMP_SPINCOUNT") == expected


def test_openmp_obeys_what_a_process_says_before_it_imports_torch() -> None:
    """And would not obey it afterwards: OpenMP reads its variables when it is loaded."""
    place = importlib.util.find_spec("torch").submodule_search_locations[0]  # type: ignore
    library = Path(place) / "lib" / "libgomp.so.1"
    if not library.exists():
        pytest.skip("this torch brings another OpenMP")
    script = (
        "import ctypes, os, sys\n"
        "from lmexposure.cli.entry import _wait_patiently\n"
        "_wait_patiently()\n"
        f"ctypes.CDLL({str(library)!r})\n"
    )
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))
    }
    environment = {**kept, "OMP_DISPLAY_ENV": "verbose"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
    )
    assert "GOMP_SPINCOUNT = '10000'" in done.stderr


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (RuntimeError("surprise"), "unexpected failure: RuntimeError"),
        (KeyboardInterrupt(), "stopped"),
        (MemoryError("all of it"), "unexpected failure: MemoryError"),
        (OSError(28, "No space left on device"), "the disk is full"),
        (OSError(27, "File too large"), "File too large; raise the limit (ulimit -f), or send"),
    ],
)
def test_every_failure_is_3_and_ctrl_c_130(
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    failure: BaseException,
    message: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr("lmexposure.audit.preview", fail)
    (tmp_path / "c.txt").write_text("a line\n")
    code = 130 if isinstance(failure, KeyboardInterrupt) else 3
    outcome = call("run", tmp_path / "c.txt", "--out", tmp_path / "o")
    assert outcome.code == code
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    foreseen = isinstance(failure, KeyboardInterrupt | OSError)
    assert ("--debug" in outcome.err) != foreseen
    again = call("run", tmp_path / "c.txt", "--out", tmp_path / "o", "--debug")
    assert again.code == code
    assert ("Traceback" in again.err) != foreseen


@pytest.mark.parametrize("pipe", [False, True])
def test_a_closed_pipe_is_141_not_a_leak_and_a_lost_corpus_3(tmp_path: Path, pipe: bool) -> None:
    (tmp_path / "c.txt").write_text("".join(f"line {n}\n" for n in range(50)))
    corpus = "-" if pipe else "c.txt"
    plan = ["--format", "pin", "--canaries", "2", "--repetitions", "1", "--controls", "1"]
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as nobody, open(tmp_path / "c.txt", "rb") as text:
        done = subprocess.run(
            [sys.executable, "-m", "lmexposure", "insert", corpus, "--out", "o", *plan],
            cwd=tmp_path,
            stdin=text,
            stdout=nobody,
            stderr=subprocess.PIPE,
            text=True,
        )
    said = "error: cannot write the corpus: Broken pipe; what was written must be thrown away\n"
    expected = (3, said) if pipe else (141, "")
    assert (done.returncode, done.stderr) == expected
    assert (tmp_path / "o" / "manifest.json").exists() != pipe


_SHOWN = Path(__file__).parents[1] / "golden" / "data" / "shown"


@pytest.mark.parametrize("words", [[], ["--json", "-", "--junit", "verdict.xml"]])
def test_a_verdict_whose_reader_has_enough_keeps_its_exit_code(
    tmp_path: Path, words: list[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as nobody:
        done = subprocess.run(
            [sys.executable, "-m", "lmexposure", "check", str(_SHOWN / "demo"), *words],
            cwd=tmp_path,
            stdout=nobody,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, "error" in done.stderr) == (1, False), done.stderr
    assert (tmp_path / "verdict.xml").exists() == bool(words)


def test_a_full_disk_is_no_reader_that_has_enough() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lmexposure", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 3, done.stderr


_PRESSED_AT = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Press(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {signal})

sys.meta_path.insert(0, Press())
from lmexposure.cli.entry import main
sys.argv = ["lmexposure", "verify", "corpus.txt", "manifest.json"]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pressed"),
    [
        ("typer", "signal.SIGINT"),
        ("lmexposure.cli.app", "signal.SIGTERM"),
        ("lmexposure.cli.judging", "signal.SIGINT"),
        ("lmexposure.canaries", "signal.SIGTERM"),
    ],
)
def test_ctrl_c_while_modules_are_imported_is_one_line(
    tmp_path: Path, name: str, pressed: str
) -> None:
    script = _PRESSED_AT.format(name=name, signal=pressed)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr.startswith("error: stopped")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("failure", [typer.Abort(), Stopped("stopped"), KeyboardInterrupt()])
def test_ctrl_c_in_any_command_is_130(
    call: Call, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(PanelCommand, "make_context", fail)
    commands: dict[str, object] = get_command(app).commands  # type: ignore[attr-defined]
    for name in (name for name, command in commands.items() if isinstance(command, PanelCommand)):
        seen = call(name)
        assert (seen.code, "stopped" in seen.err) == (130, True), name


def test_ctrl_c_is_130_also_where_what_was_printed_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entry, "_run", lambda: entry.INTERRUPTED)
    monkeypatch.setattr(entry, "_all_was_written", lambda: False)
    with pytest.raises(SystemExit) as stopped:
        entry.main()
    assert stopped.value.code == 130
