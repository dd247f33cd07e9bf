"""From numbers to what is said: rows of documents, groups of windows, verdicts, warnings."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lmexposure._style import count, percent, probability
from lmexposure.regurgitation.controls import Asked
from lmexposure.regurgitation.runs import OwnText, Run, Units, longest
from lmexposure.regurgitation.windows import Windows
from lmexposure.scoring import TorchModel
from lmexposure.statistics import binomial_interval, conformal_p, false_shares, tries_for
from lmexposure.studies import (
    ExtractableShare,
    VerbatimDocument,
    VerbatimModel,
    VerbatimRun,
    VerbatimSettings,
    VerbatimWindows,
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
            return "no", "no window comes out, and no run is as long as a suffix"
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
            f"than {length} tokens, and so no window"
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
