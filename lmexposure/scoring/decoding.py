"""How a model's next token is drawn: temperature, then the k likeliest, then a share of the rest.

The order is that of `generate` in transformers, and so is what happens to ties: a token as likely
as the k-th stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import torch
from torch import Tensor

from lmexposure._validate import integer, positive
from lmexposure.errors import SettingsError
from lmexposure.scoring.runtime import Floats
from lmexposure.scoring.steps import WholeSteps

_AT_ONCE = 256  # texts that are sampled side by side


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
) -> list[list[int]]:
    """Texts that a model makes up behind a prompt."""
    draws = np.random.default_rng(list(seed))
    found: list[list[int]] = []
    while len(found) < samples:
        n = min(_AT_ONCE, samples - len(found))
        state, logits = steps.start_all(list(prompt))
        ids = np.empty((n, tokens), dtype=np.int64)
        rows = np.zeros(n, dtype=np.int64)
        for place in range(tokens):
            totals = _shares(logits, rule).cumsum(1)[rows]
            points = draws.random(n)[:, None] * totals[:, -1:]
            ids[:, place] = np.minimum((totals <= points).sum(1), totals.shape[1] - 1)
            if place < tokens - 1:
                state, logits = steps.advance_all(state, rows, ids[:, place].copy())
            rows = np.arange(n)
        found += ids.tolist()
    return found


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


def _shares(logits: Tensor, rule: DecodingRule) -> Floats:
    shares: Floats = rule.log_shares(logits).double().exp().cpu().numpy()
    return shares
