"""What an insertion into files would do, before anything is written."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lmexposure.canaries.corpora.files import FileCorpus, FileLayout, corpus_files
from lmexposure.canaries.insertion import Existing, Merge, Placement, draw, scan_corpus
from lmexposure.canaries.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What an insertion would do."""

    documents: int  # in the corpus now
    insertions: int  # documents that would be added
    bytes_before: int  # size of the corpus' content now; of tables, of their texts as JSON
    bytes_added: int  # how much that would grow
    canaries: int  # different canaries, over all formats
    held_out: int  # candidates that their coins leave out, over all formats
    controls: int  # over all formats
    # per format of uniform fills, how many secrets are left for references
    references: Mapping[str, int]
    set_aside: Mapping[str, int]  # per format, how many secrets are in the corpus already
    # insertions, bytes added, canaries and held_out are what coins not yet tossed give on average
    expected: bool = False

    @property
    def share_of_documents(self) -> float:
        """Inserted documents / all documents after insertion."""
        return self.insertions / (self.documents + self.insertions)

    @property
    def share_of_bytes(self) -> float:
        """Inserted bytes / all bytes after insertion."""
        return self.bytes_added / (self.bytes_before + self.bytes_added)

    def to_dict(self) -> dict[str, Any]:
        """All attributes and both shares."""
        shares = {"share_of_documents": self.share_of_documents}
        return {**asdict(self), **shares, "share_of_bytes": self.share_of_bytes}


def preview_insertion(
    sources: Sequence[str | Path], plan: Plan, *, layout: FileLayout, existing: Existing = "refuse"
) -> Preview:
    """What an insertion into these files would do; nothing is written."""
    corpus = FileCorpus(corpus_files(sources), layout)
    layout.schema.check_around(plan.hidden_formats)
    scan = scan_corpus(corpus, plan.hidden_formats)
    entries, set_aside = draw(plan, scan, existing, place=corpus.place)
    merge, before, after = Merge(Placement(entries)), 0, 0
    for source in corpus.sources:
        with source.guarded():
            for part in source.parts(known=True):
                before += len(part.content)
                after += len(merge.part(part).content)
    aside = {form.name: len(set_aside.get(form.name, ())) for form in plan.formats}
    roles = Counter(canary.role for canary in entries)
    return Preview(
        documents=scan.documents,
        insertions=sum(canary.inserted for canary in entries),
        bytes_before=before,
        bytes_added=after - before,
        canaries=roles["canary"],
        held_out=roles["held_out"],
        controls=roles["control"],
        references={
            form.name: form.size - aside[form.name] - plan.secrets_per_format
            for form in plan.formats
            if form.is_uniform
        },
        set_aside=aside,
    )
