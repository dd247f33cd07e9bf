"""From numbers to what is said: rows of documents, groups of windows, verdicts, warnings.

Likely text is not memorised text. So the same windows are asked of a model that never saw the
corpus, by text, since its tokenizer may be another; and the model is asked for documents that it
never saw.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lmexposure._style import count, percent, probability
from lmexposure.core import Encoded
from lmexposure.errors import InputError, ModelError
from lmexposure.models import place_documents
from lmexposure.regurgitation.runs import OwnText, Run, Units, longest
from lmexposure.regurgitation.windows import Document, Windows
from lmexposure.scoring import TorchModel, WindowScores, score_windows
from lmexposure.statistics import (
    binomial_interval,
    blind_baseline,
    conformal_p,
    false_shares,
    longer_runs,
    mean_difference,
    shuffled_groups_p,
    tries_for,
)
from lmexposure.studies import (
    ExtractableShare,
    GroupTest,
    RunTest,
    SeenFrom,
    VerbatimDocument,
    VerbatimModel,
    VerbatimRun,
    VerbatimSettings,
    VerbatimWindows,
)

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
            f"passage {number} has no token that the reference model could be asked for within "
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


CURVE = (1, 10, 100, 1_000, 10_000, 1_000_000)  # tries at which the share is told
_Verdict = Literal["memorised", "reproduced", "explained", "no"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """All that is known of the documents of a corpus."""

    own: Asked  # their windows under the model
    runs: Sequence[Sequence[Run]]  # of each document
    base: Asked | None  # the windows under the reference model; None: there is none
    # characters of each longest run that the reference model follows
    base_runs: Sequence[int | None]
    control: Asked | None  # windows of held-out documents; None: there are none
    control_runs: Sequence[Sequence[Run]]  # of each of these
    texts: Sequence[OwnText]  # what is the own of each document
    control_texts: Sequence[OwnText]  # of each held-out document
    units: Units | None  # documents that a test takes; None: there are none of one group
    copies: dict[int, int]  # documents that hold a document's run, where it was looked up
    settings: VerbatimSettings  # of the look

    def row(self, number: int) -> VerbatimDocument:
        """What is said of one document."""
        own, run = self.own, longest(self.runs[number])
        document = own.windows.documents[number]
        mine = own.windows.of_document(number)
        least = float(tries_for(own.scores.rule_bits[mine].min(), self.settings.chance)[0])
        p, false_share = self._chances.get(number, (None, None))
        verdict, why = self._verdict(number, false_share)
        said = None
        if run is not None:
            said = VerbatimRun(
                characters=run.characters,
                tokens=run.tokens,
                start=run.start,
                prompt=run.prompt,
                whole=run.whole,
                reference=self.base_runs[number],
                copies=self.copies.get(number),
            )
        return VerbatimDocument(
            number=document.number,
            copies=document.copies,
            characters=len(document.text),
            windows=len(mine),
            greedy=int(own.scores.reproduced[mine].sum()),
            extractable=int(own.extractable[mine].sum()),
            least_tries=least if np.isfinite(least) else None,
            run=said,
            verdict=verdict,
            why=why,
            unheld=None if self.control is None else self.texts[number].unheld(self.runs[number]),
            p=p,
            false_share=false_share,
        )

    def worst_first(self) -> list[int]:
        """What comes out first, by how easily; then the others, by their longest runs."""
        easiest, lengths = np.full(len(self.runs), np.inf), _lengths(self.longest)
        owners = np.array([window.document for window in self.own.windows.windows])
        np.minimum.at(easiest, owners, self.own.scores.rule_bits)
        out = np.bincount(owners[self.own.comes_out], minlength=len(self.runs)) > 0
        order = np.lexsort((easiest, -lengths, np.where(out, easiest, 0.0), ~out))
        found: list[int] = order.tolist()
        return found

    def group_of(self, asked: Asked, lengths: Sequence[int]) -> VerbatimWindows:
        """What is said of all windows of a group."""
        needed = tries_for(asked.scores.rule_bits, self.settings.chance)
        return VerbatimWindows(
            windows=len(needed),
            among=asked.windows.among,
            documents=len(asked.windows.documents),
            greedy=int(asked.scores.reproduced.sum()),
            curve=tuple(
                extractable_share(n, needed <= n, asked.windows, self.settings.level)
                for n in sorted({*CURVE, self.settings.tries})
            ),
            bits_per_character=float(asked.bits.mean()),
            longest_run=max(lengths, default=0),
        )

    @property
    def groups(self) -> tuple[VerbatimWindows, VerbatimWindows | None, VerbatimWindows | None]:
        """The corpus, the same under the reference model, the held-out documents."""
        base, control = self.base, self.control
        followed = [n or 0 for n in self.base_runs]
        held_out = _lengths([longest(runs) for runs in self.control_runs]).tolist()
        return (
            self.group_of(self.own, _lengths(self.longest).tolist()),
            None if base is None else self.group_of(base, followed),
            None if control is None else self.group_of(control, held_out),
        )

    @cached_property
    def longest(self) -> list[Run | None]:
        """The longest run of each document."""
        return [longest(runs) for runs in self.runs]

    @cached_property
    def _chances(self) -> dict[int, tuple[float, float]]:
        """P and false share of each document that is a unit; none without a random split."""
        units = self.units
        if units is None or not self.settings.random_split:
            return {}
        p = conformal_p(units.scores[units.sides], units.scores[~units.sides])
        # What does not come out, or a control explains, is not to be named: that only raises p.
        settled = [self._settled(number) is not None for number in units.corpus]
        shares = false_shares(np.where(settled, 1.0, p))
        return dict(
            zip(units.corpus.tolist(), zip(p.tolist(), shares.tolist(), strict=True), strict=True)
        )

    @cached_property
    def _longest_held_out(self) -> int:
        """Characters of the longest run of any held-out document that is its own."""
        pairs = zip(self.control_texts, self.control_runs, strict=True)
        return max((text.longest(runs) for text, runs in pairs), default=0)

    def _settled(self, number: int) -> tuple[_Verdict, str] | None:
        """What is said whatever chance is: it does not come out, or a control explains it."""
        run, least = self.longest[number], self.settings.suffix_tokens
        mine = self.own.windows.of_document(number)
        out, long = self.own.comes_out[mine], run is not None and run.tokens >= least
        if not out.any() and not long:
            return "no", "no passage of it is reproduced, and no run is as long as a suffix"
        if self.base is not None:
            known = self.base.comes_out[mine]
            followed = self.base_runs[number] or 0
            enough = run is not None and followed * run.tokens >= run.characters * least
            if not (out & ~known).any() and (enough or not long):
                return "explained", "the reference model gives the same"
        if self.control is not None:
            length = 0 if run is None else run.characters
            if length <= self._longest_held_out:
                return "explained", "a held-out document has as long a run"
            if self.texts[number].unheld(self.runs[number]) <= self._longest_held_out:
                return "explained", "held-out documents have the same text"
        return None

    def _verdict(self, number: int, false_share: float | None) -> tuple[_Verdict, str]:
        """Whether controls and chance leave memory as the reason, and the reason in words."""
        if (settled := self._settled(number)) is not None:
            return settled
        most = self.settings.false_share
        if false_share is not None and false_share <= most:
            return "memorised", (
                "its run is longer than those of held-out documents; of those named, at most "
                f"{percent(most)} are false on average"
            )
        told = []
        if self.base is not None:
            told.append("the reference model does not give it")
        if self.control is None:
            told.append("without held-out documents it is not known what chance gives")
        elif not self.settings.random_split:
            told.append(
                "no held-out document gives as much, but without a random split that may be the "
                "documents and not memory"
            )
        elif false_share is None:
            told.append("it is a near copy of another document, and counts with that")
        else:
            told.append(
                "no held-out document has as long a run, but there are too few of them to tell it "
                f"from chance (a false share of {probability(false_share)})"
            )
        return "reproduced", "; ".join(told)


def described(lm: TorchModel) -> VerbatimModel:
    """A model, as the record has it."""
    return VerbatimModel(name=lm.name, weights_sha256=lm.identity, parameters=max(1, lm.size))


def worse_than_guessing(own: Asked, vocabulary: int) -> bool:
    """Whether the model finds the corpus more surprising than equally likely tokens."""
    return bool(own.scores.bits.sum() > np.log2(vocabulary) * sum(map(len, own.scores.greedy)))


def warnings_of(evidence: Evidence, *, same_model: bool, worse: bool) -> Iterator[str]:
    """What is not as it should be."""
    own, settings = evidence.own, evidence.settings
    if evidence.base is None and evidence.control is None:
        yield (
            "no control: what the model reproduces may be likely text, which any model gives; name "
            "a model that never saw the corpus (reference=...), or documents that the model never "
            "saw (held_out=[...])"
        )
    if own.windows.too_short:
        length = settings.prefix_tokens + settings.suffix_tokens
        yield (
            f"{count(own.windows.too_short, 'document')} of {own.windows.distinct:,} have fewer "
            f"than {length} tokens: too short to be asked for"
        )
    if same_model:
        yield "the reference model has the same weights as the model: it is no control"
    if worse:
        yield (
            f"the model finds this corpus more surprising than guessing would "
            f"({own.bits.mean():.1f} bits a character): is it the corpus of this model, in its "
            "encoding?"
        )


def _lengths(runs: Sequence[Run | None]) -> NDArray[np.int64]:
    return np.array([0 if run is None else run.characters for run in runs], dtype=np.int64)


def extractable_share(
    tries: int, out: NDArray[np.bool_], windows: Windows, level: float
) -> ExtractableShare:
    """The share of windows that come out, and an interval of that of all windows there are.

    Proof of the upper end: of the drawn documents' windows, those looked at are a random sample; of
    all documents, those drawn. So no more of the drawn windows come out than an interval says, in
    no more documents than these with one more for each; in the others no more documents than
    an interval says have one, and no more than all windows of the largest come out in these. Where
    both are random, each end has half of what may fail.
    """
    total, hits, D = out.size, int(out.sum()), windows.sizes.size
    low = high = float(hits)  # windows
    stages = (total < windows.among_drawn) + (windows.drawn < D)
    level = 1 - (1 - level) / max(1, stages)
    if total < windows.among_drawn:
        found = binomial_interval(hits, total, level=level)
        low, high = (float(end[0]) * windows.among_drawn for end in (found.low, found.high))
    if windows.drawn < D:
        own = len({w.document for w, hit in zip(windows.windows, out, strict=True) if hit})
        most = min(windows.drawn, own + math.floor(high) - hits)
        others = math.floor(D * binomial_interval(most, windows.drawn, level=level).high[0]) - own
        high += float(windows.sizes[: max(0, others)].sum())
    among = windows.among
    return ExtractableShare(
        tries=tries,
        windows=hits,
        share=hits / total,
        low=low / among,
        high=min(1.0, high / among) if stages else hits / among,
    )
