"""HAMP: training that leaves a model unsure of what it read, and an output that keeps the order.

In training the target is soft: its token has a probability, all others the same, so that the
entropy of the target is a given share of the largest; and the entropy of what the model predicts is
rewarded. At test time what the model says is replaced by what it says of random tokens, put into
the same order, so that an attacker learns which tokens are likely and not how likely.

Source: Chen, Pattabiraman 2024, "Overconfidence is a Dangerous Thing: Mitigating Membership
Inference Attacks by Enforcing Less Confident Prediction" (HAMP, NDSS 2024, arXiv 2307.01610), with
tokens in the place of images; Aerni et al. 2024 had a share of .9997 and a weight of .005.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq

from lmexposure.models.encoding import context_window
from lmexposure.models.load import LoadedModel
from lmexposure.models.methods import Setup
from lmexposure.models.plain import PlainTraining

_READ = 64  # random tokens whose predictions lend their values


class Hamp(PlainTraining):
    """Plain training by another loss; see the module."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._vocabulary = setup.model.get_output_embeddings().weight.shape[0]
        self._own = sure(setup.settings.hamp_entropy, self._vocabulary)

    def _loss(self, numbers: NDArray[np.int64], step: int) -> tuple[torch.Tensor, float]:
        read = self._rows.read(self._model, numbers)
        logs = torch.log_softmax(read.logits, dim=1)
        each = -logs.gather(1, read.labels[:, None]).squeeze(1)
        rest = (1 - self._own) / (self._vocabulary - 1)
        soft = self._own * each + rest * (-logs.sum(dim=1) - each)
        entropy = -(logs.exp() * logs).sum(dim=1)
        loss = (soft - self._settings.hamp_weight * entropy).sum()
        return loss, float(each.detach().sum())


def sure(entropy: float, vocabulary: int) -> float:
    """The probability of a soft label's token, all others having the same.

    >>> round(sure(0.5, 100), 4)
    0.641
    """
    others = vocabulary - 1

    def above(own: float) -> float:
        spread = (1 - own) * math.log((1 - own) / others)
        return -own * math.log(own) - spread - entropy * math.log(vocabulary)

    low, high = 1 / vocabulary, 1 - 1e-15
    if above(low) <= 0 or above(high) >= 0:  # so near an end that rounding decides
        return low if above(low) <= 0 else high
    return float(brentq(above, low, high))


def masked(loaded: LoadedModel, *, seed: int = 0) -> LoadedModel:
    """The model with an output of which only the order of the tokens is its own.

    Each position gets the logits that the model has for a random text at that position, in the
    order of its own logits; whether a text is read at once, token by token or for its last logits
    alone. The model itself is changed: no one can read it otherwise any more.
    """
    model = loaded.model
    size = model.get_output_embeddings().weight.shape[0]
    draws = torch.Generator().manual_seed(seed)
    read = min(_READ, context_window(model.config) or _READ)
    ids = torch.randint(size, (1, read), generator=draws).to(model.device)
    with torch.inference_mode():
        said = model(input_ids=ids, use_cache=False).logits[0]
    values = said.sort(dim=1, descending=True).values

    def keep_order(_: Any, given: tuple[Any, ...], named: dict[str, Any], output: Any) -> Any:
        output.logits = in_order(output.logits, values[_places(given, named) % read])
        return output

    model.register_forward_hook(keep_order, with_kwargs=True)
    return replace(loaded, model=model)


def _places(given: tuple[Any, ...], named: dict[str, Any]) -> torch.Tensor:
    """Positions of the logits that a model was asked for, behind its cache, (B or 1, T)."""
    ids = named["input_ids"] if "input_ids" in named else given[0]
    places = named.get("position_ids")
    if places is None:
        cache = named.get("past_key_values")  # by now with these tokens
        end = ids.shape[1] if cache is None else int(cache.get_seq_length())
        places = torch.arange(end - ids.shape[1], end, device=ids.device)[None]
    kept = named.get("logits_to_keep", 0)
    return places[:, slice(-kept, None) if isinstance(kept, int) else kept]


def in_order(logits: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Other values in the order of the logits; of equal logits the first gets the largest."""
    # The likeliest token is then the same, for argmax takes the first of equals.
    ranks = logits.argsort(dim=2, descending=True, stable=True).argsort(dim=2)
    return values.expand(len(logits), -1, -1).gather(2, ranks)
