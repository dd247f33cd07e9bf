"""Deduplication: of documents that are alike, only the first is trained on.

What is there once is memorised far less than what is there often (Lee et al. 2022, "Deduplicating
Training Data Makes Language Models Better", arXiv 2107.06499; Kandpal et al. 2022, arXiv
2202.06539). What it does not hide: a secret that is there once, or in documents that are not alike.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lmexposure.canaries import Wrapping
from lmexposure.errors import ModelError
from lmexposure.models.chat_rows import record_text

_WIDTH = 13  # characters of a shingle
_ALIKE = 0.8  # Jaccard similarity of the shingles of two documents that are nearly the same
_PERMUTATIONS = 128
# Of the hash tables that propose pairs: one pair in 600 of a similarity of .8 is not proposed.
_BANDS, _ROWS = 21, 6


def deduplicated(
    documents: Sequence[Any], canaries: Mapping[str, int], *, wrapping: Wrapping | None, near: bool
) -> tuple[list[Any], dict[str, int]]:
    """The first of all documents that say the same, or nearly the same, in order.

    Nearly the same are two whose 13-grams of characters have a Jaccard similarity of at least .8.
    Such pairs are proposed by MinHash, of which one in 600 is missed, and then compared
    themselves, so that none is dropped that is not alike.
    """
    texts = _texts(documents, wrapping)
    kept = _first_of_each(texts)
    if near:
        kept = _apart(texts, kept)
    chosen = set(kept)
    dropped = [text for number, text in enumerate(texts) if number not in chosen]
    of_canary = dict(
        zip(_texts(_as_documents(canaries, wrapping), wrapping), canaries, strict=True)
    )
    # A document that has a canary amid other text, or as the beginning of another, is not its.
    gone = Counter(of_canary[text] for text in dropped if text in of_canary)
    left = {text: times - gone[text] for text, times in canaries.items() if times > gone[text]}
    return [documents[number] for number in kept], left


def _texts(documents: Sequence[Any], wrapping: Wrapping | None) -> list[str]:
    if wrapping is None:
        return list(documents)
    return [record_text(number, record, wrapping) for number, record in enumerate(documents, 1)]


def _as_documents(canaries: Iterable[str], wrapping: Wrapping | None) -> list[Any]:
    """Canaries as they were inserted."""
    return [text if wrapping is None else wrapping.record(text) for text in canaries]


def _first_of_each(texts: Sequence[str]) -> list[int]:
    """Numbers of the documents that say what none before them does."""
    first: dict[str, int] = {}
    for number, text in enumerate(texts):
        first.setdefault(text, number)
    return list(first.values())


def _apart(texts: Sequence[str], numbers: Sequence[int]) -> list[int]:
    """Those of these documents that are not nearly the same as one that is kept before them."""
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError as failure:
        raise ModelError(
            "deduplicate='near' needs datasketch, which is not installed; install it: pip install "
            "'lmexposure[dedup]', or give deduplicate='exact'"
        ) from failure
    tables = MinHashLSH(num_perm=_PERMUTATIONS, params=(_BANDS, _ROWS))
    kept = []
    for number in numbers:
        shingles = _shingles(texts[number])
        signature = MinHash(num_perm=_PERMUTATIONS)
        signature.update_batch([shingle.encode() for shingle in sorted(shingles)])
        proposed = tables.query(signature)
        if not any(_similarity(shingles, _shingles(texts[other])) >= _ALIKE for other in proposed):
            tables.insert(number, signature)
            kept.append(number)
    return kept


def _shingles(text: str) -> set[str]:
    """All 13-grams of characters; of a shorter text, the text itself."""
    return {text[at : at + _WIDTH] for at in range(max(1, len(text) - _WIDTH + 1))}


def _similarity(some: set[str], others: set[str]) -> float:
    """Jaccard: what both have, of what either has."""
    return len(some & others) / len(some | others)
