"""Controls: likely text is not memorised text.

The same windows are asked of a model that never saw the corpus, which may have another tokenizer,
so it is then asked by text; and the model is asked for documents that it never saw.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lmexposure.errors import InputError, ModelError
from lmexposure.models import Encoded, place_documents
from lmexposure.records import GroupTest
from lmexposure.regurgitation.runs import Run
from lmexposure.regurgitation.windows import Document, Windows
from lmexposure.scoring import WindowScores, score_windows
from lmexposure.statistics import blind_baseline, shuffled_groups_p

Floats = NDArray[np.float64]


def encoded_by(
    tokenizer: Any, windows: Windows, prefix: int, *, limit: int | None
) -> list[Encoded]:
    """The same prompts and suffixes in the tokens of another model.

    Args:
        tokenizer: of that model; None: it has the tokens of the windows, which stay as they are.
        windows: of the corpus.
        prefix: tokens of a prompt, by the tokenizer of the windows.
        limit: tokens that that model reads at once; the beginnings of prompts are left out.

    Raises:
        ModelError: a suffix alone is longer than that model reads at once, or it has no token.
    """
    if tokenizer is None:
        every = windows.encoded
    else:
        spans = [
            _Span.of(windows.documents[w.document], w.place - prefix, w.place, w.start, w.stop)
            for w in windows.windows
        ]
        every = [found.encoded for found in _behind(tokenizer, spans)]
    return [_within(text, limit, number) for number, text in enumerate(every)]


def reference_runs(
    model: Any, tokenizer: Any, windows: Windows, runs: Sequence[Run | None], limit: int | None
) -> list[int | None]:
    """Characters of each document's run that another model gives in a row, behind the same text.

    Args:
        model: that never saw the corpus.
        tokenizer: its own; None: it has the tokens of the windows.
        windows: of the corpus.
        runs: of each document; None: it has none.
        limit: tokens that the model reads at once; a longer run is asked for as far as it goes.
    """
    found: list[int | None] = [None if run is None else 0 for run in runs]
    there = [(n, run, windows.documents[n]) for n, run in enumerate(runs) if run is not None]
    if tokenizer is None:
        every = [
            _Spelled(
                document.encoded(run.first, run.prompt, run.tokens),
                document.placed.places[run.first - document.placed.first :][: run.tokens],
            )
            for _, run, document in there
        ]
    else:
        every = _behind(
            tokenizer,
            [_Span.of(d, r.first - r.prompt, r.first, r.start, r.end) for _, r, d in there],
        )
    asked, kept = [], []
    for (number, _, _), said in zip(there, every, strict=True):
        text = said.encoded
        ids = text.ids[:limit] if limit is not None else text.ids
        if 1 <= text.scored_from < len(ids):
            asked.append(Encoded(ids=ids, scored_from=text.scored_from))
            kept.append((number, said.places[: len(ids) - text.scored_from]))
    if asked:
        for (number, places), hits in zip(kept, score_windows(model, asked).greedy, strict=True):
            found[number] = _longest_row(hits, places)
    return found


@dataclass(frozen=True, slots=True)
class _Span:
    """A prompt, and the text behind it."""

    prompt: str
    text: str

    @classmethod
    def of(cls, document: Document, begin: int, place: int, start: int, stop: int) -> "_Span":
        first, _ = document.characters(max(0, begin), place)
        return cls(document.text[first:start], document.text[start:stop])


@dataclass(frozen=True, slots=True, eq=False)
class _Spelled:
    """A text behind its prompt in tokens, and the characters of each of its own tokens."""

    encoded: Encoded
    places: NDArray[np.int64]


def _behind(tokenizer: Any, spans: Sequence[_Span]) -> list[_Spelled]:
    """Texts behind their prompts, in tokens; one whose first token is in the prompt begins there.

    A token that straddles the two belongs to the text.
    """
    placed = place_documents(tokenizer, [span.prompt + span.text for span in spans], context=None)
    found = []
    for span, tokens in zip(spans, placed, strict=True):
        before = int((tokens.places[:, 1] <= len(span.prompt)).sum())
        text = Encoded(ids=tokens.ids, scored_from=tokens.first + before)
        found.append(_Spelled(text, tokens.places[before:]))
    return found


def _within(text: Encoded, limit: int | None, number: int) -> Encoded:
    """What a model can read at once, without the beginning of a long prompt."""
    cut = 0 if limit is None else max(0, len(text.ids) - limit)
    ids, first = text.ids[cut:], text.scored_from - cut
    if not 1 <= first < len(ids):
        raise ModelError(
            f"window {number} has no token that the reference model could be asked for within "
            f"{'its text' if limit is None else f'the {limit} tokens that it reads at once'}; give "
            "other --prefix-tokens and --suffix-tokens"
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
    """Windows of a group of documents and what a model said of them.

    Attributes:
        windows: of the documents.
        scores: of the windows.
        extractable: whether a window comes out within the tries of the rule, shape (n,).
    """

    windows: Windows
    scores: WindowScores
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
    *,
    base: tuple[Floats, Floats] | None,
    random_split: bool,
    seed: int,
) -> GroupTest:
    """Whether the model knows the corpus better than documents that it never saw.

    Args:
        members: the corpus.
        held_out: the documents that it never saw.
        base: bits a character of both groups under a reference model, for the blind baseline.
        random_split: the documents were split at random, before the training.
        seed: of shuffles and folds.
    """
    own, others = members.bits, held_out.bits
    p = refused = blind = None
    basis: Literal["random split", "blind baseline failed"] | None = None
    if random_split:
        basis = "random split"
    else:
        texts = [[d.text for d in group.windows.documents] for group in (members, held_out)]
        try:
            blind = blind_baseline(*texts, more=base, seed=seed)
        except InputError as failure:
            refused = str(failure)
        if blind is not None and blind.apart:
            refused = (
                "distribution shift: the two groups are told apart without the model, so that a "
                "difference says nothing about memory; give documents that were split off at "
                "random, with --random-split"
            )
        elif blind is not None and not blind.enough:
            refused = (
                f"fewer than {blind.fewest} documents in a group: whether they differ without the "
                "model cannot be seen; give more, or documents that were split off at random, with "
                "--random-split"
            )
        elif blind is not None:
            basis = "blind baseline failed"
    if basis is not None:
        p = shuffled_groups_p(own, others, seed=seed)
    return GroupTest(
        p=p,
        basis=basis,
        refused=refused,
        members=len(own),
        held_out=len(others),
        bits_members=float(own.mean()),
        bits_held_out=float(others.mean()),
        blind_auc=None if blind is None else blind.auc,
        blind_p=None if blind is None else blind.p,
    )
