"""Which secrets come out of the model, and how much of each an attacker must know."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lmexposure._files import write_json
from lmexposure.canaries import Canary
from lmexposure.scoring import Extractor, beam_width

__all__ = ["Extractions", "extract_format"]

# One row per canary id: greedy and beam, for each number of revealed characters.
Extractions = dict[str, list[dict[str, Any]]]


def extract_format(
    extractor: Extractor,
    canaries: tuple[Canary, ...],
    *,
    revealed: int,
    width: int | None,
    kept: Path | None,
    progress: Callable[[int, int], None],
) -> Extractions:
    """Search for every inserted canary of a format, with 0 to `revealed` characters given.

    Args:
        extractor: of the format.
        canaries: canaries and controls; controls are not searched for.
        revealed: the most characters given; a shorter secret ends before.
        width: of the beam; None: 100, and twice the canaries.
        kept: where finished canaries are kept between interruptions; None keeps nothing.
        progress: called with (canaries done, canaries in all).
    """
    inserted = [one for one in canaries if one.role == "canary"]
    width = beam_width(len(inserted)) if width is None else width
    done: Extractions = json.loads(kept.read_text()) if kept and kept.exists() else {}
    for number, canary in enumerate(inserted, 1):
        if canary.id not in done:
            known = min(revealed, extractor.format.free_characters(canary.index))
            done[canary.id] = [
                extractor.find(canary.index, revealed=k, width=w).to_dict()
                for k in range(known + 1)
                for w in (1, width)
            ]
            if kept is not None:
                write_json(kept, done)
        progress(number, len(inserted))
    return {one.id: done[one.id] for one in inserted}
