"""Free extraction: texts that a model makes up, and what of a corpus is in them.

An attacker who knows no beginning of a document asks for anything at all, many times. What comes
out is looked up in the whole corpus; near duplicates of a passage count as one; and how often each
came out says how many are left.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lmexposure.errors import SettingsError
from lmexposure.regurgitation.corpus_index import Match
from lmexposure.scoring import DecodingRule, WholeSteps
from lmexposure.statistics import unseen_passages
from lmexposure.studies import FoundPassage, FreeExtraction

_SAME = 90.0  # likeness in percent from which two passages count as one
_AT_ONCE = 256  # texts that are sampled side by side


@dataclass(frozen=True, kw_only=True)
class Passages:
    """Passages of a corpus that samples hold."""

    rows: Sequence[FoundPassage]  # longest first
    texts: Sequence[str]  # of these
    with_match: int  # samples that hold one


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
        progress(len(found))
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


def _shares(logits: torch.Tensor, rule: DecodingRule) -> np.ndarray[Any, np.dtype[np.float64]]:
    shares: np.ndarray[Any, np.dtype[np.float64]] = (
        rule.log_shares(logits).double().exp().cpu().numpy()
    )
    return shares


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
