"""The witness: secrets by which it is seen later that a model read this very corpus.

Low exposure means something only of a model that was trained on the canaries. A base in the place
of its fine-tune, the manifest of another corpus, canaries that deduplication took out: each gives
low exposure too. So insertion adds a few secrets more, repeated so often that a usual training
knows them by heart. They are drawn for this manifest alone, never judged, and in no bound: what is
asked of them is only whether the model knows them better than chance explains.
"""

import string

from lmexposure.canaries.format import Format

# A training first learns which tokens are frequent: of 62 characters each one says more than of ten
# digits, and groups of four become tokens that hardly any text has: they are seen in trainings
# too short for twelve digits (scripts/benchmark witnesses).
_CHARACTERS = {"characters": tuple(string.ascii_letters + string.digits)}
_FOUR = "{choice:characters}" * 4
WITNESS = Format(
    name="witness",
    template=f"witness mark {_FOUR} {_FOUR} {_FOUR}",
    lists=_CHARACTERS,
    description="A nonce by which it is seen whether a model read the corpus; never judged",
)
_MOST = 96  # records: about 1,500 tokens
_SHARE = 8  # at most every eighth of the original documents has one
_FEWEST = 5  # records: fewer teach a model nothing
_COPIES = 12  # of each, before there is another one


def witness_copies(documents: int) -> tuple[int, int]:
    """How many witnesses go into a corpus, and how often each.

    >>> witness_copies(100_000), witness_copies(300), witness_copies(60), witness_copies(39)
    ((2, 48), (2, 18), (1, 7), (0, 0))
    """
    records = min(_MOST, documents // _SHARE)
    if records < _FEWEST:
        return 0, 0
    # Copies of one teach more than as many of several, and few sum with less noise.
    number = min(2, max(1, records // _COPIES))
    return number, records // number
