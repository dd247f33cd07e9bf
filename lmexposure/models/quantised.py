"""Models with weights of 8 or 4 bits, as transformers loads them: how, and what they are worth."""

import logging
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from lmexposure._style import percent
from lmexposure.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WIDTHS = ("8bit", "4bit")
_GROUP = 32  # weights that share a scale, of 4 bits; it divides every usual width
# By how many bits a token may differ with what else is in its batch; two right ways to compute it
# differ by rounding, in bfloat16 and float16 by far more.
_ROUNDING_BITS, _ROUNDING_BITS_HALF = 1e-3, 0.25
_NOISY = (
    *("torchao", "bitsandbytes", "torch.utils._pytree", "accelerate.big_modeling"),
    # Its report has names of weights as they are, escapes too; silent, it checks a plan, aloud.
    *("transformers.modeling_utils", "transformers.distributed.tensor_parallel"),
)


class _Placeholder(ModuleType):
    """A module of torchao: no weight is of its classes, and its functions import it when called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def called(_: type, *values: Any, **named: Any) -> Any:
            return getattr(import_module(self.__name__), name)(*values, **named)

        return type(name, (), {"__new__": called})


class _Placeholders(MetaPathFinder, Loader):
    """Finds a placeholder for every module of torchao."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        ours = fullname.partition(".")[0] == "torchao"
        return ModuleSpec(fullname, self, is_package=True) if ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Placeholder(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """It has no code."""


@contextmanager
def without_torchao() -> Iterator[None]:
    """Keep torchao, which is slow, from being imported beside models none of whose weights it made.

    In a process that is none of ours it comes, in silence: what else uses it needs its own classes.
    """
    if "lmexposure.cli.entry" not in sys.modules:
        with quiet_libraries():
            yield
        return
    if "torchao" in sys.modules or find_spec("torchao") is None:
        yield
        return
    finder = _Placeholders()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, each in sys.modules.items() if type(each) is _Placeholder]:
            del sys.modules[name]


def is_quantised(model: Any) -> bool:
    """Whether weights are kept in fewer bits; the config's word is none of torchao's."""
    believed = _says_quantised(model) and _method(model)[0] != "torchao"
    return believed or quantised_share(model) > 0


def quantised_share(model: Any) -> float:
    """The share of weights that torchao or bitsandbytes keeps in fewer bits, in [0, 1]."""
    counts = [(_numbers(weight), _in_fewer_bits(weight)) for weight in model.parameters()]
    return sum(n for n, fewer in counts if fewer) / max(1, sum(n for n, _ in counts))


def _in_fewer_bits(weight: Any) -> bool:
    kind = type(weight).__name__
    if kind == "Params4bit":  # bitsandbytes, which rounds when a weight reaches its device
        return weight.quant_state is not None
    return hasattr(weight, "__tensor_flatten__") or (
        kind == "Int8Params" and weight.dtype == torch.int8
    )


def _numbers(weight: Any) -> int:
    """How many weights a tensor stands for; those of 4 bits are packed in bitsandbytes."""
    state = getattr(weight, "quant_state", None)
    return int(weight.numel()) if state is None else math.prod(state.shape)


def check_quantised(name: str, model: Any, load_in: str) -> None:
    """Refuse a model in which `load_in` quantised nothing."""
    if quantised_share(model) > 0:
        return
    library = _method(model)[0]
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    kinds = {
        type(layer).__name__
        for layer in model.modules()
        if layer not in ends and any(own.dim() > 1 for own in layer.parameters(recurse=False))
    }
    layers = ", ".join(sorted(kinds - {"Embedding"}))
    elsewhere = ", or on a GPU, where bitsandbytes knows Conv1D" if "Conv1D" in kinds else ""
    raise ModelError(
        f"load_in={load_in!r} quantises none of the weights of model {name!r} "
        f"({model.config.model_type}): {library} leaves layers of type {layers} as they are; load "
        f"it without load_in{elsewhere}"
    )


def _says_quantised(model: Any) -> bool:
    return bool(getattr(model, "is_quantized", False))


def quantisation(load_in: str, device: str) -> Any:
    """What `from_pretrained` takes to quantise a model while it is loaded."""
    by_torchao = device.startswith("cpu")
    library = "torchao" if by_torchao else "bitsandbytes"
    if find_spec(library) is None:
        package = "'lmexposure[quantised]'" if by_torchao else library
        raise ModelError(
            f"load_in={load_in!r} needs {library} here, which is not installed; install it: pip "
            f"install {package}; or load the model without load_in"
        )
    if not by_torchao:
        from transformers import BitsAndBytesConfig

        return BitsAndBytesConfig(**{f"load_in_{load_in}": True})
    with quiet_libraries():
        from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig
        from torchao.quantization.granularity import PerGroup
        from transformers import TorchAoConfig

        if load_in == "8bit":
            return TorchAoConfig(Int8WeightOnlyConfig())
        # torch's stubs do not know its narrow integers.
        narrow = getattr(torch, "int4")  # noqa: B009
        return TorchAoConfig(
            IntxWeightOnlyConfig(weight_dtype=narrow, granularity=PerGroup(_GROUP))
        )


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keep out of our output what these libraries log of weights and others' kernels."""
    loggers = [logging.getLogger(name) for name in _NOISY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def precision_notes(name: str, model: "PreTrainedModel") -> tuple[str, ...]:
    """What a reader of a quantised model's numbers must know; nothing for others."""
    if not is_quantised(model):
        if not _says_quantised(model):
            return ()
        return (
            "the model's config says that its weights are quantised (torchao), and none of them "
            "is: all numbers are of the model in full precision",
        )
    differs = _batches_differ_by(name, model)
    allowed = _ROUNDING_BITS if model.dtype.itemsize >= 4 else _ROUNDING_BITS_HALF
    share = quantised_share(model)
    how_many = f"{percent(share)} of " if share else ""
    notes = [
        f"{how_many}the model's weights are quantised ({', '.join(_method(model))}), and all "
        "numbers are of the model as it is: rounded weights can blur what training left in them, "
        "so the same model in full precision may give away more; measure that one, too, where it "
        "is released"
    ]
    if differs > allowed:
        notes.append(
            f"the quantised model computes a token differently beside other texts (by up to "
            f"{differs:.2g} bits on a probe), so the last digits of its log-perplexities depend on "
            "the batches"
        )
    return tuple(notes)


def _method(model: Any) -> list[str]:
    """By what (first), and into how many bits or in which way, where the config says so."""
    config: Any = getattr(model.config, "quantization_config", None)
    values = config if isinstance(config, dict) else {} if config is None else config.to_dict()
    method = values.get("quant_method")
    how = [width for width in _WIDTHS if values.get(f"load_in_{width}")]
    if "bits" in values:
        how.append(f"{values['bits']} bits")
    if hasattr(config, "quant_type"):  # torchao names what is done by a class
        how.append(type(config.quant_type).__name__)
    return [str(getattr(method, "value", method) or "unknown method"), *how]


@torch.inference_mode()
def _batches_differ_by(name: str, model: Any) -> float:
    """The largest difference in bits of a token's log-probability, alone and in a batch."""
    rows = model.get_input_embeddings().weight.shape[0]
    ids = torch.arange(4 * 12, device=model.device).reshape(4, 12) * 7 % rows
    try:
        together = model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
        alone = model(input_ids=ids[:1], use_cache=False).logits.float().log_softmax(-1)
    except (RuntimeError, TypeError, ValueError) as failure:
        raise ModelError(cannot_compute(name, model, failure)) from failure
    if not (torch.isfinite(together).all() and torch.isfinite(alone).all()):
        raise ModelError(
            f"quantised model {name!r} gives NaN or infinite log-probabilities in "
            f"{dtype_name(model)}; load it in bfloat16, or without quantisation"
        )
    wanted = ids[:1, 1:, None]
    gap = (together[:1, :-1] - alone[:, :-1]).gather(-1, wanted).abs().max()
    return float(gap) / math.log(2)


def cannot_compute(name: str, model: Any, failure: Exception) -> str:
    """What to say where a quantised model fails in the dtype that was asked for."""
    why = str(failure).strip().split("\n")[0][:200]
    return (
        f"quantised model {name!r} does not compute in {dtype_name(model)} ({why}); load it in the "
        "dtype that it was quantised in, or on a device that its method is made for"
    )


def dtype_name(model: Any) -> str:
    """The name of the model's dtype, such as "float32"."""
    return str(model.dtype).removeprefix("torch.")
