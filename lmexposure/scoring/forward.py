"""One forward pass over right-padded rows: float32 logits of the positions that are asked for.

Rows that begin with the same tokens, as the fills of a format do, need these computed only once.
What that leaves in the model's cache is trusted only when it gives the same numbers as the plain
pass does, on this model and these rows.
"""

import copy
import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from lmexposure.errors import ModelError

__all__ = ["Forward", "PlainForward", "PrefixForward", "refuse_training_mode"]


def refuse_training_mode(model: Any) -> None:
    """Dropout would blur every score.

    Raises:
        ModelError: the model is in training mode.
    """
    if model.training:
        raise ModelError(
            "the model is in training mode, so dropout would blur every score; call model.eval()"
        )


class Forward(Protocol):
    """A way to get logits."""

    def __call__(self, rows: Sequence[list[int]], first: int) -> torch.Tensor:
        """Logits that predict tokens first .. of each row.

        Args:
            rows: B token rows, at least first + 1 long.
            first: the first token to predict, at least 1.

        Returns:
            float32, shape (B, longest - first, V), on the model's device; what stands beyond the
            end of a shorter row means nothing.
        """
        ...


def _padded(rows: Sequence[list[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as (B, T) with zeros on the right, and the mask of what is no padding."""
    T = max(map(len, rows))
    ids = torch.tensor([row + [0] * (T - len(row)) for row in rows], device=device)
    lengths = torch.tensor(list(map(len, rows)), device=device)
    mask = torch.arange(T, device=device) < lengths[:, None]
    return ids.long(), mask.long()


class PlainForward:
    """Every row from its beginning: right for every causal model, which never looks right."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._known = inspect.signature(model.forward).parameters

    def __call__(self, rows: Sequence[list[int]], first: int) -> torch.Tensor:
        # The last token is predicted and never fed.
        ids, mask = _padded([row[:-1] for row in rows], self._model.device)
        keep = ids.shape[1] - first + 1
        options: dict[str, Any] = {"use_cache": False, "attention_mask": mask}
        # A model that does not name it may swallow it silently: it is asked for only where named.
        options["logits_to_keep"] = keep
        options = {name: value for name, value in options.items() if name in self._known}
        logits: torch.Tensor = self._model(input_ids=ids, **options).logits
        return logits[:, -keep:].float()


class PrefixForward:
    """A prefix once, then only what differs."""

    def __init__(self, model: Any, prefix: list[int]) -> None:
        self._model, self._prefix = model, prefix
        ids, _ = _padded([prefix], model.device)
        out = model(input_ids=ids, use_cache=True)
        self._cache = out.past_key_values
        self._logits = out.logits.float()  # (1, P, V): the one at P - 1 predicts token P

    def __call__(self, rows: Sequence[list[int]], first: int) -> torch.Tensor:
        P, B = len(self._prefix), len(rows)
        known: torch.Tensor = self._logits[:, first - 1 :].expand(B, -1, -1)  # tokens first .. P
        behind = [row[P:-1] for row in rows]
        if not any(behind):
            return known
        cache = copy.deepcopy(self._cache)
        cache.reorder_cache(torch.zeros(B, dtype=torch.long, device=self._model.device))
        ids, _ = _padded(behind, self._model.device)
        out = self._model(input_ids=ids, past_key_values=cache, use_cache=True)
        begun = max(0, first - 1 - P)  # where the prefix ends before the first token asked for
        return torch.cat([known, out.logits[:, begun:].float()], dim=1)
