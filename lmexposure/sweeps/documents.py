"""The corpus of a sweep, with every candidate in it, and what of it one model learns."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

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
from lmexposure.errors import ModelError, ResultError
from lmexposure.models import record_text, tokenizer_named
from lmexposure.studies import SweepPlan

TOKENIZER = "tokenizer"  # the folder of the one of new models


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepCorpus:
    """All documents in order, with every candidate."""

    manifest: Manifest  # of the insertion of all candidates
    merged: Sequence[Any]  # texts, or records of a wrapping, the candidates among them
    separator: str | None  # the text between documents; None for records
    wrapping: Wrapping | None  # how a record becomes a row; None: documents are texts
    files: Sequence[Path]  # that hold them

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
    separator = layout.separator
    return SweepCorpus(
        manifest=manifest,
        merged=merged,
        separator=separator,
        wrapping=manifest.wrapping,
        files=files,
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
