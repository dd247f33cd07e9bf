"""What a person names: whether it is a saved model or a manifest, or a device of this machine.

All of it is known before torch, whose import takes longer than a person waits for an error.
"""

import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from threading import Thread

from lmexposure._files import open_regular, read_bytes
from lmexposure.errors import ModelError, SettingsError

NEW_MODELS = ("lstm", "gpt2-tiny")
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_WHOLE = ("model*.safetensors", "pytorch_model*.bin")  # weights that are no adapter's
_TOKENIZER = ("tokenizer_config.json", "tokenizer.json")
# Of any tokenizer; some of which there are no files are named in config.json.
_OF_TOKENIZERS = ("*token*", "*vocab*", "merges.txt", "*.model", "*.spm", "*.tiktoken", "*.bpe*")
_SHOWN = 3
_LARGEST_HEADER = 100_000_000  # bytes, as safetensors reads them
_TRIED = 4096  # bytes of a tensor
_HUB_SECONDS = 10.0  # for the hub to answer, the second try too
_HUB_TRIES = 2
# Where a driver of NVIDIA's or AMD's has its devices, also in a container and under Windows.
_DEVICES = Path("/dev")
_GPUS = ("nvidia*", "nvhost*", "nvgpu*", "nvmap", "kfd", "dxg")


def check_device(device: str) -> None:
    """Refuse a device that this machine cannot have; whether it has it, torch knows."""
    kind = device.partition(":")[0]
    here = True
    if kind == "mps":
        here = sys.platform == "darwin"
    elif kind == "cuda" and sys.platform == "linux":
        built = not importlib.metadata.version("torch").endswith("+cpu")
        here = built and any(next(_DEVICES.glob(pattern), None) for pattern in _GPUS)
    if not here:
        raise no_device(device)


def no_device(device: str) -> SettingsError:
    """What is said of a device that is not here."""
    return SettingsError(
        f"device={device!r} is not available here; use 'cpu', or 'cuda' on a machine with a GPU "
        "and a torch built for it"
    )


def check_model(
    name: str | os.PathLike[str],
    *,
    revision: str | None = None,
    offline: bool = False,
    chats: bool = False,
) -> None:
    """Refuse what is no model with a tokenizer, or, for chats, with no chat template beside it.

    Only as far as its files and the hub say so.
    """
    name = os.fspath(name)
    if is_gguf(name):
        check_gguf(name)
        return
    if not is_directory(name):
        if not _is_cached(name, revision):
            on_hub(name, revision, offline=offline)
        return
    place = name
    if is_adapter(Path(name)):
        base, _ = whole_base(Path(name), offline=offline)
        place = tokenizer_place(Path(name), base)
    if Path(place).is_dir() and not _has_tokenizer(Path(place)):
        raise no_tokenizer(place)
    if chats and Path(place).is_dir() and not _has_template(Path(place)):
        raise ModelError(
            f"the tokenizer of {place!r} has no chat template, which chats need; give the file "
            "chat_template.jinja of the training (chat_template=...), or put it into that directory"
        )


def check_tokenizer(name: str, *, revision: str | None = None, offline: bool = False) -> None:
    """Refuse a name of which there is no tokenizer, as far as its files and the hub say so."""
    try:
        if not Path(name).is_dir():
            known = is_directory(name) or offline or _is_cached(name, revision, _TOKENIZER)
            if not known and not hub_answers(name, revision):
                raise nowhere(name)
        elif not _has_tokenizer(Path(name)):
            raise no_tokenizer(name)
    except ModelError as failure:
        raise ModelError(f"no tokenizer: {failure}") from failure


def is_gguf(name: str) -> bool:
    """Whether a name is of a file that begins as those of llama.cpp do."""
    try:
        with open_regular(Path(name)) as stream:
            return bool(stream.read(4) == b"GGUF")
    except (OSError, ValueError):
        return False


def is_checkpoint(name: str | os.PathLike[str]) -> bool:
    """Whether a name is of a file that only its owner's code can make a model of."""
    return Path(name).is_file() and not is_gguf(os.fspath(name))


def check_gguf(name: str) -> None:
    """Refuse a file of llama.cpp where what reads it is not installed."""
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(
            f"model {name!r} is a GGUF file, which needs gguf; install it: "
            "pip install 'lmexposure[gguf]'"
        )


def is_directory(name: str) -> bool:
    """Whether a name is of a directory with a model in it, or its file, and of none on the hub."""
    path = Path(name)
    if is_gguf(name):
        return True
    if name and path.is_dir():
        _check_directory(path)
        return True
    if path.is_file():
        raise ModelError(f"model {name!r} {_of_file(path)}")
    # A name of the hub is NAME or OWNER/NAME.
    of_path = name.startswith((".", "/", "~")) or path.is_absolute() or len(path.parts) > 2
    if not name or of_path or (len(path.parts) == 2 and path.parent.is_dir()):
        raise ModelError(f"model {name!r}: no such directory; {_near(path)}")
    return False


def _of_file(path: Path) -> str:
    """What is said of a file in the place of a model."""
    if (path.parent / "config.json").is_file():
        return f"is a file; give the directory that holds it, {str(path.parent)!r}"
    if is_manifest(path):
        return "is a manifest; give the directory of the model, and the manifest in its place"
    if path.suffix == ".jsonl":
        return "is a file of records; give a directory, or scores to read_scores"
    return (
        "is a file; give a directory that save_pretrained wrote or a GGUF file, or with your own "
        "checkpoint the function that builds its model (builder='my_module:build')"
    )


def manifest_at(path: str | os.PathLike[str]) -> Path:
    """The file of a manifest, which is given by its name or by its directory."""
    inside = Path(path) / "manifest.json"
    return inside if inside.is_file() else Path(path)


def is_manifest(name: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a manifest does."""
    try:
        with open_regular(Path(name)) as stream:
            return b'"schema": "lmexposure.manifest/' in stream.read(200)
    except (OSError, ValueError):
        return False


def _near(path: Path) -> str:
    """What to do about a path that is not there."""
    with suppress(OSError):
        beside = [each.name for each in path.parent.iterdir() if holds_model(each)]
        for near in get_close_matches(path.name, beside, 1):
            return f"did you mean {str(path.with_name(near))!r}?"
    return "check the path"


def holds_model(path: Path) -> bool:
    """Whether a directory is of a model or an adapter."""
    return (path / "config.json").is_file() or is_adapter(path)


def _check_directory(path: Path) -> None:
    if is_adapter(path):
        _check_adapter(path)
        return
    if not (path / "config.json").is_file():
        inside = path / "model"
        remedy = "give a directory that save_pretrained wrote, of a model or of a peft adapter"
        if (inside / "config.json").is_file():
            remedy = f"the model is in {str(inside)!r}; give that"
        elif adapters := sorted(file.parent.name for file in path.glob(f"*/{ADAPTER_CONFIG}")):
            shown = ", ".join(adapters[:_SHOWN]) + (", ..." if len(adapters) > _SHOWN else "")
            remedy = f"it holds the adapters {shown}; give one, such as {str(path / adapters[0])!r}"
        raise ModelError(f"model {str(path)!r} has no config.json; {remedy}")
    if next(path.glob("*.safetensors"), None) is None:
        others = sorted(p.name for suffix in ("bin", "pt", "pth") for p in path.glob(f"*.{suffix}"))
        found = f"found {', '.join(others)}, which may run code when loaded" if others else "none"
        raise ModelError(
            f"model {str(path)!r} has no .safetensors weights ({found}); save it again with "
            "save_pretrained, which writes safetensors"
        )


def is_adapter(path: Path) -> bool:
    """Whether a directory holds an adapter."""
    return (path / ADAPTER_CONFIG).is_file()


def _check_adapter(path: Path) -> None:
    whole = sorted(file.name for pattern in _WHOLE for file in path.glob(pattern))
    if whole:
        raise ModelError(
            f"model {str(path)!r} holds a whole model and an adapter, so that it is unclear which "
            f"is meant; move {ADAPTER_CONFIG} elsewhere to measure the whole (merged) model, or "
            f"{whole[0]} to measure the adapter on its base"
        )
    if not (path / ADAPTER_WEIGHTS).is_file():
        raise ModelError(
            f"adapter {str(path)!r} has no {ADAPTER_WEIGHTS}; save it again with save_pretrained "
            "of peft, which writes safetensors"
        )
    base_of_adapter(path)


def base_of_adapter(path: Path) -> tuple[str, str | None]:
    """(directory or hub name of the base model, its revision if one is said)."""
    try:
        config = json.loads(read_bytes(path / ADAPTER_CONFIG))
        base, revision = config.get("base_model_name_or_path"), config.get("revision")
    except (OSError, ValueError, AttributeError) as failure:
        raise ModelError(
            f"cannot read {ADAPTER_CONFIG} of adapter {str(path)!r} ({type(failure).__name__}); "
            "save the adapter again"
        ) from failure
    if not base or not isinstance(base, str) or is_adapter(Path(base)):
        what = "nothing" if not base else "an adapter, too" if isinstance(base, str) else "no text"
        raise ModelError(
            f"adapter {str(path)!r} names {what} as its base model; set base_model_name_or_path in "
            f"{ADAPTER_CONFIG} to the directory or hub name of a whole model"
        )
    return str(base), revision


def whole_base(adapter: Path, *, offline: bool) -> tuple[str, str | None]:
    """(directory or hub name of an adapter's base, in the cache if offline; its revision)."""
    base, revision = base_of_adapter(adapter)
    with of_adapter(adapter, base):
        if not is_directory(base):
            base, _ = on_hub(base, revision, offline=offline)
    return base, revision


@contextmanager
def of_adapter(adapter: Path, base: str = "") -> Iterator[None]:
    """Say of a base that cannot be had that the adapter named it, and where that is written."""
    try:
        yield
    except ModelError as failure:
        reason = str(failure).partition("; ")[0]
        if "no such directory" in reason and not Path(base).is_absolute():  # as peft reads it
            reason += f", seen from {os.getcwd()!r}"
        load = "load it once without offline" if "local cache" in reason else "put it there again"
        raise ModelError(
            f"adapter {str(adapter)!r} names a base that cannot be used ({reason}); {load}, or set "
            f"base_model_name_or_path in its {ADAPTER_CONFIG} to the directory where it is now"
        ) from failure


def tokenizer_place(adapter: Path, base: str) -> str:
    """Where an adapter's tokenizer is: with it, beside it where several share one, or its base."""
    around = adapter.absolute().parent
    shared = is_adapter(around) or not (around / "config.json").is_file()
    for place in (adapter, around) if shared else (adapter,):
        if any((place / name).is_file() for name in _TOKENIZER):
            return str(place)
    return base


def weights_in(place: Path) -> Iterator[tuple[str, str, list[int], bytes]]:
    """Of each tensor in a directory's files: name, dtype, shape and its first bytes."""
    for file in sorted(place.glob("*.safetensors")):
        with open_regular(file) as stream:
            size = min(int.from_bytes(stream.read(8), "little"), _LARGEST_HEADER)
            header = json.loads(stream.read(size))
            for name, held in header.items():
                if name != "__metadata__":
                    begin, end = held["data_offsets"]
                    stream.seek(8 + size + begin)
                    yield name, held["dtype"], held["shape"], stream.read(min(_TRIED, end - begin))


def have_other_weights(place: Path, other: Path) -> bool:
    """Whether two saved models surely differ: in tensors that both have, by their first bytes."""
    try:
        found = {(name, dtype): rest for name, dtype, *rest in weights_in(place)}
        again = {(name, dtype): rest for name, dtype, *rest in weights_in(other)}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False  # loading says what is wrong
    return any(found[tensor] != again[tensor] for tensor in found.keys() & again.keys())


def _has_tokenizer(path: Path) -> bool:
    """Whether a directory has a file of any tokenizer, or names one that needs none."""
    if any(next(path.glob(pattern), None) for pattern in _OF_TOKENIZERS):
        return True
    try:
        return "tokenizer_class" in json.loads(read_bytes(path / "config.json"))
    except (OSError, ValueError, RecursionError):
        return True  # the config is refused later, by its own name


def _has_template(path: Path) -> bool:
    """Whether a tokenizer's files have a chat template, or may have."""
    if next(path.glob("*chat_template*"), None) is not None:
        return True
    try:
        return b'"chat_template"' in read_bytes(path / "tokenizer_config.json")
    except OSError:
        return False


def no_tokenizer(name: str) -> ModelError:
    """What is said of a model whose tokenizer is not there."""
    return ModelError(
        f"the tokenizer of {name!r} is missing or empty; save it next to the model with "
        "tokenizer.save_pretrained"
    )


def _is_cached(
    name: str, revision: str | None, files: tuple[str, ...] = ("config.json", ADAPTER_CONFIG)
) -> bool:
    """Whether the local cache has a hub model, which then answers for it."""
    from huggingface_hub import try_to_load_from_cache

    with suppress(ValueError):  # no name of the hub's
        found = [try_to_load_from_cache(name, file, revision=revision) for file in files]
        return any(isinstance(path, str) for path in found)
    return False


def on_hub(name: str, revision: str | None, *, offline: bool) -> tuple[str, bool]:
    """A hub model's name, or its directory in the cache where only that is asked or reached."""
    from huggingface_hub import snapshot_download

    if not offline and hub_answers(name, revision):
        return name, False
    try:
        place = snapshot_download(name, revision=revision, local_files_only=True)
    except (OSError, ValueError) as failure:
        if not offline:
            raise nowhere(name) from failure
        raise ModelError(
            f"model {name!r} is not in the local cache; load it once without offline, or give a "
            "directory"
        ) from failure
    _check_directory(Path(place))
    return str(place), True


def hub_answers(name: str, revision: str | None) -> bool:
    """Whether the hub can be reached; a model that it does not have is refused."""
    answers: list[bool] = []  # whether it has the model
    asking = Thread(target=_ask, args=(name, revision, answers), daemon=True)
    asking.start()
    asking.join(_HUB_SECONDS)  # a name of several addresses takes its time for each
    if False in answers:
        raise nowhere(name)
    return bool(answers)


def _ask(name: str, revision: str | None, answers: list[bool]) -> None:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    for _ in range(_HUB_TRIES):
        try:
            HfApi().model_info(name, revision=revision, timeout=_HUB_SECONDS / _HUB_TRIES)
            answers.append(True)
        except RepositoryNotFoundError as failure:  # one that the hub guards is there
            answers.append(isinstance(failure, GatedRepoError))
        except HfHubHTTPError:  # loading it says what is wrong
            answers.append(True)
        except Exception:  # of whichever client the hub has, or it is in its offline mode
            continue
        return


def nowhere(name: str) -> ModelError:
    """What is said of a name that neither this machine nor the hub knows."""
    return ModelError(
        f"model {name!r}: no such directory, and it could not be found on the hub either; "
        f"{_near(Path(name)).replace('check the path', 'check the path or the hub name')}, and of "
        "a hub model the network"
    )
