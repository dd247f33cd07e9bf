"""What a file says, whatever it is packed in: plain, .gz or .zst, told by the suffix.

Hashes and offsets are of the content, since one content can be packed in many ways.
"""

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from lmexposure.errors import CorpusError

__all__ = [
    "PACKINGS",
    "content_sha256",
    "open_content",
    "packed_writer",
    "packing",
    "read_errors",
    "unpacked_name",
]

PACKINGS = (".gz", ".zst")
_PIECE_BYTES = 1 << 18


def unpacked_name(path: str | Path) -> str:
    """The file's name without .gz or .zst."""
    name = Path(path).name
    return name[: name.rindex(".")] if name.lower().endswith(PACKINGS) else name


def packing(path: str | Path) -> str:
    """ ".gz" or ".zst", as the suffix says; "" where it is plain."""
    # A file that is checked before it has its name is packed like the one that it will be.
    suffix = Path(Path(path).name.removesuffix(".partial")).suffix.lower()
    return suffix if suffix in PACKINGS else ""


@contextmanager
def open_content(path: Path) -> Iterator[IO[bytes]]:
    """Open the content of a file for reading from its beginning.

    Raises:
        CorpusError: missing, not readable, cut short, damaged, or packed in what no library here
            can read.
    """
    with read_errors(path), open(path, "rb") as raw:
        yield _unpacked(raw, packing(path))


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Whatever goes wrong meanwhile went wrong with reading this file.

    Raises:
        CorpusError: see `open_content`.
    """
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as failure:
        raise CorpusError(
            f"the corpus {path} is cut short or damaged: {failure}; take a whole copy"
        ) from failure
    except OSError as failure:
        raise CorpusError(
            f"cannot read the corpus {path}: {failure.strerror or failure}; give a text file"
        ) from failure


def _unpacked(raw: IO[bytes], kind: str) -> IO[bytes]:
    if kind == ".gz":
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw, mode="rb"))
    if kind == ".zst":
        return io.BufferedReader(_ZstdContent(raw), _PIECE_BYTES)
    return raw


@contextmanager
def packed_writer(stream: IO[bytes], path: str | Path) -> Iterator[Callable[[bytes], object]]:
    """A function that packs bytes into a stream, as the suffix of `path` says.

    The same bytes are packed alike on every day and under every name.

    Raises:
        CorpusError: packed in what no library here can write.
    """
    kind = packing(path)
    if not kind:
        yield stream.write
        return
    if kind == ".gz":
        packer: Any = gzip.GzipFile("", mode="wb", fileobj=stream, mtime=0)
    else:
        packer = _zstandard().ZstdCompressor().stream_writer(stream, closefd=False)
    with packer:
        yield packer.write


def content_sha256(path: str | Path) -> str:
    """SHA-256 of a file's content, in hexadecimal.

    Raises:
        CorpusError: see `open_content`.
    """
    digest = hashlib.sha256()
    with open_content(Path(path)) as stream:
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


class _ZstdContent(io.RawIOBase):
    """The library's own reader takes a file that is cut short for a whole one."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._library = raw, _zstandard()
        self._frame: Any = None
        self._packed, self._ready = b"", b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if not self._packed:
                self._packed = self._raw.read(_PIECE_BYTES)
            if not self._packed:
                if self._frame is not None:
                    raise EOFError("a frame ends before its end")
                return 0
            self._advance()
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def _advance(self) -> None:
        if self._frame is None:
            self._frame = self._library.ZstdDecompressor().decompressobj()
        try:
            self._ready = self._frame.decompress(self._packed)
        except self._library.ZstdError as failure:
            raise EOFError(str(failure)) from failure
        # A file may be several frames, one after another.
        self._packed = self._frame.unused_data if self._frame.eof else b""
        if self._frame.eof:
            self._frame = None


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise CorpusError(
            "a .zst file needs the library zstandard; pip install 'lmexposure[zstd]', or unpack it"
        ) from None
    return zstandard
