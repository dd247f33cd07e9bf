"""A corpus on standard input: kept in a private file, and then a file like any other."""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedIOBase, RawIOBase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING

from lmexposure._files import PRIVATE, atomic_write, made_directory, only_writer, sha256_file
from lmexposure._written import remove
from lmexposure.canaries.copies import Files, Planned, Reading, insert_copies, listed_files
from lmexposure.canaries.manifest import Manifest
from lmexposure.errors import FileError, InputError, ResultError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

SPOOL = "standard_input"  # the name of the file
_EMPTY = hashlib.sha256().hexdigest()


def is_stream(corpus: object) -> "TypeIs[IO[bytes]]":
    """Whether a corpus is a stream that is open for reading bytes, and no names of files."""
    return isinstance(corpus, RawIOBase | BufferedIOBase)


def refuse_inserted(out: Path) -> None:
    """Refuse, before standard input is read, a directory that holds a manifest."""
    if (out / "manifest.json").exists():
        raise ResultError(f"{out / 'manifest.json'} is there already; choose another directory")


def _keep(stream: IO[bytes], spool: Path) -> None:
    with made_directory(spool.parent), atomic_write(spool, mode=PRIVATE) as file:
        shutil.copyfileobj(stream, file)


@contextmanager
def spooled(corpus: Files | IO[bytes]) -> Iterator[list[str | Path]]:
    """The names of a corpus' files; a stream is one until the block ends, which errors call so."""
    if not is_stream(corpus):
        yield listed_files(corpus)
        return
    with TemporaryDirectory() as home:
        spool = Path(home) / SPOOL
        _keep(corpus, spool)
        try:
            yield [spool]
        except InputError as failure:
            _say_of_stream(failure, spool)
            raise


def _say_of_stream(failure: InputError, spool: Path) -> None:
    """Name standard input in place of a file that goes."""
    failure.args = (str(failure).replace(str(spool), "standard input"),)


@contextmanager
def kept_input(corpus: Files | IO[bytes], out: Path) -> Iterator[list[str | Path]]:
    """The same of a run, which keeps the file, and goes on with the same stream or an empty one."""
    if not is_stream(corpus):
        yield listed_files(corpus)
        return
    spool = out / "source" / SPOOL
    is_new = not spool.exists()
    if is_new:
        refuse_inserted(out)
        _keep(corpus, spool)
    elif hashlib.file_digest(corpus, "sha256").hexdigest() not in (_EMPTY, sha256_file(spool)):  # type: ignore[arg-type]
        raise ResultError(
            f"{spool} is the copy of another standard input; choose another directory"
        )
    try:
        yield [spool]
    except InputError as failure:
        if is_new and not (out / "manifest.json").exists():  # a corpus of no use
            remove(spool.parent)
            _say_of_stream(failure, spool)
        raise


def insert_through(
    corpus: Files | IO[bytes], target: IO[bytes], out: Path, planned: Planned, reading: Reading
) -> Manifest:
    """Write one file with canaries in it to a stream, and the manifest once that took it all."""
    with only_writer(out), spooled(corpus) as (spool,), TemporaryDirectory() as home:
        refuse_inserted(out)
        manifest = insert_copies([spool], Path(home), planned, reading)
        try:
            with Path(home, "corpus", Path(spool).name).open("rb") as written:
                shutil.copyfileobj(written, target)
            target.flush()
        except OSError as failure:
            raise FileError(  # without its number: Click says nothing of a pipe that was closed
                f"cannot write the corpus: {failure.strerror or failure}; what was written must be "
                "thrown away"
            ) from failure
        manifest = replace(manifest, corpus=replace(manifest.corpus, name=""))
        manifest.write(out / "manifest.json")
    return manifest
