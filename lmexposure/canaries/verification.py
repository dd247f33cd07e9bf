"""What of a manifest is really in a corpus, after whatever was done to it since insertion."""

import glob
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from lmexposure.canaries.corpora.files import (
    LAYOUTS,
    FileCorpus,
    FileLayout,
    corpus_files,
    layout_of,
)
from lmexposure.canaries.corpora.in_memory import are_paths, parts_once
from lmexposure.canaries.fills import Found, Sought, add_fills
from lmexposure.canaries.insertion import Source, strange_fills
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.pipe import is_stream, spooled
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.canaries.sidecars import read_sidecars
from lmexposure.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class ClassCount:
    """How much of one class of canaries is there, in copies and in canaries."""

    format: str  # its name
    repetitions: int  # the class
    canaries: int  # how many it has, without held-out candidates
    expected: int  # copies that insertion made; of a shard, those that it put there
    found: int  # copies that are whole in the corpus
    missing: int  # copies that are expected and not there
    surplus: int  # copies that are there beyond those expected
    fewer: int  # canaries of which some copies are there, and not all that are expected
    lost: int  # canaries that are expected and of which no copy is there
    more: int  # canaries of which more copies are there than expected

    @property
    def changed(self) -> int:
        """Canaries of which more or fewer copies are there than expected."""
        return self.fewer + self.lost + self.more

    @property
    def complete(self) -> int:
        """Canaries with as many copies as expected."""
        return self.canaries - self.changed


@dataclass(frozen=True, kw_only=True)
class CorpusCount:
    """What of a manifest is in a corpus."""

    classes: tuple[ClassCount, ...]  # format by format, in the order of the plan
    # ids of canaries of which there are more or fewer than expected, with (expected, found)
    changed: Mapping[str, tuple[int, int]]
    # ids of controls and held-out candidates that are there, with how often
    uninvited: Mapping[str, int]
    # per format, how many fills are there that the manifest does not have
    strange: Mapping[str, int]
    # per format, where; "3 times (line 4, 9)"
    strange_places: Mapping[str, str] = field(default_factory=dict)
    # ids of canaries that are there cut in two pieces, with how often; they are not counted as
    # found
    cut: Mapping[str, int] = field(default_factory=dict)
    # (number, of how many) where one file of several was counted, and compared with what insertion
    # put into it
    shard: tuple[int, int] | None = None

    @property
    def as_inserted(self) -> bool:
        """Whether every canary is there as often as it was inserted, and no other fill."""
        return not (self.changed or self.uninvited or self.strange)

    def to_dict(self) -> dict[str, Any]:
        """All attributes, and whether all is as inserted; no secrets."""
        return {**asdict(self), "as_inserted": self.as_inserted}


def count_files(
    sources: Sequence[str | Path], manifest: Manifest, *, layout: FileLayout
) -> CorpusCount:
    """Count the fills in files, which need not be those that insertion wrote."""
    paths = corpus_files(sources)
    notes = read_sidecars(paths, manifest)
    found = count_fills_in(FileCorpus(paths, layout).sources, manifest)
    where = "line or row" if len(paths) == 1 else "line or row of some file"
    if notes is None or len(notes) == notes[0].shards:
        return count_of(manifest, found, where=where)
    expected = Counter(occurrence.id for occurrence in notes[0].copied.occurrences)
    counted = count_of(manifest, found, expected=expected, where=where)
    return replace(counted, shard=(notes[0].shard, notes[0].shards))


def count_fills_in(sources: Iterable[Source], manifest: Manifest) -> dict[str, Found]:
    """The fills of a manifest's formats in files, or in what is in memory; places are of a file."""
    formats = manifest.plan.hidden_formats
    found, sought = {name: Found() for name in manifest.hidden_formats}, Sought(formats)
    for source in sources:
        with source.guarded():
            for part in source.parts():
                add_fills(found, formats, part.searched(sought), whole_lines=part.scans_lines)
    return found


def count_of(
    manifest: Manifest,
    found: Mapping[str, Found],
    *,
    expected: Mapping[str, int] | None = None,
    cut: Mapping[str, int] | None = None,
    where: str,
) -> CorpusCount:
    """Compare fills that were found with what a manifest says."""
    entries = manifest.entries
    counts = Counter({entry.id: found[entry.format].counts[entry.index] for entry in entries})
    wanted = Counter(
        {entry.id: entry.inserted for entry in entries} if expected is None else expected
    )
    strange = strange_fills(entries, found, manifest.set_aside)
    return CorpusCount(
        classes=tuple(_class_counts(manifest, wanted, counts)),
        changed={
            entry.id: (wanted[entry.id], counts[entry.id])
            for entry in entries
            if entry.inserted and wanted[entry.id] != counts[entry.id]
        },
        uninvited={
            entry.id: counts[entry.id]
            for entry in entries
            if not entry.inserted and counts[entry.id]
        },
        strange={
            name: sum(found[name].counts[i] for i in those) for name, those in strange.items()
        },
        strange_places={name: found[name].named(those, where) for name, those in strange.items()},
        cut=dict(cut or {}),
    )


def _class_counts(
    manifest: Manifest, wanted: Counter[str], counted: Counter[str]
) -> Iterator[ClassCount]:
    planned = product(manifest.formats, manifest.plan.repetitions)
    witnesses = {(entry.format, entry.repetitions) for entry in manifest.witnesses}
    for name, repetitions in [*planned, *witnesses]:
        of_class = (name, repetitions)
        ids = [
            entry.id
            for entry in (*manifest.canaries, *manifest.witnesses)
            if (entry.format, entry.repetitions) == of_class
        ]
        expected, found = (Counter({i: of[i] for i in ids}) for of in (wanted, counted))
        missing, surplus = expected - found, found - expected
        lost = sum(not found[i] for i in missing)
        yield ClassCount(
            format=name,
            repetitions=repetitions,
            canaries=len(ids),
            expected=expected.total(),
            found=found.total(),
            missing=missing.total(),
            surplus=surplus.total(),
            fewer=len(missing) - lost,
            lost=lost,
            more=len(surplus),
        )


def corpus_count(
    corpus: Any, manifest: Manifest, *, layout: str | None = None, text_field: str | None = None
) -> CorpusCount:
    """What `lmexposure.verify` gives, but for tokenised data sets."""
    if names := file_names(corpus):
        return _count_files([Path(name) for name in names], manifest, layout, text_field)
    if is_stream(corpus):
        # No suffix tells of it: its layout is the manifest's.
        own = manifest.layout if manifest.layout in LAYOUTS else "lines"
        with spooled(corpus) as names:
            return _count_files([Path(names[0])], manifest, layout or own, text_field)
    sources = parts_once(corpus, RowSchema.of(manifest, text_field))
    return count_of(manifest, count_fills_in(sources, manifest), where="record")


def file_names(corpus: Any) -> Sequence[str | Path]:
    """A path or pattern, or several, all of them of files that are there; of texts none."""
    if isinstance(corpus, str | Path):
        return [corpus]
    is_list = isinstance(corpus, list | tuple)
    of_files = is_list and all(
        isinstance(name, Path)
        or are_paths([name])
        or (isinstance(name, str) and glob.glob(name, recursive=True))
        for name in corpus
    )
    return corpus if of_files else []


def _count_files(
    files: Sequence[Path], manifest: Manifest, layout: str | None, text_field: str | None
) -> CorpusCount:
    if len(files) == 1 and files[0].is_dir():
        raise SettingsError(
            f"{files[0]}: a tokenizer goes with the directory of a saved tokenised data set; give "
            "it; else load the data set and give that, or its *.arrow files"
        )
    paths = corpus_files(files)
    known = layout_of(manifest, paths, name=layout, text_field=text_field)
    if layout is None and (known.name, manifest.layout) == ("lines", "paragraphs"):
        known = layout_of(manifest, paths, name="paragraphs")
    return count_files(paths, manifest, layout=known)
