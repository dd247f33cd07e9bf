"""What is known of a model's name, its files and a device before torch is imported."""

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from lmexposure import _saved_models
from lmexposure._saved_models import check_device, check_model, is_directory, on_hub
from lmexposure.errors import ModelError, SettingsError


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a model, as far as they are looked at."""
    monkeypatch.chdir(tmp_path)
    path = Path("runs/base")
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(b"")
    (path / "tokenizer.json").write_text("{}")
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that the hub is asked for; it has none of them."""
    names: list[str] = []

    def refuse(_: object, name: str, **__: object) -> None:
        names.append(name)
        raise OSError("no network in this test")

    monkeypatch.setattr(HfApi, "model_info", refuse)
    return names


@pytest.mark.parametrize(
    ("version", "files", "here"),
    [
        ("2.13.0+cpu", ["nvidia0"], False),
        ("2.13.0", [], False),
        ("2.13.0", ["nvidiactl"], True),
        ("2.13.0+rocm6", ["kfd"], True),
        ("2.13.0", ["dxg"], True),
    ],
)
def test_a_gpu_takes_a_torch_for_it_and_a_driver(
    version: str, files: list[str], here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(_saved_models, "_DEVICES", tmp_path)
    for name in files:
        (tmp_path / name).touch()
    check_device("cpu")
    check_device("auto")
    with pytest.raises(SettingsError, match="device='mps' is not available here; use 'cpu'"):
        check_device("mps")
    if here:
        check_device("cuda:1")
    else:
        with pytest.raises(SettingsError, match="device='cuda:1' is not available here"):
            check_device("cuda:1")


@pytest.mark.parametrize(
    "name", ["./gone", "/gone", "~/gone", "a/b/gone", "runs/gone", ".gone", "../gone"]
)
def test_a_path_that_is_not_there_is_not_asked_from_the_hub(
    model: Path, asked: list[str], name: str
) -> None:
    with pytest.raises(ModelError, match="no such directory; check the path"):
        check_model(name)
    assert asked == []


@pytest.mark.parametrize("name", ["gone", "owner/gone"])
def test_another_name_is_asked_from_the_hub_twice(model: Path, asked: list[str], name: str) -> None:
    with pytest.raises(ModelError, match="could not be found on the hub either; check the path or"):
        check_model(name)
    assert asked == [name] * 2


def test_a_mistyped_name_is_shown_the_model_that_is_near(model: Path, asked: list[str]) -> None:
    Path("runs/bases.txt").touch()
    with pytest.raises(ModelError, match="no such directory; did you mean 'runs/base'"):
        check_model("runs/bsae")


def test_a_hub_that_does_not_answer_is_not_waited_for(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where packets are dropped: each address of a name takes its own time."""
    monkeypatch.setattr(_saved_models, "_HUB_SECONDS", 0.2)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(20))
    begun = time.monotonic()
    with pytest.raises(ModelError, match="and of a hub model the network"):
        on_hub("owner/gone", None, offline=False)
    assert time.monotonic() - begun < 10


def test_a_cached_model_is_not_asked_for_beforehand(
    model: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = Path("cache/models--o--tiny")
    (cached / "refs").mkdir(parents=True)
    (cached / "refs/main").write_text("0" * 40)
    (cached / "snapshots").mkdir()
    model.rename(cached / "snapshots" / ("0" * 40))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "cache")
    check_model("o/tiny")
    assert asked == []


def test_a_tokenizer_is_there_or_named(model: Path) -> None:
    check_model(model)
    with pytest.raises(ModelError, match="'runs/base' has no chat template, which chats need"):
        check_model(model, chats=True)
    (model / "chat_template.jinja").write_text("{{ messages }}")
    check_model(model, chats=True)
    (model / "tokenizer.json").rename("aside.json")
    (model / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="the tokenizer of 'runs/base' is missing or empty; save"):
        check_model(model)
    (model / "config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer"}))
    check_model(model)


def test_a_file_in_the_place_of_a_model(model: Path) -> None:
    Path("manifest.json").write_text('{"schema": "lmexposure.manifest/5"}')
    Path("corpus.txt").write_text("a line")
    for name, said in {
        str(model / "model.safetensors"): "give the directory that holds it, 'runs/base'",
        "manifest.json": "is a manifest; give the directory of the model",
        "corpus.txt": "is a file; give a directory that save_pretrained wrote",
    }.items():
        with pytest.raises(ModelError, match=said):
            is_directory(name)


def test_the_base_of_an_adapter_is_looked_for(model: Path, asked: list[str]) -> None:
    adapter, settings = Path("adapter"), dict[str, Any](base_model_name_or_path=str(model))
    adapter.mkdir()
    (adapter / "adapter_model.safetensors").write_bytes(b"")
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    check_model(adapter)
    model.rename("moved")
    with pytest.raises(ModelError, match="adapter 'adapter' names a base that cannot be used"):
        check_model(adapter)
    assert asked == []
