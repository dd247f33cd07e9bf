"""Which canaries stand before which document: a function of the plan and the document's number.

No part of a corpus needs to know another: whoever has the manifest and a document's number, from 0
in the whole corpus, knows what goes before it. So shards, streams and engines insert alike.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

from lmexposure.canaries.insertion import schedule
from lmexposure.canaries.manifest import CorpusRecord, Layout, Manifest
from lmexposure.canaries.plan import Canary, Plan, draw


class Placement:
    """Where the canaries of a manifest stand.

    Args:
        canaries: of a manifest; held-out candidates and controls stand nowhere.
    """

    def __init__(self, canaries: Iterable[Canary]) -> None:
        self._schedule = schedule(canaries)

    @cached_property
    def _before(self) -> Mapping[int, tuple[Canary, ...]]:
        found: dict[int, list[Canary]] = {}
        for place, canary in self._schedule:
            found.setdefault(place, []).append(canary)
        return {place: tuple(those) for place, those in found.items()}

    def before(self, document: int) -> tuple[Canary, ...]:
        """The canaries that stand before this document, in their order."""
        return self._before.get(document, ())

    def within(self, start: int, stop: int) -> list[tuple[int, Canary]]:
        """(document, canary before it) for the documents from `start` up to `stop`, in order."""
        first, last = (bisect_left(self._schedule, n, key=lambda p: p[0]) for n in (start, stop))
        return self._schedule[first:last]


def manifest_without_corpus(
    plan: Plan,
    *,
    documents: int,
    layout: Layout,
    text_field: str | None = None,
    constant_fields: Collection[str] = (),
    separator: str | None = None,
    set_aside: Mapping[str, Collection[int]] | None = None,
) -> Manifest:
    """The manifest of an insertion into a corpus that nobody has read as a whole.

    Its hashes are empty: the same plan and number of documents give the same manifest, however the
    corpus is cut into parts.

    Args:
        plan: what to insert.
        documents: how many the whole corpus has.
        layout: as in `CorpusRecord`.
        text_field: the field that holds the text, where documents have fields.
        constant_fields: as in `CorpusRecord`.
        separator: the text between documents, which a canary is scored after; None: BOS, else EOS.
        set_aside: per format, secrets that stand in the corpus already.

    Raises:
        PlanError: too few documents or secrets.
    """
    aside = {name: tuple(sorted(indices)) for name, indices in (set_aside or {}).items()}
    record = CorpusRecord(
        name="",
        layout=layout,
        text_field=text_field,
        constant_fields=tuple(sorted(constant_fields)),
        separator=separator,
        documents=documents,
        sha256="",
        sha256_inserted="",
        verified=True,
    )
    canaries = draw(plan, documents=documents, set_aside=aside)
    return Manifest(plan=plan, corpus=record, entries=canaries, set_aside=aside)
