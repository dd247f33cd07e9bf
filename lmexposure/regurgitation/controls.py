"""Controls: likely text is not memorised text.

The same windows are asked of a model that never saw the corpus, which may have another tokenizer,
so it is then asked by text; and the model is asked for documents that it never saw.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.core import Encoded
from lmexposure.errors import InputError, ModelError
from lmexposure.models import place_documents
from lmexposure.regurgitation.runs import Run, Units
from lmexposure.regurgitation.windows import Document, Windows
from lmexposure.scoring import WindowScores, score_windows
from lmexposure.statistics import blind_baseline, longer_runs, mean_difference, shuffled_groups_p
from lmexposure.studies import GroupTest, RunTest, SeenFrom, VerbatimSettings

Floats = NDArray[np.float64]


def encoded_by(
    tokenizer: Any, windows: Windows, prefix: int, *, limit: int | None
) -> list[Encoded]:
    """The same prompts and suffixes in the tokens of another model."""
    if tokenizer is None:
        every = windows.encoded
    else:
        spans = [
            _span(windows.documents[w.document], w.place - prefix, w.place, w.start, w.stop)
            for w in windows.windows
        ]
        every = [encoded for encoded, _ in _behind(tokenizer, spans)]
    return [_within(text, limit, number) for number, text in enumerate(every)]


def reference_runs(
    model: Any, tokenizer: Any, windows: Windows, runs: Sequence[Run | None], limit: int | None
) -> list[int | None]:
    """Characters of each document's run that another model gives in a row, behind the same text."""
    found: list[int | None] = [None if run is None else 0 for run in runs]
    there = [(n, run, windows.documents[n]) for n, run in enumerate(runs) if run is not None]
    if tokenizer is None:
        every = [
            (
                document.encoded(run.first, run.prompt, run.tokens),
                document.placed.places[run.first - document.placed.first :][: run.tokens],
            )
            for _, run, document in there
        ]
    else:
        spans = [_span(d, r.first - r.prompt, r.first, r.start, r.end) for _, r, d in there]
        every = _behind(tokenizer, spans)
    asked, kept = [], []
    for (number, _, _), (text, places) in zip(there, every, strict=True):
        ids = text.ids[:limit] if limit is not None else text.ids
        if 1 <= text.scored_from < len(ids):
            asked.append(Encoded(ids=ids, scored_from=text.scored_from))
            kept.append((number, places[: len(ids) - text.scored_from]))
    if asked:
        for (number, places), hits in zip(kept, score_windows(model, asked).greedy, strict=True):
            found[number] = _longest_row(hits, places)
    return found


def _span(document: Document, begin: int, place: int, start: int, stop: int) -> tuple[str, str]:
    """A prompt, and the text behind it."""
    first, _ = document.characters(max(0, begin), place)
    return document.text[first:start], document.text[start:stop]


def _behind(
    tokenizer: Any, spans: Sequence[tuple[str, str]]
) -> list[tuple[Encoded, NDArray[np.int64]]]:
    """Texts behind their prompts in tokens, which they may share, and their own characters."""
    placed = place_documents(tokenizer, list(map("".join, spans)), context=None)
    found = []
    for (prompt, _), tokens in zip(spans, placed, strict=True):
        before = int((tokens.places[:, 1] <= len(prompt)).sum())
        text = Encoded(ids=tokens.ids, scored_from=tokens.first + before)
        found.append((text, tokens.places[before:]))
    return found


def _within(text: Encoded, limit: int | None, number: int) -> Encoded:
    """What a model can read at once, without the beginning of a long prompt."""
    cut = 0 if limit is None else max(0, len(text.ids) - limit)
    ids, first = text.ids[cut:], text.scored_from - cut
    if not 1 <= first < len(ids):
        raise ModelError(
            f"window {number} has no token that the reference model could be asked for within "
            f"{'its text' if limit is None else f'the {limit} tokens that it reads at once'}; give "
            "other lengths (prefix_tokens=..., suffix_tokens=...)"
        )
    return Encoded(ids=ids, scored_from=first)


def _longest_row(hits: NDArray[np.bool_], places: NDArray[np.int64]) -> int:
    """Characters of the longest row of first choices."""
    best = begin = 0
    going = False
    for hit, (start, stop) in zip(hits.tolist(), places.tolist(), strict=True):
        if not hit:
            going = False
            continue
        begin, going = (begin if going else start), True
        best = max(best, stop - begin)
    return best


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Windows of a group of documents and what a model said of them."""

    windows: Windows  # of the documents
    scores: WindowScores  # of the windows
    # whether a window comes out within the tries of the rule, shape (n,)
    extractable: NDArray[np.bool_]

    @property
    def bits(self) -> Floats:
        """Bits a character of each document's suffixes, pooled, shape (D,)."""
        owners = np.array([window.document for window in self.windows.windows])
        sizes = np.array([max(1, w.stop - w.start) for w in self.windows.windows], dtype=float)
        D = len(self.windows.documents)
        pooled: Floats = np.bincount(owners, self.scores.bits, D) / np.bincount(owners, sizes, D)
        return pooled

    @property
    def comes_out(self) -> NDArray[np.bool_]:
        """Whether a window comes out greedily or within the tries, shape (n,)."""
        flags: NDArray[np.bool_] = self.scores.reproduced | self.extractable
        return flags


def group_test(
    members: Asked,
    held_out: Asked,
    units: Units | None,
    *,
    base: tuple[Floats, Floats] | None,
    settings: VerbatimSettings,
) -> GroupTest | None:
    """Whether the model is less surprised by the corpus than by documents that it never saw."""
    if units is None:
        return None
    chosen = units.corpus, units.held_out
    own, others = (g.bits[kept] for g, kept in zip((members, held_out), chosen, strict=True))
    first, second = own, others
    if base is not None:
        first, second = (
            x - bits[kept] for x, bits, kept in zip((own, others), base, chosen, strict=True)
        )
    apart = None
    if min(first.size, second.size) > 1:
        apart = mean_difference(first, second, level=settings.level)
    p = blind = None
    if settings.random_split:
        strata = units.strata[units.sides], units.strata[~units.sides]
        p = shuffled_groups_p(first, second, strata=strata, seed=settings.seed)
    else:  # no p: a classifier that fails to tell groups apart is no proof that a model would
        texts = [[d.text for d in group.windows.documents] for group in (members, held_out)]
        with suppress(InputError):  # too few documents
            blind = blind_baseline(*texts, seed=settings.seed)
    return GroupTest(
        p=p,
        members=first.size,
        held_out=second.size,
        bits_members=float(own.mean()),
        bits_held_out=float(others.mean()),
        difference=float(first.mean() - second.mean()),
        low=None if apart is None else apart.low,
        high=None if apart is None else apart.high,
        beside_reference=base is not None,
        assumes=_assumed(settings, base is not None),
        blind_auc=None if blind is None else blind.auc,
        blind_p=None if blind is None else blind.p,
    )


def _assumed(settings: VerbatimSettings, beside: bool) -> str:
    if settings.random_split:
        return "the documents were split at random before the training, near copies to one side"
    if beside:
        return (
            "without the training the model would differ between the two groups by as much as the "
            "reference model does"
        )
    return "without the training the model would find both groups equally surprising"


def run_test(units: Units | None, near_copies: int, settings: VerbatimSettings) -> RunTest:
    """Whether documents of the corpus come out longer than held-out ones, of a random split."""
    found = None
    if units is not None:
        found = longer_runs(units.scores, units.sides, units.strata, seed=settings.seed)
    return RunTest(
        p=None if found is None else found.p,
        p_rank_sum=None if found is None else found.p_rank_sum,
        p_tail=None if found is None else found.p_tail,
        p_mean=None if found is None else found.p_mean,
        documents=0 if found is None else found.first,
        held_out=0 if found is None else found.second,
        units=0 if units is None else units.corpus.size,
        near_copies=near_copies,
        seen=() if found is None else tuple(SeenFrom(documents=k, p=p) for k, p in found.seen),
        named_at=settings.false_share,
    )
