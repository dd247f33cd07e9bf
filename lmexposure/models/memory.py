"""What a model takes in memory and how long it computes, by its shapes, before it is loaded.

The shapes are those in the headers of its safetensors files; of a hub model, those that its config
gives, so that nothing is downloaded first. A measurement takes the weights and a working set:
states of the searches, logits and activations of a pass, the libraries themselves. The copy in
float64 that tells near ties apart comes on top, where memory for it is free; else there is none.
"""

import json
import math
import re
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import psutil
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

from lmexposure.errors import ModelError

# What reading the config or the headers of damaged files raises.
UNREADABLE = (
    *(OSError, ValueError, KeyError, RuntimeError, AttributeError),
    *(SafetensorError, StrictDataclassError, struct.error),
)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# What no method quantises: embeddings and the head, by the names that models give them.
_ENDS = re.compile(r"(^|\.)(\w*embed\w*|wte|wpe|lm_head|output_layer)\.")
_GROUPS = Path("/sys/fs/cgroup")
# (limit, use, what of it can be had back) of a control group, version 2 and 1.
_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
# As the passes and searches of `scoring` are cut: tokens of a pass, and bytes of states, logits and
# libraries. Ten tensors of a pass's activations live at once, the widest of them 4 times as wide.
_PASS_TOKENS = {"cpu": 1 << 11, "cuda": 1 << 15}
_STATES = {"cpu": 1 << 30, "cuda": 3 << 30}
_ACTIVATIONS = 24
_FAR_LARGER = 2  # times as many weights: of the same model, a head may be saved or not
_TRIED = 2048  # rows and columns of a trial's matrices


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """What decides a model's memory and time.

    >>> shape = ModelShape(parameters=8_000_000_000, linear=7_000_000_000, width=4096)
    >>> [round(shape.weights("bfloat16", load_in, "cuda") / 1e9, 1) for load_in in (None, "4bit")]
    [16.0, 5.9]
    >>> round(shape.seconds(1_000_000, rate=400e12))  # at 400 TFLOP/s
    40
    """

    parameters: int
    linear: int  # how many of them are weights of linear layers, which can be quantised
    width: int = 0  # of the hidden states
    packed: int = 0  # bytes of the files of a model that was saved quantised; 0: it was not

    @classmethod
    def of_model(cls, name: str, options: Mapping[str, Any]) -> Self:
        """Of a directory by its files, of a hub model by its config."""
        config = AutoConfig.from_pretrained(name, **options)
        packed = getattr(config, "quantization_config", None) is not None
        files = _files(Path(name))
        held = dict(_held(files) if files else _by_config(config, options))
        return cls(
            parameters=sum(math.prod(shape) for shape in held.values()),
            linear=sum(
                math.prod(shape)
                for name, shape in held.items()
                if len(shape) == 2 and not _ENDS.search(name)
            ),
            width=int(getattr(config.get_text_config(), "hidden_size", 0)),
            packed=sum(file.stat().st_size for file in files) if packed else 0,
        )

    def weights(self, dtype: str, load_in: str | None, device: str) -> int:
        """Bytes of the weights, with the scales and offsets of quantised ones."""
        if self.packed:
            return self.packed
        width = DTYPES[dtype].itemsize
        linear = self.linear * bytes_of_weight(width, load_in, device)
        return round(linear + (self.parameters - self.linear) * width)

    def working_set(self, dtype: str, device: str) -> int:
        """Bytes that a measurement needs next to the weights, without the copy in float64."""
        kind = torch.device(device).type
        tokens = _PASS_TOKENS.get(kind, _PASS_TOKENS["cuda"])
        held = tokens * self.width * _ACTIVATIONS * DTYPES[dtype].itemsize
        return _STATES.get(kind, _STATES["cuda"]) + held

    def seconds(self, tokens: float, *, rate: float) -> float:
        """To read as many tokens, at this many floating-point operations a second."""
        return 2 * self.parameters * tokens / rate


def bytes_of_weight(width: int, load_in: str | None, device: str) -> float:
    """Of one weight of a linear layer: kept as it is, or as torchao or bitsandbytes keeps it."""
    if load_in is None:
        return width
    if load_in == "8bit":
        return 1.0
    # On a CPU a byte, and a scale and an offset for 32 weights; else half a byte and a scale in
    # float32 for 64.
    return 1 + (width + 1) / 32 if device.startswith("cpu") else 0.5 + 4 / 64


def _files(directory: Path) -> list[Path]:
    """Those that are loaded: others may hold the same weights in another layout."""
    index, whole = directory / "model.safetensors.index.json", directory / "model.safetensors"
    if whole.is_file() or not index.is_file():
        return [whole] if whole.is_file() else []
    listed = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    return [directory / name for name in sorted(set(listed))]


def _held(files: list[Path]) -> Iterator[tuple[str, list[int]]]:
    """Names and shapes of all weights in the headers."""
    for file in files:
        with safe_open(file, framework="np") as opened:
            for name in opened.keys():  # noqa: SIM118 (it is no mapping)
                yield name, opened.get_slice(name).get_shape()


def _by_config(config: Any, options: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The same of a model without numbers."""
    with torch.device("meta"):
        trusted = options["trust_remote_code"]
        made = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        model = made.from_config(config, trust_remote_code=trusted)
    for name, weight in model.named_parameters():
        yield name, tuple(weight.shape)


def refuse_larger_config(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a config.json of a far larger model than its files hold, before memory is taken."""
    try:
        config = AutoConfig.from_pretrained(name, **options)
        files = _files(Path(name))
        if not files or getattr(config, "quantization_config", None) is not None:
            return
        asked, held = dict(_by_config(config, options)), dict(_held(files))
    except (*UNREADABLE, TypeError):
        return  # whoever loads it says more
    sizes = [sum(map(math.prod, shapes.values())) for shapes in (asked, held)]
    if sizes[0] <= _FAR_LARGER * sizes[1]:
        return
    found = ((key, tuple(held[key]), tuple(asked[key])) for key in asked if key in held)
    other = next((each for each in found if each[1] != each[2]), None)
    shown = "" if other is None else f": {other[0]} has {other[1]} and would need {other[2]}"
    raise ModelError(
        f"model {name!r} has a config.json of {sizes[0]:,} weights, and its files hold "
        f"{sizes[1]:,}{shown}; give it the config.json that it was saved with"
    )


@torch.inference_mode()
def product_rate(device: str, dtype: str, *, seconds: float = 0.3) -> float:
    """Floating-point operations a second that products of matrices keep up, by a short trial."""
    left, right = torch.ones(2, _TRIED, _TRIED, device=device, dtype=DTYPES[dtype])
    left.mm(right).sum().item()  # a first product is slower than all others
    begun, number = time.perf_counter(), 0
    while number == 0 or time.perf_counter() - begun < seconds:
        left.mm(right)[0, 0].item()  # waits for a GPU
        number += 1
    return 2 * _TRIED**3 * number / (time.perf_counter() - begun)


def free_memory(device: str) -> int:
    """Bytes that are free on a device; of the CPU's, what a control group leaves of them."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(min([psutil.virtual_memory().available, *_left_in_groups()]))


def _left_in_groups() -> Iterator[int]:
    """What the control groups of this process leave, those around them too."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds and "memory" not in kinds.split(","):
                continue
            home = _GROUPS / "memory" if kinds else _GROUPS
            for place in (home / path.strip("/"), *(home / path.strip("/")).parents):
                yield from _left(place)


def _left(place: Path) -> Iterator[int]:
    for limit, used, idle in _FILES:
        with suppress(OSError, ValueError):  # "max", or no such file
            most, now = (int((place / name).read_text()) for name in (limit, used))
            kept = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
            yield most - now + int(kept.get(idle, 0))


@dataclass(frozen=True, kw_only=True)
class Placement:
    """How a model is to be loaded, as far as its memory depends on it."""

    device: str
    dtype: str
    load_in: str | None
    device_map: str | Mapping[str, int | str] | None
    whole: bool = False  # whether it is spread after it was whole in the memory of the CPU

    def refuse_too_large(self, name: str, options: Mapping[str, Any]) -> None:
        """Refuse a model that does not fit, before any of it is read."""
        try:
            shape = ModelShape.of_model(name, options)
        except UNREADABLE:
            return  # whoever loads it says more
        if self._fits(shape):
            return
        needed = shape.weights(self.dtype, self.load_in, self.device)
        ways = [
            f"{way} ({_gigabytes(other._needed(shape))})"
            for way, other in self._smaller(shape)
            if other._fits(shape)
        ]
        free, where = min(self._free())
        raise ModelError(
            f"model {name!r} does not fit: it takes {_gigabytes(needed)} in "
            f"{self.load_in or self.dtype} and {_gigabytes(self._needed(shape) - needed)} more to "
            f"be measured, and {_gigabytes(free)} are free {where}; give "
            f"{' or '.join(ways) or 'a device with more memory'}"
        )

    def _needed(self, shape: ModelShape) -> int:
        needed = shape.weights(self.dtype, self.load_in, self.device)
        return needed + shape.working_set(self.dtype, self.device)

    def _fits(self, shape: ModelShape) -> bool:
        return self._needed(shape) <= min(self._free())[0]

    def _free(self) -> Iterator[tuple[int, str]]:
        """What is free in each place that has to hold all of it, and where that is."""
        if self.device_map is None:
            yield free_memory(self.device), f"on {self.device}"
        else:
            gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
            disk = shutil.disk_usage(tempfile.gettempdir()).free
            yield sum(map(free_memory, [*gpus, "cpu"])) + disk, "on all devices and the disk"
        # It arrives in the memory of the CPU, but for what is quantised on its way.
        on_gpu = self.device_map is None and self.device.startswith("cuda")
        if self.whole or (on_gpu and self.load_in is None):
            yield free_memory("cpu"), "in the memory of the CPU"

    def _smaller(self, shape: ModelShape) -> Iterator[tuple[str, "Placement"]]:
        """Ways to need less of this device."""
        if self.dtype == "float32" and not shape.packed:
            yield "dtype=bfloat16", replace(self, dtype="bfloat16")
        if self.load_in is None and not shape.packed:
            for load_in in ("8bit", "4bit"):
                yield f"load_in={load_in}", replace(self, load_in=load_in)
        if self.device_map is None:
            yield "device_map=auto", replace(self, device_map="auto")


def _gigabytes(number: float) -> str:
    return f"{number / 1e9:,.3g} GB" if number < 1e12 else f"{number / 1e9:,.0f} GB"
