"""Load any causal language model with its tokenizer, or say plainly why not."""

import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from safetensors import SafetensorError
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from lmexposure._files import atomic_directory
from lmexposure._saved_models import (
    check_gguf,
    is_adapter,
    is_directory,
    is_gguf,
    no_device,
    no_tokenizer,
    nowhere,
    of_adapter,
    on_hub,
    tokenizer_place,
    whole_base,
)
from lmexposure._validate import of_type, one_of
from lmexposure.errors import FileError, ModelError, SettingsError
from lmexposure.models.adapters import check_weights, with_adapter
from lmexposure.models.behind_source import as_causal
from lmexposure.models.encoding import context_window, tokenizer_sha256
from lmexposure.models.memory import (
    DTYPES,
    UNREADABLE,
    ModelShape,
    Placement,
    refuse_larger_config,
)
from lmexposure.models.quantised import (
    cannot_compute,
    check_quantised,
    is_quantised,
    precision_notes,
    quantisation,
    quiet_libraries,
)
from lmexposure.models.weights import (
    check_embeddings_are_here,
    check_shards,
    is_spread,
    reason,
    refuse_other_weights,
    spread,
    warn_imitated,
    weights_offloaded,
    weights_sha256,
)

_ALIKE = 0.9  # of a base's tokens that an adapter's tokenizer must have, at the least
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads")


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A causal LM in evaluation mode, and the tokenizer that it was made with."""

    model: PreTrainedModel  # gives next-token logits
    tokenizer: PreTrainedTokenizerBase  # text to tokens
    name: str  # the path or hub name it came from, or the kind of a new model
    # what a reader of its numbers must know, such as that its weights are quantised
    notes: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """SHA-256 of the weights themselves, wherever they lie."""
        return weights_sha256(self.model)

    @property
    def window(self) -> int | None:
        """Most tokens that it reads at once; None: no limit."""
        return context_window(self.model.config)

    @property
    def device(self) -> str:
        """Where it computes, such as "cpu" or "cuda:0"."""
        return str(self.model.device)

    @property
    def vocabulary(self) -> int:
        """How many next tokens it tells apart."""
        return int(self.model.get_output_embeddings().weight.shape[0])

    @property
    def size(self) -> int:
        """How many parameters it has, those of 4 bits that one number holds apart."""
        return int(self.model.num_parameters())

    def to_dict(self) -> dict[str, Any]:
        """What a result says of its model; the hash is over the weights themselves."""
        return {
            "name": self.name,
            "type": str(self.model.config.model_type),
            "parameters": self.size,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "context_window": self.window,
            "weights_sha256": self.identity,
        }


def load_model(  # noqa: PLR0913 (as transformers' own from_pretrained, whose names they are)
    name_or_path: str | os.PathLike[str],
    *,
    device: str = "cpu",
    dtype: str = "float32",
    load_in: str | None = None,
    device_map: str | Mapping[str, int | str] | None = None,
    revision: str | None = None,
    offline: bool = False,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """Load a model directory, or a model of the Hugging Face hub, with its tokenizer.

    An existing directory never causes network traffic, apart from an adapter's whose base model is
    a hub model. An adapter (peft's LoRA and its like) is merged into its base in float32, where
    that changes nothing but rounding; in other dtypes, on quantised weights and on a model that is
    spread over devices it is computed apart. A model that was saved quantised is loaded so.

    Args:
        name_or_path: a directory that `save_pretrained` wrote, of a model or of an adapter, a GGUF
            file, or a hub name such as "org/name".
        device: "cpu", "cuda", "cuda:1", "mps".
        dtype: "float32", "bfloat16" or "float16"; of quantised weights, what they are computed in.
        load_in: "8bit" or "4bit" quantises the weights: on a CPU by torchao (of linear layers
            alone), on a GPU by bitsandbytes; None leaves them as they were saved.
        device_map: "auto" spreads the model over all GPUs, the memory of the CPU and the disk, as
            accelerate does; a mapping says where each part goes. None: all of it is on `device`.
        revision: branch, tag or commit of a hub model; a base model's is named in its adapter.
        offline: take hub models from the local cache only.
        trust_remote_code: run Python code that comes with the model.

    Raises:
        ModelError: there is no such model, it does not fit into the memory that is free, it has no
            safetensors weights or no tokenizer, its files hold fewer or more weights than the model
            of its config.json, it is not a causal LM, or its tokenizer has more tokens than it; it
            is an adapter, and peft is not installed; it is quantised, and does not compute here;
            `load_in` needs a library that is missing, or quantises none of its weights.
        SettingsError: an unknown dtype, load_in or device_map, or a device that this machine does
            not have.
    """
    wanted = (
        "the path of a saved model or a hub name; a model in memory goes into measure, with its "
        "tokenizer"
    )
    of_type("name_or_path", name_or_path, (str, os.PathLike), wanted, error=ModelError)
    one_of("dtype", dtype, tuple(DTYPES))
    if load_in is not None:
        one_of("load_in", load_in, ("8bit", "4bit"))
    if isinstance(device_map, str):
        one_of("device_map", device_map, ("auto",))
    check_device(device)
    warn_imitated(DTYPES[dtype], device)
    name = os.fspath(name_or_path)
    local = check_name(name)
    place, offline = (name, offline) if local else _from_hub(name, revision, offline=offline)
    options: dict[str, Any] = {
        "revision": revision,
        "local_files_only": offline or local,
        "trust_remote_code": trust_remote_code,
    }
    if is_gguf(name):
        place, options["gguf_file"] = _in_gguf(name, load_in)
    placing: dict[str, Any] = {} if device_map is None else {"device_map": device_map}
    auto = isinstance(device_map, str) and torch.cuda.is_available()
    arriving = "cuda" if auto else device
    placement = Placement(device=arriving, dtype=dtype, load_in=load_in, device_map=device_map)
    if load_in is not None:
        placing["quantization_config"] = quantisation(load_in, arriving)
        if not arriving.startswith("cpu"):  # bitsandbytes quantises where the weights arrive
            placing.setdefault("device_map", {"": arriving})
    if is_adapter(Path(place)):
        # Only where it is a directory: its base may be on the hub all the same.
        options["local_files_only"] = offline
        model, tokenizer, notes = _load_on_base(Path(place), placement, options, placing)
    else:
        model = _load_weights(place, placement, options, placing)
        tokenizer, notes = _load_tokenizer(place, options), ()
    if load_in is not None:
        check_quantised(name, model, load_in)
    check_fit(name, model, tokenizer)
    if not is_spread(model) and "device_map" not in placing:
        try:
            model.to(device)
        except torch.OutOfMemoryError as failure:  # another process may have taken what was free
            raise ModelError(
                f"model {name!r} does not fit on {device}: {reason(failure)}; give dtype=bfloat16, "
                "load_in=4bit, device_map=auto or another device"
            ) from failure
    check_embeddings_are_here(name, model)
    model, tokenizer = as_causal(name, model, tokenizer)
    model.eval()
    check_causal(name, model)
    notes = (*precision_notes(name, model), *notes, *_gguf_notes(name))
    return LoadedModel(model=model, tokenizer=tokenizer, name=name, notes=notes)


def _in_gguf(name: str, load_in: str | None) -> tuple[str, str]:
    """Directory and name of a GGUF file, which can be read here."""
    check_gguf(name)
    if load_in is not None:
        raise SettingsError(
            f"load_in={load_in!r} quantises weights that were not, and {name} is a GGUF file; "
            "leave it out"
        )
    return str(Path(name).parent), Path(name).name


def _gguf_notes(name: str) -> tuple[str, ...]:
    """How the weights of a GGUF file are kept."""
    if not is_gguf(name):
        return ()
    from gguf import GGUFReader  # of an extra

    kinds = Counter(tensor.tensor_type.name for tensor in GGUFReader(name).tensors)
    kept = ", ".join(f"{kind} ({number})" for kind, number in kinds.most_common())
    return (f"the GGUF file keeps its tensors as {kept}; they are computed with in full precision",)


def model_outline(path: str | os.PathLike[str]) -> dict[str, str]:
    """What all checkpoints of one training share, found out without their weights."""
    base = read_by = os.fspath(path)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    if is_adapter(Path(path)):
        base, _ = _base_of(Path(path), offline=True)
        read_by = tokenizer_place(Path(path), base)
    tokenizer = _load_tokenizer(read_by, options)
    try:
        config = AutoConfig.from_pretrained(base, **options).get_text_config()
    except UNREADABLE as failure:
        raise ModelError(
            f"cannot read the config of model {base!r}: {reason(failure)}; save it again with "
            "save_pretrained"
        ) from failure
    sizes = [config.model_type, *(getattr(config, name, None) for name in _SIZES)]
    return {"tokenizer": tokenizer_sha256(tokenizer), "architecture": str(sizes)}


def model_shape(
    name: str | os.PathLike[str], *, offline: bool = False
) -> tuple[ModelShape, PreTrainedTokenizerBase]:
    """A model's shape and its tokenizer, without its weights; of an adapter, its base's shape."""
    base = read_by = os.fspath(name)
    local = check_name(base)
    options: dict[str, Any] = {"local_files_only": offline or local, "trust_remote_code": False}
    if is_adapter(Path(base)):
        base, revision = _base_of(Path(read_by), offline=offline)
        read_by = tokenizer_place(Path(read_by), base)
        options |= {"local_files_only": offline, "revision": revision}
    try:
        return ModelShape.of_model(base, options), _load_tokenizer(read_by, options)
    except UNREADABLE as failure:
        raise ModelError(
            f"cannot read the shape of model {base!r}: {reason(failure)}; give a directory that "
            "save_pretrained wrote, or a hub name"
        ) from failure


def save_model(
    model: Any, tokenizer: PreTrainedTokenizerBase, path: Path, *, mode: int = 0o666, **options: Any
) -> None:
    """Write weights (safetensors), config and tokenizer as one directory, whole or not at all."""
    with atomic_directory(path, mode=mode) as partial, _quiet():
        try:
            model.save_pretrained(partial, **options)
        except SafetensorError as failure:
            raise FileError(f"cannot write {path}: {failure}; free some space") from failure
        (partial / "README.md").unlink(missing_ok=True)  # peft's form to fill in
        tokenizer.save_pretrained(partial)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the progress bars of transformers out of our output."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def check_device(device: str) -> None:
    """Refuse a device that this machine does not have."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as failure:
        raise no_device(device) from failure


def check_name(name: str) -> bool:
    """Whether `name` is a directory with a model in it; refuse paths that are no model."""
    local = is_directory(name)
    if local:
        _check_whole(Path(name))
    return local


def _from_hub(name: str, revision: str | None, *, offline: bool) -> tuple[str, bool]:
    """A hub model's name, or its directory in the cache, whose weights are whole."""
    place, cached = on_hub(name, revision, offline=offline)
    if cached:
        _check_whole(Path(place))
    return place, cached


def _check_whole(path: Path) -> None:
    """Refuse weights that were cut short."""
    index = path / "model.safetensors.index.json"
    if is_adapter(path):
        check_weights(path)
    elif index.is_file() and not (path / "model.safetensors").is_file():
        check_shards(path, index)


def _load_weights(
    name: str, placement: Placement, options: dict[str, Any], placing: dict[str, Any]
) -> PreTrainedModel:
    with quiet_libraries():
        refuse_larger_config(name, options)
        placement.refuse_too_large(name, options)
        made = _class_for(name, options)
    # What reads a GGUF file draws a bar that no setting switches off.
    hushed = redirect_stderr(StringIO()) if "gguf_file" in options else nullcontext()
    try:
        with (
            _quiet(),
            quiet_libraries(),
            hushed,
            _offload_folder("device_map" in placing) as folder,
        ):
            model, info = made.from_pretrained(
                name,
                dtype=DTYPES[placement.dtype],
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # they are refused below, by name
                output_loading_info=True,
                **options,
                **placing,
                **({"offload_folder": folder} if folder else {}),
            )
            if folder:
                weakref.finalize(model, shutil.rmtree, folder, True)
    except Exception as failure:  # damaged files raise whatever reading them ran into
        if not Path(name).is_dir() and _is_nowhere(failure):
            raise nowhere(name) from failure
        shown = os.path.join(name, options.get("gguf_file", ""))
        raise ModelError(
            f"cannot load model {shown.removesuffix('/')!r}: {reason(failure)}; save it again with "
            "save_pretrained, or give another directory, file or hub name"
        ) from failure
    refuse_other_weights(name, model, info)
    return model


def _class_for(name: str, options: dict[str, Any]) -> Any:
    """What of transformers loads this model; a masked model is refused."""
    try:
        config = AutoConfig.from_pretrained(name, **options)
    except Exception:  # whoever loads it says more
        return AutoModelForCausalLM
    masked = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    if masked and type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise _not_causal(name, config)
    return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM


def _is_nowhere(failure: BaseException | None) -> bool:
    """Whether the hub has no such model, or it could not be asked; one that it guards is there."""
    if failure is None or isinstance(failure, GatedRepoError):
        return False
    is_it = isinstance(failure, LocalEntryNotFoundError | RepositoryNotFoundError)
    return is_it or _is_nowhere(failure.__cause__)


@contextmanager
def _offload_folder(needed: bool) -> Iterator[str]:
    """A folder for weights that no memory holds, or ""; it is gone when what is inside fails."""
    folder = tempfile.mkdtemp(prefix="lmexposure-offloaded-") if needed else ""
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _load_on_base(
    adapter: Path, placement: Placement, options: dict[str, Any], placing: dict[str, Any]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, tuple[str, ...]]:
    """An adapter on its base model, with its own tokenizer where it has one, and what to know."""
    later = None if "quantization_config" in placing else placing.pop("device_map", None)
    base, revision = _base_of(adapter, offline=options["local_files_only"])
    options = {**options, "revision": revision}
    placement = replace(placement, whole=later is not None)
    with of_adapter(adapter):
        model = _load_weights(base, placement, options, placing)
    if weights_offloaded(model):
        raise ModelError(
            f"adapter {os.fspath(adapter)!r} changes weights of its quantised base that are "
            "offloaded, which peft does not; use larger devices, or load it without load_in"
        )
    read_by = tokenizer_place(adapter, base)
    tokenizer = _load_tokenizer(read_by, options)
    if read_by != base:
        _check_base_reads_alike(adapter, tokenizer, base, options)
    with _quiet(), quiet_libraries():
        model = with_adapter(model, adapter, tokens=len(tokenizer))
    if later is not None:
        with _offload_folder(True) as folder:
            spread(model, later, folder)
            weakref.finalize(model, shutil.rmtree, folder, True)
    template = " and chat template" if tokenizer.chat_template else ""
    note = f"the adapter's directory has no tokenizer: it was measured with the tokenizer{template}"
    return model, tokenizer, () if read_by == str(adapter) else (f"{note} of {read_by!r}",)


def _base_of(adapter: Path, *, offline: bool) -> tuple[str, str | None]:
    """(directory or hub name of the base, in the cache if offline; its revision)."""
    base, revision = whole_base(adapter, offline=offline)
    with of_adapter(adapter, base):
        if Path(base).is_dir():
            _check_whole(Path(base))
    return base, revision


def _check_base_reads_alike(
    adapter: Path, tokenizer: PreTrainedTokenizerBase, base: str, options: dict[str, Any]
) -> None:
    """Refuse a base with another tokenizer: the adapter was trained on another model."""
    try:
        known = _load_tokenizer(base, options).get_vocab()
    except ModelError:  # the base has none, and says nothing
        return
    own = tokenizer.get_vocab()
    alike = sum(own.get(token) == number for token, number in known.items())
    if alike < _ALIKE * len(known):
        raise ModelError(
            f"adapter {str(adapter)!r} was trained with another tokenizer than its base "
            f"{base!r} has ({alike:,} of {len(known):,} tokens are the same): it is an adapter for "
            "another base; set base_model_name_or_path in adapter_config.json to the right one"
        )


def _load_tokenizer(name: str, options: dict[str, Any]) -> PreTrainedTokenizerBase:
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
        usable = bool(tokenizer("a", add_special_tokens=False)["input_ids"])
    except Exception as failure:  # what is raised differs from one tokenizer class to the next
        raise ModelError(
            f"cannot load the tokenizer of {name!r}: {reason(failure)}; save it next to "
            "the model with tokenizer.save_pretrained"
        ) from failure
    if not usable:
        raise no_tokenizer(name)
    return tokenizer


def check_fit(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer with tokens that the model has no embedding for."""
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise ModelError(
            f"the tokenizer of {name!r} has {len(tokenizer)} tokens, but the model only {rows}; "
            "use the tokenizer that the model was trained with, or resize_token_embeddings"
        )


def check_causal(name: str, model: PreTrainedModel) -> None:
    """Refuse a model whose predictions see the token to predict, as BERT's do."""
    rows = model.get_input_embeddings().weight.shape[0]
    ids = torch.tensor([[1, 2, 3], [1, 2, 0]], device=model.device) % rows
    quantised = is_quantised(model)
    try:
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits[:, :2].float()
    except RuntimeError as failure:
        if not quantised:
            raise
        raise ModelError(cannot_compute(name, model, failure)) from failure
    gap = float((logits[0] - logits[1]).abs().max())
    # Some methods round what goes into a layer by its largest number, also of later tokens.
    rounding = 1e-4 if model.dtype == torch.float32 and not quantised else 3e-2
    if gap > rounding * float(logits.abs().max()):
        raise _not_causal(name, model.config)


def _not_causal(name: str, config: Any) -> ModelError:
    """Of a model that was trained to fill gaps, and its like."""
    return ModelError(
        f"model {name!r} ({config.model_type}) is not a causal LM: its predictions depend on later "
        "tokens, and what it gives a text is a pseudo-likelihood, which is no probability of it; "
        "use a model that reads from left to right, or an encoder-decoder"
    )
