"""Free extraction: texts that a model makes up, and what of a corpus is in them.

An attacker who knows no beginning of a document asks for anything at all, many times. What comes
out is looked up in the whole corpus; near duplicates of a passage count as one; and how often each
came out says how many are left.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmexposure.errors import SettingsError
from lmexposure.regurgitation.corpus_index import Match
from lmexposure.statistics import unseen_passages
from lmexposure.studies import FoundPassage, FreeExtraction

_SAME = 90.0  # likeness in percent from which two passages count as one


@dataclass(frozen=True, kw_only=True)
class Passages:
    """Passages of a corpus that samples hold."""

    rows: Sequence[FoundPassage]  # longest first
    texts: Sequence[str]  # of these
    with_match: int  # samples that hold one


def fold(texts: Sequence[str], matches: Sequence[Sequence[Match]]) -> Passages:
    """Matches of samples as passages: near duplicates, and parts of one place, count once."""
    ratio = _likeness()
    every = [
        (match, text[match.start : match.stop], number)
        for number, (text, own) in enumerate(zip(texts, matches, strict=True))
        for match in own
    ]
    every.sort(key=lambda found: (-found[0].characters, found[0].document, found[0].place))
    kept: list[tuple[Match, str]] = []
    holders: list[set[int]] = []
    for match, said, sample in every:
        for known, (longer, text) in enumerate(kept):
            if _overlap(longer, match) or said in text or ratio(said, text) >= _SAME:
                holders[known].add(sample)
                break
        else:
            kept.append((match, said))
            holders.append({sample})
    rows = [
        FoundPassage(
            samples=len(own),
            characters=match.characters,
            document=match.document,
            start=match.place,
            copies=match.copies,
        )
        for (match, _), own in zip(kept, holders, strict=True)
    ]
    return Passages(
        rows=rows, texts=[text for _, text in kept], with_match=len(set().union(*holders))
    )


def free_record(
    texts: Sequence[str], found: Passages, *, tokens: int, least: int, level: float
) -> FreeExtraction:
    """What sampling brought out, and what it left."""
    unseen = unseen_passages([row.samples for row in found.rows], len(texts), level=level)
    return FreeExtraction(
        samples=len(texts),
        tokens=tokens,
        characters=sum(map(len, texts)),
        least_match=least,
        with_match=found.with_match,
        longest=max((row.characters for row in found.rows), default=0),
        passages=tuple(found.rows),
        unseen=unseen.unseen,
        unseen_low=unseen.low,
        unseen_high=unseen.high,
        next_new=unseen.next_new,
        assumes=unseen.assumes,
    )


def _overlap(longer: Match, match: Match) -> bool:
    """Whether the greater part of the shorter match is at the place of the longer one."""
    if longer.document != match.document:
        return False
    ends = min(longer.place + longer.characters, match.place + match.characters)
    return 2 * (ends - max(longer.place, match.place)) > match.characters


def _likeness() -> Callable[[str, str], float]:
    try:
        from rapidfuzz.fuzz import ratio
    except ImportError as failure:
        raise SettingsError(
            "folding near duplicates needs rapidfuzz; install it with "
            'pip install "lmexposure[verbatim]", or leave sampling out with samples=0'
        ) from failure
    return ratio
