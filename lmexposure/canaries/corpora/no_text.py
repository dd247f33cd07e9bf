"""What is given for text and is none: packed, binary, in another encoding, or token ids."""

import unicodedata

import numpy as np
from numpy.typing import NDArray

from lmexposure.errors import CorpusError

_SAMPLE, _FEWEST = 8192, 32  # ids
_HEADERS = {(20240520, 1): 2, (20240801, 7): 4}  # of llm.c: magic number, version; bytes of an id
# How other kinds of files begin, two of them texts.
_OTHERS = (
    *(b"\xff\xfe", b"\xfe\xff", b"PK", b"PAR1", b"ARROW1", b"\x93NUMPY", b"GGUF", b"\x80\x02"),
    *(b"\x80\x04", b"\x7fELF", b"\x89", b"%PDF", b"SQLite"),
)
_LARGEST = 300_000  # no vocabulary is larger; what is not ids of four or eight bytes has more
_LARGEST_OF_TWO = 50_432  # as GPT-2's, padded; of noise, 23 % of numbers are larger
_LARGE = 1 << 20  # bytes
_BLOCKS = 12  # of 256 characters, below the symbols: a text has letters of a few scripts


def check_text(name: str, data: bytes, offset: int) -> None:
    """Refuse what is no text, and say what it is."""
    if offset == 0 and data.startswith(b"\x1f\x8b"):
        raise CorpusError(
            f"the corpus {name} is packed by gzip; unpack it first, with gzip -dc, or give a file "
            "whose name ends in .gz"
        )
    what = "binary or UTF-16: NUL byte at offset {}; convert it to UTF-8 text"
    bad = data.find(b"\0")
    if bad < 0:
        if data.isascii() or (len(data) >= _LARGE and _is_utf8(data)):
            return
        try:
            data.decode()
        except UnicodeDecodeError as failure:
            bad = failure.start
            what = f"not UTF-8: bad byte 0x{data[bad]:02x} at offset {{}}; convert it to UTF-8"
        else:
            return
    size = bytes_of_token_ids(data) if offset == 0 else None
    if size is not None:
        raise CorpusError(
            f"the corpus {name} looks like token ids of {size} bytes each, as nanoGPT's train.bin "
            "and llm.c's shards are; canaries are text: insert before tokenising, and give the text"
        )
    raise CorpusError(f"the corpus {name} is {what.format(offset + bad)}")


def _is_utf8(data: bytes) -> bool:
    """The same as to decode it; an insertion takes 1.1 times as long without. For large files."""
    import pyarrow as pa

    ends = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, ends, pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def bytes_of_token_ids(data: bytes) -> int | None:
    """How many bytes each token id has in what is no UTF-8; None: it holds no token ids.

    No noise, no numbers with signs, no ASCII, no UTF-16 or UTF-32; where that is not clear, None.
    """
    if len(data) < 2 * _FEWEST:
        return None
    magic, version = np.frombuffer(data[:8], "<i4").tolist()
    if (magic, version) in _HEADERS:
        return _HEADERS[magic, version]
    letters = np.frombuffer(data[:_SAMPLE], np.uint8)
    if data.startswith(_OTHERS) or np.mean((letters >= 0x20) & (letters < 0x7F)) > 0.6:
        return None
    for size, kind in ((8, "<u8"), (4, "<u4"), (4, ">u4"), (2, "<u2")):
        ids = np.frombuffer(data[: min(len(data) // size, _SAMPLE) * size], kind)
        if len(ids) >= _FEWEST and _fits(ids, size):
            # Texts of two bytes a character may have the higher one first.
            is_text = _are_characters(ids) or (size == 2 and _are_characters(ids.byteswap()))
            return None if is_text else size
    return None


def _fits(ids: NDArray[np.unsignedinteger], size: int) -> bool:
    if size > 2:
        return bool(ids.max() < _LARGEST)
    # A vocabulary of 65,536 has few of its last tokens in a text; half of signed numbers are < 0.
    beyond = np.count_nonzero(ids >= _LARGEST_OF_TWO) / len(ids)
    return bool(beyond <= 0.1 * (len(ids) >= 256) and np.mean(ids >= 1 << 15) < 0.42)


def _are_characters(points: NDArray[np.unsignedinteger]) -> bool:
    """Whether these numbers are characters of a text."""
    given, counts = np.unique(points, return_counts=True)
    none = [
        number
        for point, number in zip(given.tolist(), counts.tolist(), strict=True)
        if unicodedata.category(chr(point)) in ("Cc", "Cn", "Co") and not chr(point).isspace()
    ]
    blocks = {point >> 8 for point in given.tolist() if 0x100 <= point < 0x3000}
    return sum(none) <= 0.02 * len(points) and len(blocks) <= _BLOCKS
