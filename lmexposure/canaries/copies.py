"""Copies of corpus files with canaries in them, in a directory that a second call finds whole."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lmexposure._files import (
    atomic_directory,
    is_utf8,
    mode_like,
    new_file,
    only_writer,
    set_aside_in,
    sha256_file,
)
from lmexposure._integrity import say_rebuilt
from lmexposure._style import visible
from lmexposure._validate import flag, integer, of_type
from lmexposure._written import refuse_foreign
from lmexposure.canaries.corpora.files import (
    SIDECAR_SUFFIX,
    SIDECARS,
    Copied,
    FileCorpus,
    FileLayout,
    Sidecar,
    corpus_files,
    layout_for,
    read_sidecars,
    refuse_sidecars,
)
from lmexposure.canaries.insertion import (
    Cut,
    Existing,
    Hashes,
    Merge,
    Part,
    Placement,
    Scan,
    Verification,
    Written,
    draw,
    scan_corpus,
)
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Plan
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.canaries.wrapping import Wrapping
from lmexposure.errors import CorpusError, ResultError

Files = str | Path | Sequence[str | Path]
Planned = Callable[[Manifest | None], Plan]


@dataclass(frozen=True)
class Reading:
    """How a corpus is read, and what is searched for in it; see `insert_files`."""

    layout: str | None = None
    text_field: str = "text"
    fields: Mapping[str, Any] | None = None
    existing: Existing = "refuse"
    total: int | None = None
    verify: bool = True
    # where in a record a canary goes, also as a manifest says it, with what is known of the
    # training's tokenizer; None: documents are texts
    wrapping: Wrapping | None = None

    @property
    def schema(self) -> RowSchema | None:
        """What a record is, where canaries go into chats."""
        if self.wrapping is None or getattr(self.wrapping, "form", None) == "text":
            return None
        return RowSchema.around(self.wrapping, self.fields)

    def layout_of(self, paths: Sequence[Path]) -> FileLayout:
        """What a document is in these files."""
        options: dict[str, Any] = {"fields": self.fields, "schema": self.schema}
        return layout_for(paths, self.layout, self.text_field, **options)


def insert_files(  # noqa: PLR0913 (a public door: each is an option of an insertion)
    sources: Files,
    out: str | Path,
    plan: Plan | None = None,
    *,
    layout: str | None = None,
    text_field: str = "text",
    wrapping: Wrapping | None = None,
    fields: Mapping[str, Any] | None = None,
    existing: Existing = "refuse",
    total: int | None = None,
    verify: bool = True,
    **plan_fields: Any,
) -> Manifest:
    """Write copies of files with canaries in them, and the manifest; skipped when that is done.

    The copies appear whole or not at all, so that a killed call is made good by the same one; so
    are copies that are not what insertion would write now: those are kept in damaged-N/corpus. What
    was drawn for `out` once is not drawn again: give the fields of a plan, or its seed, for a new
    `Plan` without one has another. Cut in other places between documents, the same corpus gets the
    same canaries before the same documents.

    Args:
        sources: a file, several, or patterns such as "data/*.jsonl.gz": text, JSONL or Parquet, and
            packed by gzip or zstd; read twice, in constant memory.
        out: a directory; gets corpus/NAME of each file, corpus/.sidecars/NAME.canaries.json, which
            says which canaries it holds, and manifest.json (mode 0600).
        plan: what to insert; or give its fields: `formats=["pin"], repetitions=(1, 16)`.
        layout: what a document is: "lines", "paragraphs", "jsonl" or "parquet"; None: by the
            suffix.
        text_field: where documents have fields, the one that holds the text.
        wrapping: where in a record a canary goes, as a turn of a chat or behind a prompt; also as
            a manifest says it, with the training's chat template. `recognise` names the form.
        fields: for these, constants for other fields of inserted documents; the rest is copied from
            the document that follows. Copies with other constants are refused where they are JSONL,
            and else written again.
        existing: secrets of a format that the corpus holds already: "refuse" or "set_aside".
        total: how many documents there must be; None: as many as there are.
        verify: search for such secrets, hash, and check what was written.
        plan_fields: of `Plan`, in place of `plan`.

    Returns:
        the manifest that was written; it holds the secrets.

    Raises:
        CorpusError, FormatError, PlanError: the corpus or the plan cannot be used.
        ResultError: `out` holds the manifest of another plan or corpus, or another process is at
            work there.
        FileError: the disk refused; nothing half-written is left.
    """
    of_type("out", out, (str, Path), "out, a directory", error=CorpusError)
    flag("verify", verify, error=CorpusError)
    if total is not None:
        integer("total", total, low=1, error=CorpusError)
    chosen = Plan.of(plan, plan_fields)
    given = [name for name, value in plan_fields.items() if value is not None]

    def planned(before: Manifest | None) -> Plan:
        if plan is not None or before is None:
            return chosen
        return chosen.seeded_like(before.plan, given=given)

    reading = Reading(layout, text_field, fields, existing, total, verify, wrapping)
    return insert_copies(listed_files(sources), Path(out), planned, reading)


def insert_copies(
    sources: Sequence[str | Path], out: Path, planned: Planned, reading: Reading
) -> Manifest:
    """What `insert_files` does, for a plan that depends on the manifest that is there, if any."""
    refuse_sidecars(sources)
    with only_writer(out):
        record = out / "manifest.json"
        before = Manifest.read(record) if record.exists() else None
        plan = planned(before)
        if before is not None and _is_done(sources, out, before, plan, reading):
            return before
        paths = corpus_files(sources)
        corpus = FileCorpus(paths, reading.layout_of(paths))
        _check_places(paths, out / "corpus", written=before is not None)
        refuse_foreign(out, ["corpus"])
        return _insert(corpus, out, plan, reading, before)


def listed_files(sources: Files) -> list[str | Path]:
    """Names of files and patterns as a list; anything else is refused."""
    if isinstance(sources, str | Path):
        return [sources]
    of_type("sources", sources, Sequence, "a path, or a list of paths", error=CorpusError)
    wrong = [name for name in sources if not isinstance(name, str | Path)]
    if wrong or not sources:
        what = f"holds one of type {type(wrong[0]).__name__}" if wrong else "is empty"
        raise CorpusError(f"sources {what}; give paths of files, or patterns")
    if "" in sources:
        raise CorpusError("sources holds an empty name; give paths of files: no texts")
    return list(sources)


def _insert(
    corpus: FileCorpus, out: Path, plan: Plan, reading: Reading, before: Manifest | None
) -> Manifest:
    corpus.layout.schema.check_around(plan.hidden_formats)
    scan = scan_corpus(corpus, plan.hidden_formats if reading.verify else ())
    if reading.total not in (None, scan.documents):
        raise CorpusError(
            f"documents={reading.total}, but the corpus has {scan.documents} in "
            f"{len(corpus.sources)} files; is a file missing? Give the right number, or leave it "
            "out"
        )
    entries, set_aside = draw(plan, scan, reading.existing, place=corpus.place)
    placement = Placement(entries)
    verification = Verification(scan, entries, placement)
    with atomic_directory(out / "corpus") as unnamed:
        copies = _write_copies(corpus, unnamed, scan, Merge(placement), verification)
        manifest = verification.manifest(plan, corpus.about(), set_aside)
        if before not in (None, manifest) and reading.fields:  # all else was compared before
            raise ResultError(
                f"{out} holds a manifest of other constants; choose another directory"
            )
        for shard, copied in enumerate(copies, 1):
            note = Sidecar(
                manifest_sha256=manifest.sha256, shard=shard, shards=len(copies), copied=copied
            )
            note.write(unnamed / copied.name)
        if manifest != before:  # one that a person put there stays as it is
            manifest.write(out / "manifest.json")
        _set_aside(out, unnamed, copies)
    return manifest


def _set_aside(out: Path, made: Path, copies: Sequence["Copied"]) -> None:
    """Keep the copies that would be replaced by others: a person may have worked on them."""
    there = [out / "corpus" / copied.name for copied in copies]
    changed = [
        path
        for path in there
        if path.is_file() and sha256_file(path) != sha256_file(made / path.name)
    ]
    if not changed:
        return
    aside = set_aside_in(out) / "corpus"
    aside.mkdir(parents=True)
    for path in changed:
        path.rename(aside / path.name)
        say_rebuilt(path, f"it is kept in {visible(aside)}")


def _write_copies(
    corpus: FileCorpus, directory: Path, scan: Scan, merge: Merge, verification: Verification
) -> list["Copied"]:
    """Write each file with its canaries, and verify it unless the scan hashed nothing."""
    copies, layout = [], corpus.layout
    mode = mode_like(*(source.path for source in corpus.sources))
    for number, source in enumerate(corpus.sources):
        target, hashes = directory / source.path.name, ("", "")
        merge.begin_file()
        with source.guarded():
            with new_file(target, mode) as stream, layout.writer(stream, source.path) as write:
                for part in source.parts(known=True):
                    write(merge.part(part))
            if scan.hashes is not None:
                written = FileCorpus([target], layout).sources[0]
                with layout.compared(source.path) as same:
                    verification.source(written, same, size=merge.size)
                hashes = (scan.hashes.files[number], verification.hashes.files[number])
        copies.append(_copied(target.name, merge, *hashes))
    return copies


def _copied(name: str, merge: Merge, sha256: str, sha256_inserted: str) -> Copied:
    """What a sidecar says of the file that was merged last."""
    return Copied(
        name=name,
        first_document=merge.first,
        documents=merge.document - merge.first,
        occurrences=tuple(merge.occurrences),
        sha256=sha256,
        sha256_inserted=sha256_inserted,
    )


def _check_places(paths: Sequence[Path], corpus: Path, *, written: bool) -> None:
    """Refuse to write over what insertion did not write, and two files of the same name."""
    names: dict[str, Path] = {}
    for path in paths:
        if not is_utf8(path.name):
            raise CorpusError(f"{path}: its name is not UTF-8, as a manifest is; rename the file")
        if path.name in names:
            raise CorpusError(
                f"{names[path.name]} and {path} would get the same name in {corpus}; rename one of "
                "them"
            )
        names[path.name] = path
        target = corpus / path.name
        if target.exists() and target.samefile(path):
            raise CorpusError(f"{target} is the corpus itself; write to another directory")
    if corpus.exists() and (
        not corpus.is_dir()
        or _others(corpus, {*names} if written else set())
        or _others(corpus / SIDECARS, {name + SIDECAR_SUFFIX for name in names if written})
    ):
        raise CorpusError(f"{corpus} holds something already; choose a new or an empty directory")


def _others(directory: Path, ours: set[str]) -> bool:
    """Whether a directory holds more than these files, and sidecars."""
    found = directory.iterdir() if directory.is_dir() else ()
    return any(
        path.name not in ours or not path.is_file()
        for path in found
        if path.name != SIDECARS or not path.is_dir()
    )


def _is_done(
    sources: Sequence[str | Path], out: Path, manifest: Manifest, plan: Plan, reading: Reading
) -> bool:
    """Whether the copies are what insertion wrote; damaged ones are named, and written again."""
    if not (reading.verify and manifest.corpus.verified):
        raise ResultError(
            f"{out / 'manifest.json'} is there already, and what was not verified cannot be "
            "compared; choose another directory"
        )
    copies, named = copies_of(sources, out), _named(sources)
    originals = named if all(path.exists() for path in named) else []
    known = reading.layout_of(named or copies or [out])
    check_same(out, manifest, plan, known, originals, reading)
    written, wanted = {path.name for path in copies}, {path.name for path in named}
    if copies and named and written.isdisjoint(wanted):
        raise ResultError(f"{out} holds a manifest of another corpus; choose another directory")
    if not copies or (named and written != wanted):
        return False
    damaged = _damaged(copies, originals, manifest, known)
    if damaged is not None:
        say_rebuilt(damaged)
    return damaged is None


def copies_of(sources: Sequence[str | Path], out: Path) -> list[Path]:
    """The copies of these files that insertion wrote into a directory, by name."""
    names = {path.name for path in _named(sources)}
    files = (path for path in (out / "corpus").glob("*") if path.is_file())
    copies = sorted(path for path in files if not path.name.endswith(SIDECAR_SUFFIX))
    return [path for path in copies if path.name in names] or copies


def _named(sources: Sequence[str | Path]) -> list[Path]:
    """The files of a corpus; an unchanged copy needs none."""
    with suppress(CorpusError):
        return corpus_files(sources)
    return []


def check_same(
    out: Path,
    manifest: Manifest,
    plan: Plan,
    layout: FileLayout,
    originals: Sequence[Path],
    reading: Reading,
) -> None:
    """Refuse to overwrite what another plan, corpus or reading left, and say which it is."""
    corpus = manifest.corpus
    same = {
        "plan": manifest.plan == plan,
        "layout": manifest.layout == layout.name,
        "text field": corpus.text_field == layout.schema.name,
        "wrapping": corpus.wrapping == layout.schema.record,
        "choice of constant fields": set(corpus.constant_fields) == set(reading.fields or ()),
        "choice about existing secrets": not manifest.set_aside.keys() & manifest.formats.keys()
        or reading.existing == "set_aside",
        "number of documents": reading.total in (None, corpus.documents),
        "corpus": not originals or FileCorpus(originals, layout).sha256() == corpus.sha256,
    }
    if manifest.plan != plan and manifest.plan == plan.seeded_like(manifest.plan):
        raise ResultError(
            f"{out} holds a manifest of another plan: its seeds differ; give its seed, or the "
            "plan's fields without one, or choose another directory"
        )
    for what, unchanged in same.items():
        if not unchanged:
            raise ResultError(f"{out} holds a manifest of another {what}; choose another directory")


def _damaged(
    copies: Sequence[Path], originals: Sequence[Path], manifest: Manifest, layout: FileLayout
) -> Path | None:
    """The first copy, or the directory of all, that insertion would write otherwise; None: none."""
    some, notes = copies[0] if len(copies) == 1 else copies[0].parent, None
    with suppress(CorpusError):
        notes = read_sidecars(copies, manifest)
    if notes is None:
        return some
    noted = dict(zip(copies, notes, strict=True))
    ordered = [copies[0].with_name(path.name) for path in originals]
    ordered = ordered or sorted(copies, key=lambda path: noted[path].shard)
    again = _Again(FileCorpus(originals or ordered, layout), manifest, gone=not originals)
    for number, copy in enumerate(ordered):
        wanted, note = again.copied(number, copy), noted[copy]
        if wanted is None or (note.shard, note.copied) != (number + 1, wanted):
            return copy
    whole = manifest.corpus.sha256, manifest.corpus.sha256_inserted
    return None if (again.before.total, again.after.total) == whole else some


class _Again:
    """What insertion would write now, compared with its copies."""

    def __init__(self, corpus: FileCorpus, manifest: Manifest, *, gone: bool) -> None:
        several, placement = len(corpus.sources) > 1, Placement(manifest.entries)
        # of what went in, and of what insertion would write
        self.before, self.after = Hashes(several=several), Hashes(several=several)
        self._corpus, self._merge = corpus, Merge(placement)
        self._cut = Cut(placement.inserted(), CorpusError) if gone else None

    def copied(self, number: int, copy: Path) -> "Copied | None":
        """What the sidecar of this copy should say; None: the copy is another."""
        source, whole = self._corpus.sources[number], False
        self._merge.begin_file()
        with (
            suppress(CorpusError),  # damaged ones of some layouts cannot be read at all
            source.guarded(),
            self._corpus.layout.compared(copy) as same,
        ):
            made = map(self._made, source.parts(known=True))
            whole = all(same(Written(part, part, ())) for part in made) and same(None)
        if not whole:
            return None
        self.before.end_file()
        self.after.end_file()
        hashes = self.before.files[number], self.after.files[number]
        return _copied(copy.name, self._merge, *hashes)

    def _made(self, part: Part) -> Part:
        rest = part if self._cut is None else self._cut.part(part)[0]
        made = self._merge.part(rest)
        self.before.update(rest.content)
        self.after.update(made.content)
        return made


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
