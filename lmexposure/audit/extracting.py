"""Which secrets come out of the model, and how much of each an attacker must know."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path

from lmexposure import scoring
from lmexposure._record import Record, Rows
from lmexposure.audit.parts import keep_part, read_part
from lmexposure.canaries import Canary
from lmexposure.records import Extraction
from lmexposure.scoring import Extractor, SecretSearch, beam_width

# By canary id: greedy and beam, for each number of revealed characters.
Extractions = dict[str, list[Extraction]]


class _Searches(Record):
    """Those that are done, in the order of the wishes."""

    done: Rows[Extraction]


def extract_format(
    extractor: Extractor,
    canaries: tuple[Canary, ...],
    *,
    revealed: int,
    width: int | None,
    kept: Path | None,
    progress: Callable[[int, int], None],
    end_asked: Callable[[], bool],
) -> Extractions:
    """Search for every canary of a format with 0 to `revealed` characters given.

    The last character is never given: that would be no extraction. Controls, which the model
    never saw, are searched for with nothing given; that costs nothing, for it is the same search.

    Args:
        extractor: of the format.
        canaries: canaries and controls.
        revealed: the most characters given.
        width: of the beam; None: 100, and twice the canaries.
        kept: where finished searches are kept between interruptions; None keeps nothing.
        progress: called with (searches done, searches in all).
        end_asked: whether a person wants an early end: what is left is then searched for with
            nothing given only, which is one search for all.

    Returns:
        per canary id what each search found.
    """
    inserted = sum(one.role == "canary" for one in canaries)
    width = beam_width(inserted) if width is None else width
    wishes = [wish for one in canaries for wish in _wishes(extractor, one, revealed, width)]
    wishes.sort(key=lambda wish: (wish.revealed, wish.width))  # those that share a search adjoin
    before = read_part(kept, _Searches)
    rows = [] if before is None else list(before.done)
    total = len(wishes)
    progress(len(rows), total)
    needed = sum(wish.revealed == 0 for wish in wishes)
    for found in chain(
        extractor.find_all(wishes[:needed], done=len(rows), watch=lambda n: progress(n, total)),
        extractor.find_all(
            wishes[needed:],
            done=len(rows) - needed,
            watch=lambda n: progress(needed + n, total),
        ),
    ):
        rows += [_searched(extractor, wishes[len(rows) + n], one) for n, one in enumerate(found)]
        keep_part(kept, _Searches(done=tuple(rows)))
        progress(len(rows), total)
        if len(rows) >= needed and end_asked():
            break
    by_index: dict[int, list[Extraction]] = {}
    for wish, row in zip(wishes, rows, strict=False):  # without those that were left out
        by_index.setdefault(wish.index, []).append(row)
    return {one.id: by_index[one.index] for one in canaries}


def cut_short(
    extractor: Extractor, canaries: tuple[Canary, ...], revealed: int, found: Extractions
) -> int:
    """For how many canaries an early end left out searches with characters given."""
    return sum(
        max(row.revealed for row in found[one.id]) < _most_revealed(extractor, one, revealed)
        for one in canaries
    )


def _most_revealed(extractor: Extractor, canary: Canary, revealed: int) -> int:
    """The most characters that a search for this canary is given."""
    most = revealed if canary.role == "canary" else 0
    return min(most, extractor.format.free_characters(canary.index) - 1)


def _wishes(extractor: Extractor, canary: Canary, revealed: int, width: int) -> list[SecretSearch]:
    known = _most_revealed(extractor, canary, revealed)
    return [
        SecretSearch(index=canary.index, revealed=k, width=w)
        for k in range(known + 1)
        for w in (1, width)
    ]


def _searched(extractor: Extractor, wish: SecretSearch, found: scoring.Extraction) -> Extraction:
    left = extractor.format.fills_left(wish.index, wish.revealed)
    return Extraction(
        **found.to_dict(), proven=None, fills_left=left, by_chance=min(1.0, wish.width / left)
    )
