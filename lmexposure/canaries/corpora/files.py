"""A corpus of one or many files: which they are, what is in them, and who knows their documents.

A file is plain, .gz or .zst, as its suffix says. Hashes and offsets are of what it unpacks to,
since one content can be packed in many ways. The note of each file that insertion wrote, its
sidecar, says what was put into it, and no secrets; it is in a hidden directory, since loaders of a
directory take every other JSON file for data.
"""

import glob
import gzip
import io
import json
import re
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, TypeAlias

from pydantic import TypeAdapter

from lmexposure._files import PRIVATE, read_bytes, write_json
from lmexposure._record import refuse_other_version
from lmexposure._saved_models import holds_model, is_manifest
from lmexposure._types import FROM_FILE, Count, Found, Positive, Rows, Sha256
from lmexposure._validate import integer, one_of
from lmexposure.canaries.corpora import ADAPTERS
from lmexposure.canaries.insertion import (
    Hashes,
    Occurrence,
    Placement,
    Taken,
    constants_of,
    named_errors,
)
from lmexposure.canaries.manifest import CorpusRecord, Manifest
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.errors import CorpusError, ResultError

if TYPE_CHECKING:
    from lmexposure.canaries.corpora.tables import ArrowFile, Parquet
    from lmexposure.canaries.corpora.text import Lines

    FileLayout: TypeAlias = Lines | Parquet | ArrowFile  # what a document is in a file
else:  # their modules are imported when a file has them
    FileLayout = Any
SIDECAR_SUFFIX = ".canaries.json"
# Hidden, so that whoever loads a directory of corpus files leaves it out.
SIDECARS = ".sidecars"
PACKINGS = (".gz", ".zst")
LAYOUTS = tuple(ADAPTERS)
OF_RECORDS = ("jsonl", "parquet", "arrow")
_TABLES = (".csv", ".tsv")
# What no suffix tells, as of standard input; a plain text may begin with a bracket.
_RECORD = re.compile(rb"\{\s*[\"}]|\[\s*[\[{\"]")
_PIECE_BYTES = 1 << 18


def layout_named(
    name: str,
    *,
    text_field: str = "text",
    fields: Mapping[str, Any] | None = None,
    schema: RowSchema | None = None,
) -> FileLayout:
    """The layout with this name."""
    one_of("layout", name, LAYOUTS, error=CorpusError)
    constants = constants_of(fields)
    if text_field in constants:
        raise CorpusError(
            f"fields must leave out the text field {text_field!r}: the canary goes there"
        )
    if schema is None:
        schema = RowSchema(text_field if name in OF_RECORDS else None, constants)
    elif name not in OF_RECORDS:
        raise CorpusError(
            f"chats are records, and documents of layout {name!r} are texts; name the layout of "
            f"the records: {', '.join(OF_RECORDS[:-1])} or {OF_RECORDS[-1]}"
        )
    module = import_module(f"lmexposure.canaries.corpora.{ADAPTERS[name].module}")
    known = replace(schema, place="line" if name == "jsonl" else "row")
    layout: FileLayout = module.layout_of(name, known)
    return layout


def guess_layout(path: str | Path) -> str:
    """By the suffix under .gz or .zst; "lines" where no other layout goes by it."""
    name = Path(path).name.lower()
    name = name.removesuffix(packing(name))
    fitting = (layout for layout, known in ADAPTERS.items() if name.endswith(known.suffixes))
    return next(fitting, "lines")


def layout_for(
    sources: Sequence[Path],
    name: str | None,
    text_field: str,
    *,
    fields: Mapping[str, Any] | None = None,
    schema: RowSchema | None = None,
) -> FileLayout:
    """What a document is in these files: as said, else by their suffix; it must be one."""
    _refuse_others(sources)
    guessed = {guess_layout(path) for path in sources}
    if name is None and len(guessed) > 1:
        raise CorpusError(
            f"the files are of different layouts: {', '.join(sorted(guessed))}; give one kind"
        )
    if name is None:
        _refuse_tables(sources)
    layout = name or guessed.pop()
    return layout_named(layout, text_field=text_field, fields=fields, schema=schema)


def _refuse_others(sources: Sequence[Path]) -> None:
    """Refuse what a person may have given in the place of a corpus."""
    for path in sources:
        if holds_model(path):
            raise CorpusError(
                f"{path} is a model, and a corpus is asked for; give files of text "
                "there, and the model in its own place"
            )
        if path.suffix == ".json" and is_manifest(path):
            inserted = path.with_name("corpus")
            files = f", such as '{inserted}/*'" if inserted.is_dir() else ""
            raise CorpusError(
                f"{path} is a manifest, and a corpus is asked for; give its files{files}"
            )


def _refuse_tables(sources: Sequence[Path]) -> None:
    """Refuse records that would be read as lines: a table, or JSON that is not a record a line."""
    for path in sources:
        if _suffix(path) in _TABLES:
            raise CorpusError(
                f"the corpus {path} is a table, whose lines are no documents; write it as JSONL "
                "(in pandas: read_csv(...).to_json(..., orient='records', lines=True)), or give "
                "layout='lines'"
            )
        begun = _json_begun(path)
        if begun == b"[":
            raise CorpusError(
                f"the corpus {path} is a JSON array, whose lines are no documents; write a record "
                "a line (jq -c '.[]' FILE > FILE.jsonl), or give layout='lines'"
            )
        if begun == b"{":
            raise CorpusError(
                f"the corpus {path} is JSON; if it has a record a line, say so: layout='jsonl', "
                "else layout='lines'"
            )


def _suffix(path: Path) -> str:
    """Of the name under .gz or .zst, in small letters."""
    return Path(path.name.lower().removesuffix(packing(path))).suffix


def _json_begun(path: Path) -> bytes:
    """The bracket that JSON begins with in a file whose suffix tells no layout; b"": no JSON."""
    suffix = _suffix(path)
    if suffix not in ("", ".json") or not path.is_file():
        return b""
    with open_content(path) as stream:
        begun = stream.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    found = begun[:1] in (b"[", b"{") if suffix else _RECORD.match(begun)
    return begun[:1] if found else b""


def layout_of(
    manifest: Manifest,
    sources: Sequence[Path],
    *,
    name: str | None = None,
    text_field: str | None = None,
) -> FileLayout:
    """What a document is in files with the canaries of a manifest, wherever these are in it."""
    schema = RowSchema.of(manifest, text_field)
    if name is None and any(_suffix(p) in _TABLES or _json_begun(p) != b"" for p in sources):
        name = manifest.layout if manifest.layout in ADAPTERS else None
    known = layout_for(sources, name, str(schema.name))
    is_chat = schema.chat and known.name in OF_RECORDS
    return layout_named(known.name, schema=schema) if is_chat else known


def corpus_files(names: Sequence[str | Path]) -> list[Path]:
    """The files of a corpus, sorted by name."""
    refuse_sidecars(names)
    found: list[Path] = []
    for name in names:
        known = [name] if Path(name).exists() or not glob.has_magic(str(name)) else []
        matched = known or glob.glob(str(name), recursive=True)
        files = [Path(path) for path in matched if not str(path).endswith(SIDECAR_SUFFIX)]
        if not files:
            raise CorpusError(f"no file matches {str(name)!r}; give a file, or another pattern")
        found += files
    found.sort()
    for path, following in pairwise(found):
        if path == following:
            raise CorpusError(f"{path} is given twice; give it once")
    return found


def refuse_sidecars(names: Sequence[str | Path]) -> None:
    """Refuse a sidecar in place of its file; patterns leave them out."""
    for name in names:
        if str(name).endswith(SIDECAR_SUFFIX) and Path(name).exists():
            raise CorpusError(f"{name} is a sidecar; give the file that it belongs to")


class FileSource:
    """A file of a corpus (see `insertion.Source`); one that is missing, or a pipe, is refused."""

    def __init__(self, path: Path, corpus: "FileCorpus") -> None:
        self.path, self.name = path, str(path)
        self._corpus, self._state = corpus, _file_state(path)

    def parts(self, *, taken: Taken | None = None, known: bool = False) -> Iterator[Any]:
        """The documents from the beginning; see `insertion.Source`."""
        corpus = self._corpus
        for part in corpus.layout.parts(
            self.path, name=self.name, taken=taken, known=known, first_end=corpus.first_end
        ):
            corpus.first_end = corpus.first_end or part.default_end
            yield part

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Also refuses a file that changed since it was opened, whatever else went wrong."""
        with named_errors(self.name):
            try:
                yield
            finally:
                if _file_state(self.path) != self._state:
                    raise CorpusError(
                        f"the corpus {self.path} changed while it was read; try again"
                    )


class FileCorpus:
    """A corpus in files (see `insertion.Corpus`)."""

    def __init__(self, paths: Sequence[Path], layout: FileLayout) -> None:
        # first_end: the line end of the first line that was read; b"" before that
        self.layout, self.first_end = layout, b""
        self.sources = [FileSource(path, self) for path in paths]
        self.place = layout.place

    def blank(self, documents: int) -> str:
        """What to say where none of the documents holds text."""
        several = len(self.sources) > 1
        named = f"of {len(self.sources)} files" if several else self.sources[0].name
        return f"the corpus {named} holds only blank lines; give a file with text in it"

    def about(self) -> CorpusRecord:
        """What a manifest says of these files."""
        name = self.sources[0].path.name if len(self.sources) == 1 else ""
        layout = self.layout
        about = layout.schema.about()
        return replace(about, name=name, layout=layout.name, separator=layout.separator)

    def sha256(self) -> str:
        """As a manifest has it: of the contents of all files, or of the texts of tables."""
        return Hashes.of(self).total


def _file_state(path: Path) -> tuple[int, ...]:
    """What changes when a file does: size, time of the last change, and which file it is."""
    try:
        found = path.stat()
    except OSError as failure:
        raise CorpusError(
            f"cannot read the corpus {path}: {failure.strerror}; give a text file"
        ) from failure
    if stat.S_ISDIR(found.st_mode):
        raise CorpusError(f"{path} is a directory; give its files, such as '{path}/*.jsonl.gz'")
    if stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode):
        raise CorpusError(
            f"the corpus {path} is a pipe, and would be read twice; write it to a file, or give it "
            "as standard input: -"
        )
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def read_documents(
    sources: str | Path | Sequence[str | Path], *, layout: str, text_field: str = "text"
) -> Iterator[str]:
    r"""The documents of a corpus, one after another, in constant memory."""
    known = layout_named(layout, text_field=text_field)
    for path in corpus_files([sources] if isinstance(sources, str | Path) else sources):
        yield from known.documents(path)


def read_records(
    sources: str | Path | Sequence[str | Path], *, layout: str | None = None
) -> Iterator[dict[str, Any]]:
    """The records of a corpus with all their fields, one after another, in constant memory."""
    for path in corpus_files([sources] if isinstance(sources, str | Path) else sources):
        name = layout or guess_layout(path)
        _file_state(path)
        with named_errors(str(path)):
            yield from layout_named(name, schema=RowSchema("record", chat=True)).records(path)


def packing(path: str | Path) -> str:
    """How a file is packed, as its suffix says: ".gz", ".zst", or "" where it is plain."""
    suffix = Path(path).suffix.lower()
    return suffix if suffix in PACKINGS else ""


@contextmanager
def open_content(path: Path) -> Iterator[IO[bytes]]:
    """Open the content of a file for reading from its beginning."""
    kind = packing(path)
    try:
        with open(path, "rb") as raw:
            stream: Any = gzip.GzipFile(fileobj=raw, mode="rb") if kind == ".gz" else raw
            yield io.BufferedReader(_ZstdContent(raw), _PIECE_BYTES) if kind == ".zst" else stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as failure:
        raise CorpusError(
            f"the corpus {path} is cut short or damaged: {failure}; take a whole copy"
        ) from failure
    except OSError as failure:
        raise CorpusError(
            f"cannot read the corpus {path}: {failure.strerror or failure}; give a text file"
        ) from failure


@contextmanager
def packed_writer(stream: IO[bytes], path: str | Path) -> Iterator[Callable[[bytes], object]]:
    """A function that packs bytes into a stream, as the suffix of `path` says."""
    kind = packing(path)
    if not kind:
        yield stream.write
        return
    if kind == ".gz":
        # As the command gzip does; level 9 takes 1.4 times as long and saves 0.4 % of English text.
        packer: Any = gzip.GzipFile("", "wb", compresslevel=6, fileobj=stream, mtime=0)
    else:
        import pyarrow as pa

        packer = pa.CompressedOutputStream(pa.PythonFile(_Unclosed(stream), mode="w"), "zstd")
    with packer:
        yield packer.write


class _ZstdContent(io.RawIOBase):
    """The frames of a stream one after another, unpacked as they are asked for."""

    def __init__(self, raw: IO[bytes]) -> None:
        import pyarrow as pa

        # Told the kind: "detect" goes by a name, and takes .ZST for plain.
        self._stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), compression="zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except OSError as failure:
            if failure.errno is not None:  # the disk's, not the library's
                raise
            raise EOFError(str(failure)) from failure
        buffer[: len(data)] = data
        return len(data)


class _Unclosed:
    """A stream that stays open when the library that packs into it is done."""

    closed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self.write, self.flush = stream.write, stream.flush

    def close(self) -> None:
        self.closed = True


_INSERT_AGAIN = "insert again into another directory, with this version"


@dataclass(frozen=True, kw_only=True)
class Copied(Found):
    """What a file was, and which documents were inserted."""

    name: str  # of the file, without its directory
    first_document: Count  # number of its first document in the whole corpus, from 0
    documents: Count  # how many it had
    occurrences: Rows[Occurrence]  # the inserted ones, in their order
    sha256: str  # of its content before; "" where nothing was checked
    # of its content with the canaries, as it is on the disk; "" where nothing was checked
    sha256_inserted: str


@dataclass(frozen=True, kw_only=True)
class Sidecar(Found):
    """Which inserted documents are in one file of a corpus."""

    SCHEMA: ClassVar[str] = "lmexposure.shard/1"

    manifest_sha256: Sha256  # of the manifest that it belongs to
    shard: Positive  # the file's place among all, from 1
    shards: Positive  # how many there are
    copied: Copied  # the file before and after

    def __post_init__(self) -> None:
        integer("shard", self.shard, low=1, high=self.shards)

    def write(self, path: Path) -> None:
        """Write the note of the file `path`, readable by its owner only."""
        values = asdict(self)
        copied = values.pop("copied")
        write_json(sidecar_path(path), {"schema": self.SCHEMA, **values, **copied}, mode=PRIVATE)

    @classmethod
    def read(cls, path: Path) -> "Sidecar":
        """Read the note of the file `path`; what no insertion of this version wrote is refused."""
        note = sidecar_path(path)
        try:
            values = json.loads(read_bytes(note))
            refuse_other_version(values, note, cls.SCHEMA, _INSERT_AGAIN)
            if not isinstance(values, dict) or values.pop("schema") != cls.SCHEMA:
                raise ValueError("another schema")
            own = {name: values.pop(name) for name in ("manifest_sha256", "shard", "shards")}
            read = TypeAdapter(cls).validate_python({**own, "copied": values}, context=FROM_FILE)
        except ResultError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as failure:
            raise CorpusError(
                f"{note} is not what insertion wrote ({type(failure).__name__}); take a whole copy"
            ) from failure
        return read


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
    given, most = {note.shard for note in notes}, notes[0].shards
    missing = list(islice((str(n) for n in range(1, most + 1) if n not in given), 10))
    if missing and len(notes) > 1:
        several = f"numbers {', '.join(missing)} are"
        which = f"number {missing[0]} is" if len(missing) == 1 else several
        raise CorpusError(
            f"of the {most} files of this corpus, {which} missing; give all of them, or one alone"
        )
    _check_agreement(paths, notes, manifest)
    return notes


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
