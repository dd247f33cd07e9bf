"""Copies of corpus files with canaries in them, in a directory that a second call finds whole.

Each copy has a note, its sidecar, which says what was put into it and holds no secrets. Sidecars
are in a hidden directory: loaders of a directory take every other JSON file for data.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from dataclasses import fields as fields_of
from itertools import islice
from pathlib import Path
from typing import Any

from lmexposure._files import (
    PRIVATE,
    atomic_directory,
    is_utf8,
    mode_like,
    new_file,
    only_writer,
    read_bytes,
    set_aside_in,
    sha256_file,
    write_json,
)
from lmexposure._integrity import say_rebuilt
from lmexposure._record import refuse_other_version
from lmexposure._style import visible
from lmexposure._validate import flag, integer, of_type
from lmexposure._written import refuse_foreign
from lmexposure.canaries.corpora.files import (
    SIDECAR_SUFFIX,
    SIDECARS,
    FileCorpus,
    FileLayout,
    corpus_files,
    layout_for,
    refuse_sidecars,
)
from lmexposure.canaries.insertion import (
    Cut,
    Existing,
    Hashes,
    Merge,
    Occurrence,
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
        existing: fills of a format that the corpus holds already: "refuse" or "set_aside".
        total: how many documents there must be; None: as many as there are.
        verify: search for such fills, hash, and check what was written.
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
        target, first, hashes = directory / source.path.name, merge.document, ("", "")
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
        copies.append(
            Copied(
                name=target.name,
                first_document=first,
                documents=merge.document - first,
                occurrences=tuple(merge.occurrences),
                sha256=hashes[0],
                sha256_inserted=hashes[1],
            )
        )
    return copies


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
        "choice about existing fills": not manifest.set_aside.keys() & manifest.formats.keys()
        or reading.existing == "set_aside",
        "number of documents": reading.total in (None, corpus.documents),
        "corpus": not originals or FileCorpus(originals, layout).sha256() == corpus.sha256,
    }
    if manifest.plan != plan and _unseeded(manifest.plan) == _unseeded(plan):
        raise ResultError(
            f"{out} holds a manifest of another plan: its seeds differ; give its seed, or the "
            "plan's fields without one, or choose another directory"
        )
    for what, unchanged in same.items():
        if not unchanged:
            raise ResultError(f"{out} holds a manifest of another {what}; choose another directory")


def _unseeded(plan: Plan) -> dict[str, Any]:
    """All that a plan says but its seeds."""
    return {
        field.name: getattr(plan, field.name)
        for field in fields_of(plan)
        if "seed" not in field.name
    }


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
        # after: of what went in, and of what insertion would write
        # before: of what went in, and of what insertion would write
        self.before, self.after = Hashes(several=several), Hashes(several=several)
        self._corpus, self._merge = corpus, Merge(placement)
        self._cut = Cut(placement.inserted(), CorpusError) if gone else None

    def copied(self, number: int, copy: Path) -> "Copied | None":
        """What the sidecar of this copy should say; None: the copy is another."""
        source, merge = self._corpus.sources[number], self._merge
        first = merge.document
        merge.begin_file()
        whole = False
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
        return Copied(
            name=copy.name,
            first_document=first,
            documents=merge.document - first,
            occurrences=tuple(merge.occurrences),
            sha256=self.before.files[number],
            sha256_inserted=self.after.files[number],
        )

    def _made(self, part: Part) -> Part:
        rest = part if self._cut is None else self._cut.part(part)[0]
        made = self._merge.part(rest)
        self.before.update(rest.content)
        self.after.update(made.content)
        return made


SCHEMA = "lmexposure.shard/1"
_INSERT_AGAIN = "insert again into another directory, with this version"
_MOST = 2**63 - 1  # of documents or bytes


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What a file was, and which documents were inserted."""

    name: str  # of the file, without its directory
    first_document: int  # number of its first document in the whole corpus, from 0
    documents: int  # how many it had
    occurrences: tuple[Occurrence, ...]  # the inserted ones, in their order
    sha256: str  # of its content before; "" where nothing was checked
    # of its content with the canaries, as it is on the disk; "" where nothing was checked
    sha256_inserted: str


@dataclass(frozen=True, kw_only=True)
class Sidecar:
    """Which inserted documents are in one file of a corpus."""

    manifest_sha256: str  # of the manifest that it belongs to
    shard: int  # the file's place among all, from 1
    shards: int  # how many there are
    copied: Copied  # the file before and after

    def write(self, path: Path) -> None:
        """Write the note of the file `path`, readable by its owner only."""
        values = asdict(self)
        copied = values.pop("copied")
        write_json(sidecar_path(path), {"schema": SCHEMA, **values, **copied}, mode=PRIVATE)

    @classmethod
    def read(cls, path: Path) -> "Sidecar":
        """Read the note of the file `path`; what no insertion of this version wrote is refused."""
        note = sidecar_path(path)
        try:
            values = json.loads(read_bytes(note))
            refuse_other_version(values, note, SCHEMA, _INSERT_AGAIN)
            return cls._from_dict(values)
        except ResultError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as failure:
            raise CorpusError(
                f"{note} is not what insertion wrote ({type(failure).__name__}); take a whole copy"
            ) from failure

    @classmethod
    def _from_dict(cls, values: Any) -> "Sidecar":
        if not isinstance(values, dict) or values.pop("schema") != SCHEMA:
            raise ValueError("another schema")
        own = {name: values.pop(name) for name in ("manifest_sha256", "shard", "shards")}
        occurrences = tuple(Occurrence(**occurrence) for occurrence in values.pop("occurrences"))
        note = cls(**own, copied=Copied(**values, occurrences=occurrences))
        for record in (note, note.copied, *occurrences):
            for name, kind in type(record).__annotations__.items():
                if kind is str and not isinstance(getattr(record, name), str):
                    raise TypeError(f"{name} is no string")
                if kind is int:
                    integer(name, getattr(record, name), low=0, high=_MOST)
        integer("shard", note.shard, low=1, high=note.shards)
        return note


def sidecar_path(path: Path) -> Path:
    """Where the note of a file is: .sidecars/NAME.canaries.json next to NAME."""
    return path.parent / SIDECARS / (path.name + SIDECAR_SUFFIX)


def read_sidecars(paths: Sequence[Path], manifest: Manifest) -> list[Sidecar] | None:
    """The notes of these files, or None where no file has one."""
    bare = [path for path in paths if not sidecar_path(path).exists()]
    if len(bare) == len(paths):
        return None
    if bare:
        raise CorpusError(
            f"{len(bare)} of {len(paths)} files have no sidecar ({sidecar_path(bare[0])}), "
            "which says what each should hold; bring all along, or give the files without any"
        )
    notes = [Sidecar.read(path) for path in paths]
    for path, note in zip(paths, notes, strict=True):
        if note.manifest_sha256 != manifest.sha256:
            raise CorpusError(
                f"{sidecar_path(path)} belongs to another manifest; give the one of this corpus"
            )
    shards: dict[int, Path] = {}
    for path, note in zip(paths, notes, strict=True):
        if shards.setdefault(note.shard, path) != path:
            raise CorpusError(
                f"{shards[note.shard]} and {path} are both number {note.shard} of this corpus, by "
                "their sidecars; give one of them"
            )
    _check_complete(notes)
    _check_agreement(paths, notes, manifest)
    return notes


def _check_complete(notes: Sequence[Sidecar]) -> None:
    given, most = {note.shard for note in notes}, notes[0].shards
    missing = list(islice((str(n) for n in range(1, most + 1) if n not in given), 10))
    if missing and len(notes) > 1:
        which = (
            f"number {missing[0]} is" if len(missing) == 1 else f"numbers {', '.join(missing)} are"
        )
        raise CorpusError(
            f"of the {most} files of this corpus, {which} missing; give all of them, or one alone"
        )


def _check_agreement(paths: Sequence[Path], notes: Sequence[Sidecar], manifest: Manifest) -> None:
    """Refuse notes that say of documents what the manifest does not."""
    placement, done = Placement(manifest.entries), 0
    ordered = sorted(zip(paths, notes, strict=True), key=lambda pair: pair[1].shard)
    for path, note in ordered:
        copied, shards = note.copied, len(notes) if len(notes) > 1 else note.shards
        stop = copied.first_document + copied.documents
        wanted = [(n, canary.id) for n, canary in placement.within(copied.first_document, stop)]
        if (
            [(occurrence.document, occurrence.id) for occurrence in copied.occurrences] != wanted
            or stop > manifest.corpus.documents
            or (len(notes) == shards and copied.first_document != done)
            or (note.shard == shards and stop != manifest.corpus.documents)
            or note.shards != shards
        ):
            raise CorpusError(
                f"{sidecar_path(path)} does not say what the manifest does; take a whole copy"
            )
        done = stop


def in_insertion_order(paths: Sequence[Path], manifest: Manifest) -> list[Path]:
    """These files in the order that insertion gave them, where their sidecars say it."""
    with suppress(CorpusError):
        notes = read_sidecars(paths, manifest) or []
        order = {path: note.shard for path, note in zip(paths, notes, strict=False)}
        return sorted(paths, key=lambda path: order.get(path, 0))
    return list(paths)
