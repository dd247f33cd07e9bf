"""What one model says of every text of a sweep: bits of each token, greedy matches."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.canaries import Canary
from lmexposure.core import Encoded
from lmexposure.models import (
    AnyContext,
    LoadedModel,
    check_tokens,
    encode_documents,
    encode_in_context,
    row_context,
    secret_tokens,
    training_rows,
)
from lmexposure.scoring import details_of_encoded, label_only
from lmexposure.statistics import min_k, min_k_plus_plus
from lmexposure.studies import SweepPlan
from lmexposure.sweeps.documents import SweepCorpus
from lmexposure.sweeps.matrices import Flags

_LONGEST_LEAD = 64  # tokens of another document in front of a canary


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredText:
    """A text as tokens, in the row of the training."""

    encoded: Encoded  # its tokens; those from `encoded.scored_from` on are read
    counted: Flags  # which of these carry loss, shape (T,)
    # which of these hold a character of the secret; of a document all that carry loss
    secret: Flags


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """All texts of a plan as tokens, the same for every model."""

    texts: tuple[ScoredText, ...]  # in the order of `SweepPlan.texts`
    # tokens of other documents that a canary may come after; none of chats
    leads: tuple[list[int], ...]


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
    details = details_of_encoded(loaded.model, [text.encoded for text in rows.texts])
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
        hits = label_only(loaded.model, moved).hits
        found.append([h[t.secret] for h, t in zip(hits, texts, strict=True)])
    return found
