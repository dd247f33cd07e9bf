"""A language model that is a function of token ids, with the tokenizer that it reads by.

Whoever has a checkpoint with its own code, or a model of another library, has a function from token
ids to logits. It is tried first: what is wrong with such functions shows on a few tokens, and would
otherwise look like a model that memorised nothing, or everything.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from lmexposure._files import sha256_file
from lmexposure._validate import integer
from lmexposure.errors import ModelError, SettingsError
from lmexposure.models.load import LoadedModel
from lmexposure.models.other_tokenizers import as_tokenizer
from lmexposure.models.weights import holding

_PARAMETERS = 10**7  # of a function that does not say how many it has
_ROWS, _TOKENS = 3, 8  # of a trial
_LONG, _MANY = 128, 40  # tokens of its longer rows, rows that are added to it
_MOST_TOKENS, _MOST_PARAMETERS = 10**9, 10**15
# Asked at once; on a CPU what a model computes of these stays in its cache.
_BLOCK_TOKENS = {"cpu": 1 << 10, "cuda": 1 << 15}
_ROUNDING, _HALF_ROUNDING = 1e-4, 3e-2  # of logits, as a share of the largest
_SUM = 1e-3  # by how much a sum of probabilities may miss 1


class FunctionConfig(PretrainedConfig):  # type: ignore[misc]  # transformers is not typed
    """What is known of a function: how many next tokens it tells apart, and its window."""

    model_type = "function"


class FunctionLm(PreTrainedModel):  # type: ignore[misc]  # transformers is not typed
    """A function from token ids, shape (B, T), to logits, as a causal model of transformers.

    It keeps no states: each prefix is read from its first token.
    """

    config_class: ClassVar[type] = FunctionConfig

    def __init__(self, config: FunctionConfig, asked: "_Asked", parameters: int) -> None:
        super().__init__(config)
        self.asked, self._parameters_said = asked, parameters
        # As many rows as there are next tokens, and no numbers; it is no weight of the model.
        self._rows = (nn.Embedding(config.vocab_size, 1, device="meta"),)

    @property
    def device(self) -> torch.device:
        """Where token ids go, and where logits come from."""
        return self.asked.device

    @property
    def dtype(self) -> torch.dtype:
        """Of its logits."""
        return self.asked.dtype

    def num_parameters(self, *args: Any, **kwargs: Any) -> int:
        """As they were counted or said."""
        return self._parameters_said

    def get_output_embeddings(self) -> nn.Module:
        """See `_rows`."""
        return self._rows[0]

    get_input_embeddings = get_output_embeddings  # what it can read is what it can say

    def forward(self, input_ids: Tensor, logits_to_keep: int = 0) -> CausalLMOutput:
        """Logits of the last places of each row, of all where 0 are asked for."""
        return CausalLMOutput(logits=self.asked.logits(input_ids, keep=logits_to_keep))


def language_model(
    logits: Callable[[Any], Any],
    *,
    tokenizer: Any,
    window: int | None,
    last_only: bool = False,
    name: str = "function",
    parameters: int | None = None,
) -> LoadedModel:
    """A function of token ids as a model that can be measured.

    It is asked in batches of whole prefixes: no states are kept from one question to the next, so
    that an exact search takes longer than with a model of transformers.

    Args:
        logits: from token ids, int64 of shape (B, T), to the logits of the next token behind each
            place, shape (B, T, V), in natural units; log-probabilities are logits too. It gets an
            array of numpy, or a tensor where it takes no array, and gives what numpy, torch or
            dlpack can read, alone or first in a tuple. Rows end in token 0 where they are shorter
            than others. A module of torch computes on its own device, in evaluation mode.
        tokenizer: of transformers, `tokenizers`, tiktoken or sentencepiece; or (encode, decode,
            pieces): text to ids, ids to text, and what each id spells, a list of V texts.
        window: most tokens that it reads at once; None: no limit.
        last_only: it gives the logits behind the last token of each row alone, shape (B, V). Each
            place of a text is then a question of its own.
        name: what a result calls it.
        parameters: how many it has, from which the budget of an exact search follows; None: those
            of a module are counted, else 10 million.

    Raises:
        ModelError: it raises, gives another shape, NaN, or probabilities; its numbers depend on
            later tokens, on the other rows, on chance, or on what it was asked before; the
            tokenizer is none of these, or has tokens that the function does not tell apart.
        SettingsError: a context window below 2, or a number of parameters below 1.
    """
    if not callable(logits):
        raise ModelError(
            f"logits is of type {type(logits).__name__}; give a function from token ids to logits"
        )
    if window is not None:
        window = integer("window", window, low=2, high=_MOST_TOKENS)
    read = as_tokenizer(tokenizer)
    asked = _Asked(logits, last_only=last_only)
    with holding("training", False, list(asked.modules())), torch.inference_mode():
        size = _Trial(asked, name, vocabulary=len(read), window=window).outputs()
    counted = sum(weight.numel() for weight in asked.parameters()) or _PARAMETERS
    parameters = counted if parameters is None else parameters
    config = FunctionConfig(vocab_size=size, max_position_embeddings=window)
    asked.size = size
    parameters = integer("parameters", parameters, low=1, high=_MOST_PARAMETERS)
    return LoadedModel(model=FunctionLm(config, asked, parameters), tokenizer=read, name=name)


def built_model(path: str | Path, builder: str) -> LoadedModel:
    """A checkpoint of one's own, by the function "module:function" that builds its model.

    It gets what the file holds, read without running code of it, and gives what `language_model`
    made.
    """
    module_name, _, name = builder.partition(":")
    if not module_name or not name:
        raise SettingsError(
            f"builder={builder!r} must be module:function, such as my_model:build, of a module in "
            "this directory or an installed one"
        )
    held = _checkpoint(Path(path))
    try:
        # What it prints is no part of what a command says.
        with _importing_from_here(), redirect_stdout(sys.stderr):
            module = importlib.import_module(module_name)
            made = getattr(module, name)(held)
    except (Exception, SystemExit) as failure:
        raise ModelError(
            f"builder={builder!r} raised {type(failure).__name__} ({failure}); it gets what "
            f"{path} holds, and must return lmexposure.language_model(...)"
        ) from failure
    if not isinstance(made, LoadedModel):
        raise ModelError(
            f"builder={builder!r} gave a {type(made).__name__}; it must return "
            "lmexposure.language_model(...)"
        )
    code = inspect.getsourcefile(module)
    by = "" if code is None else f" of {Path(code).name} (SHA-256 {sha256_file(Path(code))})"
    note = f"built by {name}{by} from a checkpoint (SHA-256 {sha256_file(Path(path))})"
    return replace(made, name=str(path), notes=(*made.notes, note))


def _checkpoint(path: Path) -> Any:
    """What a file of torch or safetensors holds."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as failure:
        raise ModelError(
            f"model {str(path)!r} cannot be read as a checkpoint of torch without running code of "
            f"it ({type(failure).__name__}); save its state_dict alone, by torch.save or "
            "safetensors"
        ) from failure


@contextmanager
def _importing_from_here() -> Iterator[None]:
    """Find modules of the working directory, too."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(here)


class _Asked(nn.Module):
    """A function, by what it takes and gives; a module among its parts is found by torch."""

    def __init__(self, function: Callable[[Any], Any], *, last_only: bool) -> None:
        super().__init__()
        self.function, self.last_only = function, last_only
        self.takes_tensors = isinstance(function, nn.Module)
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.size = 0  # next tokens that it tells apart; 0: that is to be seen
        if (weight := next(self.parameters(), None)) is not None:
            self.device = weight.device
        # What it says on a trial, which stands for what it is made of.
        self.register_buffer("said", torch.empty(0))

    def logits(self, ids: Tensor, *, keep: int) -> Tensor:
        """Logits behind the last `keep` places of each row, of all where it is 0: (B, keep, V)."""
        length, places = ids.shape[1], []
        block = max(1, _BLOCK_TOKENS.get(ids.device.type, _BLOCK_TOKENS["cuda"]) // length)
        if not self.last_only:
            return torch.cat([self.checked(rows)[:, -keep:] for rows in torch.split(ids, block)])
        for end in range(length - (keep or length) + 1, length + 1):
            different, which = torch.unique(ids[:, :end], dim=0, return_inverse=True)
            found = torch.cat([self.checked(rows) for rows in torch.split(different, block)])
            places.append(found[which])
        return torch.stack(places, dim=1)

    def checked(self, ids: Tensor) -> Tensor:
        """What it gives while it is measured: nothing but what it gave when it was tried."""
        try:
            given = self.ask(ids)
        except Exception as failure:
            if isinstance(failure, MemoryError) or "memory" in str(failure):
                raise  # whoever asks takes fewer rows
            raise ModelError(
                f"the function raised {type(failure).__name__} on token ids of shape "
                f"{tuple(ids.shape)} ({str(failure)[:200]}); it must take any number of rows, and "
                "of tokens within its context window"
            ) from failure
        wanted = (len(ids), self.size) if self.last_only else (*ids.shape, self.size)
        if tuple(given.shape) != wanted:
            raise ModelError(
                f"the function gave shape {tuple(given.shape)} where {wanted} was asked for; it "
                "must give logits of every token for any number of rows and tokens"
            )
        return given

    def ask(self, ids: Tensor) -> Tensor:
        """What it gives, as a tensor of its own: a function may give the same memory again."""
        own = ids.to(self.device).clone()
        given = self.function(own if self.takes_tensors else own.cpu().numpy())
        given = getattr(given, "logits", given)
        given = given[0] if isinstance(given, tuple | list) else given
        if isinstance(given, Tensor):
            return given.clone()
        if hasattr(given, "__dlpack__") and not isinstance(given, np.ndarray):
            return torch.utils.dlpack.from_dlpack(given).clone()
        return torch.from_numpy(np.array(given))


class _Trial:
    """Some tokens, and what a function must give for them."""

    def __init__(self, asked: _Asked, name: str, *, vocabulary: int, window: int | None) -> None:
        self.asked, self.name = asked, name
        self.tokens = min(_TOKENS, window or _TOKENS)
        self.vocabulary = vocabulary
        generator = np.random.default_rng(0)
        ids = generator.integers(0, vocabulary, size=(_ROWS, self.tokens))
        self.ids = torch.from_numpy(ids)
        # The same rows, longer; and the same among many.
        more = max(0, min(_LONG, window or _LONG) - self.tokens)
        after = generator.integers(0, vocabulary, size=(_ROWS, more))
        self.longer = torch.from_numpy(np.concatenate([ids, after], axis=1))
        beside = generator.integers(0, vocabulary, size=(_MANY, self.tokens))
        self.many = torch.from_numpy(np.concatenate([ids, beside]))

    def outputs(self) -> int:
        """How many next tokens it tells apart; refuse a function that is no language model."""
        first = self._first()
        size = self._checked_shape(first)
        if not torch.isfinite(first).any() or torch.isnan(first).any():
            raise self._wrong("gives NaN or no finite logit at all", "check its weights")
        if not first.dtype.is_floating_point:
            raise self._wrong(f"gives {first.dtype}", "return logits, which are no whole numbers")
        finite = first.float()
        self._check_scale(finite)
        self.asked.dtype = first.dtype
        self._check_repeats(first)
        self._check_rows(first)
        self._check_causal(first)
        self.asked.said = finite.clone()
        return size

    def _first(self) -> Tensor:
        """The first answer, to an array or, where it takes none, to a tensor."""
        for tensors in dict.fromkeys((self.asked.takes_tensors, True)):
            self.asked.takes_tensors = tensors
            try:
                return self.asked.ask(self.ids)
            except Exception as failure:
                refused = failure
        raise self._wrong(
            f"raised {type(refused).__name__} on token ids of shape {tuple(self.ids.shape)} "
            f"({str(refused)[:200]})",
            "it must take int64 ids of any number of rows and tokens within its context window",
        ) from refused

    def _checked_shape(self, first: Tensor) -> int:
        rows, tokens = self.ids.shape
        shape, last = tuple(first.shape), self.asked.last_only
        wanted = (rows,) if last else (rows, tokens)
        if shape[:-1] == wanted and shape[-1] >= self.vocabulary:
            return shape[-1]
        gave = f"gives shape {shape} for {rows} rows of {tokens} tokens"
        if shape[:-1] == wanted:
            raise self._wrong(
                f"{gave}, and the tokenizer has {self.vocabulary} tokens",
                "give the tokenizer that it was trained with",
            )
        if not last and shape[:-1] in ((rows,), (rows, 1)):
            raise self._wrong(
                f"{gave}: the last place alone",
                "return the logits of every place (a nanoGPT gives them where it gets targets), or "
                "say last_only=True and return (rows, vocabulary)",
            )
        whole = "(rows, vocabulary)" if last else "(rows, tokens, vocabulary)"
        raise self._wrong(gave, f"return logits of shape {whole}")

    def _check_scale(self, found: Tensor) -> None:
        """Refuse probabilities, and logarithms of these of another base or sign."""
        sums, log_e = found.sum(-1), found.double()
        if bool((found >= 0).all()) and bool(((sums / sums.mean() - 1).abs() < _SUM).all()):
            raise self._wrong("gives probabilities", "return logits, or the logarithm of these")
        scales = {"surprisals, the negative of log-probabilities": -1.0}
        scales |= {"log-probabilities of base 2": np.log(2), "of base 10": np.log(10)}
        for what, scale in scales.items():
            if bool(((scale * log_e).exp().sum(-1).sub(1).abs() < _SUM).all()):
                raise self._wrong(f"gives {what}", "return natural logarithms, or any logits")

    def _check_repeats(self, first: Tensor) -> None:
        if self._alike(first, self.asked.ask(self.ids)):
            return
        said = []
        for _ in range(2):
            torch.manual_seed(0)
            np.random.seed(0)
            said.append(self.asked.ask(self.ids))
        if self._alike(*said):
            raise self._wrong(
                "gives other numbers each time, by chance", "switch dropout off (model.eval())"
            )
        raise self._wrong(
            "gives other numbers when it is asked again",
            "let it begin anew each time, without what it kept from the call before",
        )

    def _check_rows(self, first: Tensor) -> None:
        among = self.asked.ask(self.many)
        for row in (slice(i, i + 1) for i in range(len(self.ids))):
            others = self.asked.ask(self.ids[row]), among[row]
            if not all(self._alike(first[row], other) for other in others):
                raise self._wrong(
                    "gives a row other numbers beside other rows",
                    "let no number depend on the rest of the batch",
                )

    def _check_causal(self, first: Tensor) -> None:
        again = self.asked.ask(self._changed(self.ids))
        if self.asked.last_only:
            if self.vocabulary > 1 and self._alike(first, again):
                raise self._wrong(
                    "gives the same whatever the last token is",
                    "return the logits behind the last token of each row",
                )
            return
        before = [first[:, :-1], again[:, :-1], self.asked.ask(self.ids[:, :-1])]
        longer = self.asked.ask(self.longer)
        before += [longer[:, : self.tokens - 1]]
        late = [longer[:, :-1], self.asked.ask(self._changed(self.longer))[:, :-1]]
        if not (all(self._alike(before[0], other) for other in before[1:]) and self._alike(*late)):
            raise self._wrong(
                "looks ahead, or reads fewer tokens than it says: its numbers depend on later ones",
                "mask what comes later, and say its context window",
            )

    def _changed(self, ids: Tensor) -> Tensor:
        """The same rows with another last token."""
        return torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % self.vocabulary], dim=1)

    def _alike(self, first: Tensor, other: Tensor) -> bool:
        if first.shape != other.shape:
            return False
        share = _HALF_ROUNDING if first.dtype.itemsize < torch.float32.itemsize else _ROUNDING
        first, other = first.float(), other.float()
        known = torch.isfinite(first)
        if not torch.equal(known, torch.isfinite(other)):
            return False
        gap = (first[known] - other[known]).abs().max()
        return bool(gap <= share * max(1.0, float(first[known].abs().max())))

    def _wrong(self, what: str, remedy: str) -> ModelError:
        return ModelError(f"the function of model {self.name!r} {what}; {remedy}")
