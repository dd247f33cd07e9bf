"""The corpus of a sweep, with every candidate; what of it one model learns, and says of it."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.canaries import (
    Canary,
    FileCorpus,
    Manifest,
    Placement,
    Wrapping,
    copies_of,
    in_insertion_order,
    layout_of,
    read_records,
)
from lmexposure.core import Encoded
from lmexposure.errors import ModelError, ResultError
from lmexposure.models import (
    AnyContext,
    LoadedModel,
    check_tokens,
    encode_documents,
    encode_in_context,
    record_text,
    row_context,
    secret_tokens,
    tokenizer_named,
    training_rows,
)
from lmexposure.scoring import details_of_encoded, label_only
from lmexposure.statistics import min_k, min_k_plus_plus
from lmexposure.studies import SweepPlan
from lmexposure.sweeps.matrices import Flags

TOKENIZER = "tokenizer"  # the folder of the one of new models


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepCorpus:
    """All documents in order, with every candidate."""

    manifest: Manifest  # of the insertion of all candidates
    merged: Sequence[Any]  # texts, or records of a wrapping, the candidates among them
    separator: str | None  # the text between documents; None for records
    wrapping: Wrapping | None  # how a record becomes a row; None: documents are texts

    @cached_property
    def inserted(self) -> Mapping[int, Canary]:
        """Which of the merged documents are candidates, by their numbers there."""
        return dict(Placement(self.manifest.entries).inserted())

    @cached_property
    def documents(self) -> list[Any]:
        """The documents without the candidates: those of the corpus before insertion."""
        return [d for number, d in enumerate(self.merged) if number not in self.inserted]

    @cached_property
    def texts(self) -> list[str]:
        """What each of `documents` says; records as one text."""
        if self.wrapping is None:
            return self.documents
        return [
            record_text(number, record, self.wrapping)
            for number, record in enumerate(self.documents, 1)
        ]

    @cached_property
    def once(self) -> frozenset[int]:
        """Numbers of the documents that say something, and what no other says."""
        counts = Counter(self.texts)
        return frozenset(i for i, t in enumerate(self.texts) if t.strip() and counts[t] == 1)

    def of_model(self, plan: SweepPlan, number: int) -> tuple[list[Any], dict[str, int]]:
        """What one model learns: documents in order, and text of each canary -> its repetitions."""
        coins = plan.coins[number]
        ids = [text.id for text in plan.inserted]
        inside = {name for name, coin in zip(ids, coins, strict=False) if coin == "1"}
        tossed = [t.document for t in plan.scored if t.document is not None] + list(plan.varied)
        out = {d for d, coin in zip(tossed, coins[len(ids) :], strict=True) if coin == "0"}
        out |= set(plan.validation)
        learned = list(self._kept(inside, out))
        canaries = {c.text: c.repetitions for c in self.manifest.entries if c.id in inside}
        return learned, canaries

    def _kept(self, inside: set[str], out: set[int]) -> Iterator[Any]:
        document = 0
        for number, content in enumerate(self.merged):
            canary = self.inserted.get(number)
            if canary is not None:
                if canary.id in inside:
                    yield content
                continue
            if document not in out:
                yield content
            document += 1


def read_corpus(out: Path, manifest: Manifest) -> SweepCorpus:
    """The copy that insertion left in the directory of a sweep."""
    files = in_insertion_order(copies_of((), out), manifest)
    if not files:
        raise ResultError(f"{out / 'corpus'} is missing; prepare the sweep again elsewhere")
    layout = layout_of(manifest, files, name=manifest.layout)
    if FileCorpus(files, layout).sha256() != manifest.corpus.sha256_inserted:
        raise ResultError(
            f"{out / 'corpus'} is not what the insertion wrote: it was edited or damaged; prepare "
            "the sweep again in another directory"
        )
    merged: list[Any]
    if manifest.wrapping is None:
        merged = [text for path in files for text in layout.documents(path)]
    else:
        merged = list(read_records(files, layout=layout.name))
    return SweepCorpus(
        manifest=manifest,
        merged=merged,
        separator=layout.separator,
        wrapping=manifest.wrapping,
    )


def saved_tokenizer(out: Path) -> Any:
    """The tokenizer of new models, as `prepare` wrote it."""
    path = out / TOKENIZER
    wrong = f"{path} is missing or damaged; put it back, or prepare another sweep"
    if not path.is_dir():  # else its path would be looked up as a name on the hub
        raise ResultError(wrong)
    try:
        return tokenizer_named(path, offline=True)
    except ModelError as failure:
        raise ResultError(wrong) from failure


_LONGEST_LEAD = 64  # tokens of another document in front of a canary


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredText:
    """A text as tokens, in the row of the training."""

    encoded: Encoded  # its tokens; those from `encoded.scored_from` on are read
    counted: Flags  # which of these carry loss, shape (T,)
    secret: Flags  # which of these hold a character of the secret; of a document all with loss


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """All texts of a plan as tokens, the same for every model."""

    texts: tuple[ScoredText, ...]  # in the order of `SweepPlan.texts`
    leads: tuple[list[int], ...]  # of other documents that a canary may come after; none of chats


def rows_of(tokenizer: Any, corpus: SweepCorpus, plan: SweepPlan) -> Rows:
    """Encode all texts of a plan."""
    check_tokens(tokenizer, corpus.manifest)
    entries = {entry.id: entry for entry in corpus.manifest.entries}
    canaries = [entries[text.id] for text in plan.inserted]
    numbers = [text.document for text in plan.texts if text.document is not None]
    leads: tuple[list[int], ...] = ()
    if corpus.wrapping is None and plan.contexts:
        others = [corpus.documents[number] for number in plan.contexts]
        encoded = encode_documents(tokenizer, others, context=corpus.separator)
        leads = tuple(ids[:_LONGEST_LEAD] for ids in encoded)
    return Rows(
        texts=(*_canaries(tokenizer, corpus, canaries), *_documents(tokenizer, corpus, numbers)),
        leads=leads,
    )


def _canaries(tokenizer: Any, corpus: SweepCorpus, canaries: Sequence[Canary]) -> list[ScoredText]:
    """Format by format, in the order given."""
    contexts = _contexts(tokenizer, corpus, canaries)
    found: dict[str, ScoredText] = {}
    for name, context in contexts.items():
        own = [canary for canary in canaries if canary.format == name]
        encoded = encode_in_context(tokenizer, [c.text for c in own], context=context)
        for canary, tokens in zip(own, encoded, strict=True):
            counted = np.ones(len(tokens.ids) - tokens.scored_from, dtype=bool)
            mask = corpus.manifest.formats[name].free_mask(canary.index)
            secret = secret_tokens(tokenizer, canary.text, mask, tokens, context=context)
            found[canary.id] = ScoredText(encoded=tokens, counted=counted, secret=secret)
    return [found[canary.id] for canary in canaries]


def _contexts(
    tokenizer: Any, corpus: SweepCorpus, canaries: Sequence[Canary]
) -> Mapping[str, AnyContext]:
    """What is around the canaries of each format, in the rows of the training."""
    names = list(dict.fromkeys(canary.format for canary in canaries))
    if corpus.wrapping is None:
        return dict.fromkeys(names, corpus.separator)
    wrapping = corpus.wrapping
    return {
        name: row_context(tokenizer, wrapping, [c.text for c in canaries if c.format == name])
        for name in names
    }


def _documents(tokenizer: Any, corpus: SweepCorpus, numbers: Sequence[int]) -> list[ScoredText]:
    """Ordinary documents as the training has them, each by itself."""
    chosen = [corpus.documents[number] for number in numbers]
    if not chosen:
        return []
    if corpus.wrapping is None:
        encoded = encode_in_context(tokenizer, chosen, context=corpus.separator)
        masks = [np.ones(len(e.ids) - e.scored_from, dtype=bool) for e in encoded]
    else:
        rows = list(training_rows(tokenizer, chosen, corpus.wrapping))
        encoded = [Encoded(ids=row.ids, scored_from=1) for row in rows]
        masks = [row.carried[1:] for row in rows]
    return [
        ScoredText(encoded=tokens, counted=mask, secret=mask)
        for tokens, mask in zip(encoded, masks, strict=True)
    ]


def scores_of(loaded: LoadedModel, rows: Rows, *, canaries: int) -> dict[str, NDArray[Any]]:
    """Everything that scores.npz keeps of one model."""
    details = details_of_encoded(loaded, [text.encoded for text in rows.texts])
    counted = [text.counted for text in rows.texts]
    bits, mean, spread = (
        [values[mask] for values, mask in zip(column, counted, strict=True)]
        for column in (details.bits, details.mean_bits, details.std_bits)
    )
    secret = [text.secret[text.counted] for text in rows.texts]
    own = [
        top[mask] for top, mask in zip(details.top1, (t.secret for t in rows.texts), strict=True)
    ]
    matches = [own[:canaries], *_elsewhere(loaded, rows, canaries)]
    by_canary = [np.concatenate(found) for found in zip(*matches, strict=True)]
    return {
        "lengths": np.array([len(values) for values in bits], dtype=np.int64),
        "bits": np.concatenate(bits),
        "secret": np.concatenate(secret),
        "min_k": min_k(bits),
        "min_k_plus_plus": min_k_plus_plus(bits, mean, spread),
        "match_lengths": np.array([len(found) for found in by_canary], dtype=np.int64),
        "matches": np.concatenate(by_canary) if by_canary else np.empty(0, dtype=bool),
    }


def _elsewhere(loaded: LoadedModel, rows: Rows, canaries: int) -> list[list[Flags]]:
    """Greedy matches of each canary's secret behind other documents, lead by lead."""
    texts = rows.texts[:canaries]
    if not texts:
        return []
    window = loaded.window or sys.maxsize
    room = max(window - max(len(text.encoded.ids) for text in texts), 0)
    found = []
    for lead in (lead[:room] for lead in rows.leads):
        moved = [
            Encoded(ids=lead + text.encoded.ids, scored_from=len(lead) + text.encoded.scored_from)
            for text in texts
        ]
        hits = label_only(loaded, moved).hits
        found.append([h[t.secret] for h, t in zip(hits, texts, strict=True)])
    return found
