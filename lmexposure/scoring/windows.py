"""What a model says of windows of text: the chance of each suffix behind its prefix, and greedily.

One forward pass a batch gives the bits of the suffix under a decoding rule, its bits under the
model itself, and which of its tokens greedy decoding would have given behind the true ones.

A decoding rule is temperature, then the k likeliest tokens, then a share of the rest. The order is
that of `generate` in transformers, and so is what happens to ties: a token as likely as the k-th
stays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lmexposure._validate import integer, positive
from lmexposure.core import Encoded
from lmexposure.errors import InputError, SettingsError
from lmexposure.scoring.forward import PlainForward, PlainPass
from lmexposure.scoring.runtime import LN2, Bools, Floats, evaluation_mode, module_of
from lmexposure.scoring.steps import WholeSteps

_AT_ONCE = 256  # texts that are sampled side by side
_A_STEP = 16  # tokens' time that a step takes, however few texts
# Tokens and logits of a pass: on a CPU more would be fresh memory each time.
_TOKENS = {"cpu": 1 << 10, "cuda": 1 << 15}
_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 27}


@dataclass(frozen=True, kw_only=True)
class DecodingRule:
    """A rule of sampling."""

    # logits are divided by it, above 0; greedy decoding is measured by itself
    temperature: float = 1.0
    top_k: int | None = None  # how many of the likeliest tokens may come; None: all
    # only the likeliest tokens that together have this probability, in (0, 1]; 1: all
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature == 0:
            raise SettingsError(
                "temperature=0 is greedy decoding, which is measured in any case; give the "
                "temperature of sampling, such as 1"
            )
        positive("temperature", self.temperature)
        if self.top_k is not None:
            integer("top_k", self.top_k, low=1)
        if not 0 < positive("top_p", self.top_p) <= 1:
            raise SettingsError(f"top_p={self.top_p!r} must be above 0 and at most 1")

    @property
    def words(self) -> str:
        """The rule, for people.

        >>> DecodingRule(top_k=40).words
        'temperature 1, the 40 likeliest tokens'
        """
        said = f"temperature {self.temperature:g}"
        if self.top_k is not None:
            said += f", the {self.top_k} likeliest tokens"
        return said if self.top_p == 1 else f"{said}, top-p {self.top_p:g}"

    def log_shares(self, logits: Tensor) -> Tensor:
        """Log-probabilities under the rule, natural, -inf for what cannot come."""
        kept = self._kept(logits)
        return kept - kept.logsumexp(-1, keepdim=True)

    def token_log_shares(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """The same for one token of each row."""
        kept = self._kept(logits)
        return kept.gather(-1, tokens[:, None]).squeeze(-1) - kept.logsumexp(-1)

    def refuses(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Which tokens are not among the k likeliest: cheap, and says nothing of top-p."""
        if self.top_k is None:
            return torch.zeros(tokens.shape, dtype=torch.bool, device=logits.device)
        own = logits.gather(-1, tokens[:, None])
        return (logits > own).sum(-1) >= self.top_k

    def _kept(self, logits: Tensor) -> Tensor:
        """Logits at the temperature; -inf where a token cannot come."""
        kept = logits if self.temperature == 1 else logits / self.temperature
        V = kept.shape[-1]
        if self.top_k is not None and self.top_k < V:
            least = kept.topk(self.top_k, dim=-1).values[..., -1:]
            kept = kept.masked_fill(kept < least, -inf)
        if self.top_p < 1:
            ascending, order = kept.sort(dim=-1)
            dropped = ascending.softmax(-1).cumsum(-1) <= 1 - self.top_p
            dropped[..., -1:] = False
            kept = kept.masked_fill(dropped.scatter(-1, order, dropped), -inf)
        return kept


def sample_tokens(
    steps: WholeSteps,
    prompt: Sequence[int],
    samples: int,
    *,
    tokens: int,
    rule: DecodingRule,
    seed: Sequence[int],
    progress: Callable[[int], None] = lambda done: None,
) -> list[list[int]]:
    """Texts that a model makes up behind a prompt; progress takes `sampling_work`."""
    draws = np.random.default_rng(list(seed))
    found: list[list[int]] = []
    while len(found) < samples:
        n = min(_AT_ONCE, samples - len(found))
        state, logits = steps.start_all(list(prompt))
        ids = np.empty((n, tokens), dtype=np.int64)
        rows = np.zeros(n, dtype=np.int64)
        for place in range(tokens):
            shares: Floats = rule.log_shares(logits).double().exp().cpu().numpy()
            totals = shares.cumsum(1)[rows]
            points = draws.random(n)[:, None] * totals[:, -1:]
            ids[:, place] = np.minimum((totals <= points).sum(1), totals.shape[1] - 1)
            if place < tokens - 1:
                state, logits = steps.advance_all(state, rows, ids[:, place].copy())
            rows = np.arange(n)
            progress(sampling_work(len(found), tokens) + (n + _A_STEP) * (place + 1))
        found += ids.tolist()
    return found


def sampling_work(samples: int, tokens: int) -> int:
    """What `sample_tokens` does, in tokens and what a step of them takes by itself."""
    return (samples + -(-samples // _AT_ONCE) * _A_STEP) * tokens


def greedy_tokens(steps: WholeSteps, prompt: Sequence[int], tokens: int) -> list[int]:
    """What greedy decoding gives behind a prompt."""
    state, logits = steps.start_all(list(prompt))
    found: list[int] = []
    nowhere = np.zeros(1, dtype=np.int64)
    while True:
        found.append(int(logits[0].argmax()))
        if len(found) == tokens:
            return found
        state, logits = steps.advance_all(state, nowhere, np.array(found[-1:], dtype=np.int64))


@dataclass(frozen=True, kw_only=True)
class WindowScores:
    """What a model says of n windows, in input order."""

    # of each suffix under the decoding rule, shape (n,); infinite where a token of it cannot come.
    # Lower = comes out more easily.
    rule_bits: Floats
    bits: Floats  # of each suffix under the model itself, shape (n,). Lower = less surprising.
    # for each window, which tokens of the suffix are the likeliest ones, given the true ones
    # before, shape (S,)
    greedy: tuple[Bools, ...]

    @property
    def reproduced(self) -> Bools:
        """Whether greedy decoding gives the whole suffix, shape (n,)."""
        return np.array([bool(hits.all()) for hits in self.greedy], dtype=bool)


@torch.inference_mode()
def score_windows(
    model: Any,
    windows: Sequence[Encoded],
    rule: DecodingRule | None = None,
    *,
    batch_size: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> WindowScores:
    """Score suffixes behind their prefixes, in one pass each.

    Source: Hayes et al. 2025 (arXiv 2410.19482), section 3: the probability of a suffix from one
    pass over it.
    """
    if not windows:
        raise InputError("no passages to score; give at least one")
    model = module_of(model)
    with evaluation_mode(model):
        reading = _WindowPass(model, rule or DecodingRule())
        size = reading.most(windows) if batch_size is None else batch_size
        found = PlainForward(model, windows).read(
            reading.rows, size, finite=lambda row: np.array(row[1]), progress=progress
        )
    rule_bits, bits, greedy = zip(*found, strict=True)
    return WindowScores(rule_bits=np.array(rule_bits), bits=np.array(bits), greedy=greedy)


class _WindowPass(PlainPass):
    """The plain pass, of which only the suffixes' logits are asked for."""

    def __init__(self, model: Any, rule: DecodingRule) -> None:
        super().__init__(model)
        self._rule = rule
        self._is_plain = rule == DecodingRule()

    def most(self, windows: Sequence[Encoded]) -> int:
        """Windows that are read at once."""
        longest = max(len(window.ids) for window in windows)
        suffix = max(len(window.ids) - window.scored_from for window in windows)
        vocabulary = int(self._model.config.get_text_config().vocab_size)
        tokens, logits = (
            most.get(self._model.device.type, most["cuda"]) for most in (_TOKENS, _LOGITS)
        )
        return max(1, min(tokens // longest, logits // (vocabulary * suffix)))

    def rows(self, batch: Sequence[Encoded]) -> list[tuple[float, float, Bools]]:
        """For each window bits under the rule, bits, and greedy matches."""
        first = min(window.scored_from for window in batch)
        logits = self._logits([window.ids for window in batch], first)  # (B, T, V)
        own = torch.zeros(logits.shape[:2], dtype=torch.bool)
        for row, window in enumerate(batch):
            own[row, window.scored_from - first : len(window.ids) - first] = True
        own = own.to(logits.device)
        suffixes = [token for window in batch for token in window.ids[window.scored_from :]]
        flat, wanted = logits[own], torch.tensor(suffixes, device=own.device)  # (M, V), (M,)
        chosen = flat.gather(-1, wanted[:, None]).squeeze(-1)
        nats = flat.logsumexp(-1) - chosen
        by_rule = nats if self._is_plain else self._nats(flat, wanted, own)
        columns = torch.stack([by_rule.double(), nats.double()]).cpu().numpy() / LN2
        hits = (flat.argmax(-1) == wanted).cpu().numpy()
        ends = np.cumsum([len(window.ids) - window.scored_from for window in batch])[:-1]
        parts = (np.split(values, ends) for values in (columns[0], columns[1], hits))
        return [(float(a.sum()), float(b.sum()), c) for a, b, c in zip(*parts, strict=True)]

    def _nats(self, flat: torch.Tensor, wanted: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Under the rule; infinite for whole windows of which a token cannot come."""
        nats = torch.full(wanted.shape, inf, dtype=flat.dtype, device=flat.device)
        out = torch.zeros(own.shape, dtype=torch.bool, device=own.device)
        out[own] = self._rule.refuses(flat, wanted)
        # To sort a vocabulary costs as much as to compute its logits: only where it matters.
        left = ~out.any(1)[:, None].expand_as(own)[own]  # (M,)
        nats[left] = -self._rule.token_log_shares(flat[left], wanted[left])
        return nats
