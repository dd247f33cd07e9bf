"""Inserted means inserted: every canary as often as planned, and no other fill at all."""

from collections.abc import Collection, Mapping, Sequence

from lmexposure.canaries.plan import Canary
from lmexposure.canaries.search import Found
from lmexposure.errors import CorpusError


def check_inserted(
    canaries: Sequence[Canary],
    fills: Mapping[str, Found],
    set_aside: Mapping[str, Collection[int]],
) -> None:
    """Compare what stands in a corpus with what should.

    Raises:
        CorpusError: a canary stands too rarely or too often (its id), a control or a held-out
            candidate stands there, or a fill that nobody planned (its places).
    """
    for canary in canaries:
        count = fills[canary.format].counts[canary.index]
        if count != canary.inserted:
            raise CorpusError(
                f"{canary.id} stands {count} times in the corpus instead of {canary.inserted}; "
                "insert again into the original corpus"
            )
    for name, found in fills.items():
        planned = {one.index for one in canaries if one.format == name}
        strange = found.counts.keys() - planned - set(set_aside.get(name, ()))
        if strange:
            raise CorpusError(
                f"fills of format {name!r} that are not of the manifest stand in the corpus "
                f"{found.named(strange, 'line or record')}; insert again into the original corpus"
            )
