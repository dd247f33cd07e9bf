"""Hold out documents to measure utility on; none of them holds a canary."""

from collections.abc import Collection, Sequence

from lmexposure.canaries import (
    derive_seed,
    permutation,
)
from lmexposure.errors import CorpusError

_FEWEST = 10  # with fewer, one held-out document is a large part of the corpus


def split_validation(
    documents: Sequence[str],
    *,
    fraction: float,
    most_characters: int,
    canaries: Collection[str],
    seed: int,
) -> tuple[list[str], list[str]]:
    """Split documents into those to train on and those to validate on, each in corpus order.

    Args:
        documents: the corpus with its canaries.
        fraction: share of the characters to hold out, in (0, 1).
        most_characters: to hold out at most.
        canaries: texts; a document that holds one is always trained on.
        seed: decides which documents are held out.

    Returns:
        (training documents, validation documents).

    Raises:
        CorpusError: fewer than 10 documents hold text and no canary.
    """
    texts = set(canaries)
    eligible = [i for i, text in enumerate(documents) if text.strip() and text not in texts]
    # Of ordinary text alone: a canary more or less must not move what is held out.
    wanted = min(fraction * sum(len(documents[i]) for i in eligible), most_characters)
    drawn = _draw(documents, eligible, wanted, seed) if len(eligible) >= _FEWEST else set()
    held = drawn - _holding(documents, drawn, texts)
    if not held:
        raise CorpusError(
            f"of {len(documents)} documents, {len(eligible)} hold text and are no canary: too few "
            f"to hold some out for validation; give at least {_FEWEST}, for instance by cutting "
            "the corpus into lines"
        )
    return (
        [text for i, text in enumerate(documents) if i not in held],
        [documents[i] for i in sorted(held)],
    )


def _draw(documents: Sequence[str], eligible: Sequence[int], wanted: float, seed: int) -> set[int]:
    """Random documents that together come near the wanted number of characters, at least one."""
    held: set[int] = set()
    characters = 0
    for place in permutation(len(eligible), derive_seed(seed, "validation")):
        length = len(documents[eligible[place]])
        if characters + length <= wanted:
            held.add(eligible[place])
            characters += length
        if characters >= 0.9 * wanted:
            break
    return held or {min(eligible, key=lambda i: len(documents[i]))}


def _holding(documents: Sequence[str], chosen: set[int], canaries: Collection[str]) -> set[int]:
    """Those of the chosen documents in which a canary stands amid other text."""
    joined = "\0".join(documents[i] for i in sorted(chosen))
    present = [text for text in canaries if text in joined]
    return {i for i in chosen if any(text in documents[i] for text in present)}
