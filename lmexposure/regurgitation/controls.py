"""Controls: likely text is not memorised text.

The same windows are asked of a model that never saw the corpus, which may have another tokenizer,
so it is asked by text; and the model is asked for documents that it never saw.
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
from lmexposure.regurgitation.windows import Windows
from lmexposure.scoring import WindowScores, score_windows
from lmexposure.statistics import FEWEST_BLIND, blind_baseline, shuffled_groups_p

Floats = NDArray[np.float64]


def encoded_by(
    tokenizer: Any, windows: Windows, prefix: int, *, limit: int | None
) -> list[Encoded]:
    """The same prompts and suffixes, as texts, in the tokens of another model.

    Args:
        tokenizer: of that model.
        windows: of the corpus.
        prefix: tokens of a prompt, by the tokenizer of the windows.
        limit: tokens that that model reads at once; the beginnings of prompts are left out.

    Raises:
        ModelError: a suffix alone is longer than that model reads at once, or it has no token.
    """
    pairs = []
    for window in windows.windows:
        document = windows.documents[window.document]
        begin, _ = document.characters(window.place - prefix, window.place)
        pairs.append(
            (document.text[begin : window.start], document.text[window.start : window.stop])
        )
    return _behind(tokenizer, pairs, limit)


def _behind(tokenizer: Any, pairs: Sequence[tuple[str, str]], limit: int | None) -> list[Encoded]:
    """Texts behind their prompts, in tokens."""
    placed = place_documents(tokenizer, [a + b for a, b in pairs], context=None)
    found = []
    for number, ((prompt, _), tokens) in enumerate(zip(pairs, placed, strict=True)):
        ends = tokens.places[:, 1]
        first = tokens.first + int((ends <= len(prompt)).sum())
        ids = tokens.ids
        if limit is not None and len(ids) > limit:
            cut = len(ids) - limit
            if first - cut < 1:
                raise ModelError(
                    f"window {number} has more tokens than the reference model reads at once "
                    f"({limit}); give shorter --suffix-tokens"
                )
            ids, first = ids[cut:], first - cut
        if first >= len(ids) or first < 1:
            raise ModelError(
                f"window {number} has no token that the reference model could be asked for; give "
                "longer --prefix-tokens and --suffix-tokens"
            )
        found.append(Encoded(ids=ids, scored_from=first))
    return found


def reference_runs(
    model: Any, tokenizer: Any, windows: Windows, runs: Sequence[Run | None], limit: int | None
) -> list[int | None]:
    """Characters of each document's run that another model gives in a row, behind the same text.

    Args:
        model: that never saw the corpus.
        tokenizer: its own.
        windows: of the corpus.
        runs: of each document; None: it has none.
        limit: tokens that the model reads at once; a longer run is asked for as far as it goes.
    """
    found: list[int | None] = [None] * len(runs)
    pairs, owners = [], []
    for number, run in enumerate(runs):
        if run is None:
            continue
        document = windows.documents[number]
        begin, _ = document.characters(max(0, run.first - run.prompt), run.first)
        pairs.append((document.text[begin : run.start], document.text[run.start : run.end]))
        owners.append(number)
    if not pairs:
        return found
    placed = place_documents(tokenizer, [a + b for a, b in pairs], context=None)
    asked, kept, spans = [], [], []
    for number, (prompt, _), tokens in zip(owners, pairs, placed, strict=True):
        first = tokens.first + int((tokens.places[:, 1] <= len(prompt)).sum())
        ids = tokens.ids[:limit] if limit is not None else tokens.ids
        if 1 <= first < len(ids):
            asked.append(Encoded(ids=ids, scored_from=first))
            kept.append(number)
            spans.append(tokens.places[first - tokens.first : len(ids) - tokens.first])
        else:
            found[number] = 0
    if asked:
        for number, span, hits in zip(kept, spans, score_windows(model, asked).greedy, strict=True):
            found[number] = _longest_row(hits, span)
    return found


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
                f"fewer than {FEWEST_BLIND} documents in a group: whether they differ without the "
                "model cannot be seen; give more, or documents that were split off at random, with "
                "--random-split"
            )
        elif blind is not None:
            basis = "blind baseline failed"
    if basis is not None:
        p = shuffled_groups_p(own, others, seed=seed)
    return GroupTest(
        p=p,
        basis="random split"
        if random_split
        else (None if basis is None else "blind baseline failed"),
        refused=refused,
        members=len(own),
        held_out=len(others),
        bits_members=float(own.mean()),
        bits_held_out=float(others.mean()),
        blind_auc=None if blind is None else blind.auc,
        blind_p=None if blind is None else blind.p,
    )
