"""The plain pass: every text from its beginning, in right-padded batches. Always right."""

import inspect
from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure.errors import NumericalError
from lmexposure.models import (
    Encoded,
)

_LN2 = log(2)


def refuse_unusable(bits: NDArray[np.float64], number: int, texts: int) -> None:
    """No score can stand on a number that is none.

    Raises:
        NumericalError: one of the bits of text `number` of `texts` is NaN or infinite.
    """
    if not np.isfinite(bits).all():
        raise NumericalError(
            f"the model gave NaN or infinite log-probabilities for text {number} of {texts}; "
            "its weights or dtype are broken: check the checkpoint, or score in float32"
        )


class PlainForward:
    """Right for every causal model: none looks to the right, where the padding stands."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._known = inspect.signature(model.forward).parameters

    def bits(self, batch: Sequence[Encoded]) -> list[NDArray[np.float64]]:
        """Bits of every scored token of some texts; log-softmax in float32."""
        rows = [one.ids for one in batch]
        first = min(one.scored_from for one in batch)
        logits = self._logits(rows, first)
        longest = max(map(len, rows))
        target = torch.tensor([row[first:] + [0] * (longest - len(row)) for row in rows])
        target = target.to(logits.device)[:, :, None]  # (B, longest - first, 1)
        nats = logits.logsumexp(-1) - logits.gather(-1, target).squeeze(-1)
        token_bits = (nats.double() / _LN2).cpu().numpy()
        return [
            token_bits[row, one.scored_from - first : len(one.ids) - first].copy()
            for row, one in enumerate(batch)
        ]

    def _logits(self, rows: Sequence[list[int]], first: int) -> torch.Tensor:
        """Float32 logits that predict tokens first .. of each row, (B, longest - first, V).

        What stands beyond the end of a shorter row means nothing.
        """
        # The last token is predicted and never fed.
        ids, mask = _padded([row[:-1] for row in rows], self._model.device)
        keep = ids.shape[1] - first + 1
        options: dict[str, Any] = {"use_cache": False, "attention_mask": mask}
        # A model that does not name it may swallow it silently: it is asked for only where named.
        options["logits_to_keep"] = keep
        options = {name: value for name, value in options.items() if name in self._known}
        logits: torch.Tensor = self._model(input_ids=ids, **options).logits
        return logits[:, -keep:].float()


def _padded(rows: Sequence[list[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as (B, T) with zeros on the right, and the mask of what is no padding."""
    T = max(map(len, rows))
    ids = torch.tensor([row + [0] * (T - len(row)) for row in rows], device=device)
    lengths = torch.tensor(list(map(len, rows)), device=device)
    mask = torch.arange(T, device=device) < lengths[:, None]
    return ids.long(), mask.long()
