"""Corpora on the disk with canaries in them, as `lx.insert_files` writes them."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.parquet import ParquetFile, ParquetWriter

import lmexposure as lx
from lmexposure.canaries.sidecars import sidecar_path

SUFFIXES = {"lines": ".txt", "paragraphs": ".txt", "jsonl": ".jsonl", "parquet": ".parquet"}
PACKINGS = ("", ".gz", ".zst")


def packed(content: bytes, packing: str) -> bytes:
    """Bytes as a file with this suffix holds them; of a .gz, in two members."""
    if packing == ".gz":
        half = len(content) // 2
        return gzip.compress(content[:half], 1) + gzip.compress(content[half:], 1)
    return pa.compress(content, codec="zstd", asbytes=True) if packing else content


def unpacked(path: Path) -> bytes:
    """The content of a file."""
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    if path.suffix == ".zst":
        with pa.OSFile(str(path)) as raw, pa.CompressedInputStream(raw, "zstd") as stream:
            return bytes(stream.read())
    return path.read_bytes()


class Written:
    """The files of a corpus with their canaries, and what belongs to them."""

    def __init__(
        self,
        here: Path,
        contents: Sequence[bytes],
        plan: lx.Plan,
        layout: str,
        packing: str = "",
        **more: Any,
    ) -> None:
        self.here, self.layout, self.field = here, layout, more.get("text_field", "text")
        self.sources = self.files(here / "in", contents, packing)
        self.manifest = lx.insert_files(
            self.sources, here / "out", plan, layout=layout, existing="set_aside", **more
        )
        self.paths = [here / "out" / "corpus" / path.name for path in self.sources]

    def files(self, directory: Path, contents: Sequence[bytes], packing: str = "") -> list[Path]:
        """Write a corpus of this layout."""
        directory.mkdir(parents=True)
        suffix = SUFFIXES[self.layout] + packing
        paths = [directory / f"part{number}{suffix}" for number, _ in enumerate(contents)]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(packed(content, packing))
        return paths

    def forget_notes(self) -> None:
        """Take the sidecars away."""
        for path in self.paths:
            sidecar_path(path).unlink()


def parquet_bytes(schema: Any, groups: Sequence[Sequence[dict[str, Any]]], packing: str) -> bytes:
    """A Parquet file with these row groups, empty ones included."""
    sink = pa.BufferOutputStream()
    with ParquetWriter(sink, schema, compression=packing) as writer:
        for rows in groups:
            writer.write_table(pa.Table.from_pylist(list(rows), schema=schema))
    return bytes(sink.getvalue())


def row_groups(path: Path) -> tuple[Any, list[list[dict[str, Any]]]]:
    """(schema, the rows of each row group)."""
    with ParquetFile(path) as file:
        groups = [file.read_row_group(n).to_pylist() for n in range(file.num_row_groups)]
        return file.schema_arrow, groups
