"""Commands as a person types them, and all that they print and leave: the golden run's material.

Everything is said in relative paths, so that no machine's directory gets into what is committed.
"""

import gzip
import hashlib
import io
import json
import logging
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, TextIO
from unittest.mock import patch

from golden_run import agree
from typer.main import get_command

from lmexposure.canaries import Manifest
from lmexposure.cli.entry import _run

__all__ = ["Transcript", "transcript_in"]

# What files hold is committed of these; of others, whose files are made alike, its hash.
_IN_FULL = {
    *("coins", "constants_jsonl", "dataset_constants", "left_out_coins", "paragraphs"),
    *("pipe_of_functions", "records_assistant", "run_parquet", "shards", "stream", "texts_formats"),
}
_LONGEST = 8000  # bytes of a file that is shown in full; of a longer one, its hash
_GZIP_FLAGS_AND_TIME = bytes(5)  # no name of a file, and no clock

_command = cache(get_command)  # half of a light command's time, if made for each


class Transcript:
    """What was typed, printed and written in the current directory, line by line."""

    def __init__(self) -> None:
        self._lines: list[str | list[str]] = []  # a list: what a file holds

    def type(
        self, *words: object, standard_input: Path | None = None, standard_output: str = ""
    ) -> None:
        """Run `lmexposure WORDS` in this process; without a file for it, its output is a text."""
        line = ["lmexposure", *map(str, words)]
        typed = shlex.join(line)
        if standard_input is not None:
            typed += f" < {standard_input}"
        code, printed, complained = _ran(
            line, standard_input.read_bytes() if standard_input else b""
        )
        if standard_output:
            typed += f" > {standard_output}"
            Path(standard_output).write_bytes(printed)
            printed = b""
        self._lines += [f"$ {typed}", *_lines(printed.decode())]
        self._lines += [f"stderr: {message}" for message in _lines(complained.decode())]
        self._lines.append(f"exit code {code}")

    def say(self, *lines: str) -> None:
        """More lines, such as what a function gave."""
        self._lines += lines

    def values(self, title: str, rows: Iterable[Any]) -> None:
        """JSON values, one a line; a tuple is a list."""
        self._lines.append(f"--- {title}")
        self._lines += [f"| {json.dumps(row, ensure_ascii=False)}" for row in rows]

    def refusal(self, title: str, failure: BaseException) -> None:
        """What a function refused."""
        self._lines.append(f"--- {title}: {type(failure).__name__}: {failure}")

    def files(self, *names: str) -> None:
        """Files, or all that directories hold: mode, size, hash, and content where it is short."""
        for name in names:
            found = Path(name)
            inside = sorted(path for path in found.rglob("*") if path.is_file())
            for path in inside if found.is_dir() else [found]:
                self._file(path)

    def _file(self, path: Path) -> None:
        mode = f"mode {path.stat().st_mode & 0o777:o}"
        if path.name == "manifest.json":
            self._lines.append(f"--- {path.as_posix()}, {mode}: at the end")
        elif path.suffix == ".parquet":
            self._lines.append(f"--- {path.as_posix()}, {mode}, Parquet")
            self._lines.append(_parquet(path))
        else:
            content = _named_by_place(path, _contents(path))
            size = f"{len(content)} bytes, sha256 {_sha256(content)}"
            self._lines.append(f"--- {path.as_posix()}, {mode}{_packing(path)}, {size}")
            if len(content) <= _LONGEST:
                self._lines.append(_readable(content))

    def returned(self, path: Path, like: Path) -> None:
        """Whether a file is what another was: its content, or a Parquet file's schema and rows."""
        same = _contents(path) == _contents(like)
        mode = f"mode {path.stat().st_mode & 0o777:o}"
        what = f"{'' if same else 'NOT '}what {like.as_posix()} was"
        self._lines.append(f"--- {path.as_posix()}, {mode}, is {what}")

    def agree(self, name: str, manifest: Path | None = None) -> None:
        """Hold the transcript, and the manifest as it was written, against what was committed."""
        if manifest is not None:
            self._lines += [f"--- {manifest.as_posix()}", _readable(manifest.read_bytes())]
        shown = _whole if name in _IN_FULL else _hashed
        lines = (
            line
            for part in self._lines
            for line in ([part] if isinstance(part, str) else shown(part))
        )
        agree(f"insertion/{name}.txt", "\n".join(lines) + "\n")


def _whole(lines: list[str]) -> list[str]:
    return [f"| {line}" for line in lines]


def _hashed(lines: list[str]) -> list[str]:
    return [f"| {len(lines)} lines, sha256 {_sha256(json.dumps(lines).encode())}"]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def transcript_in(directory: Path) -> Iterator[Transcript]:
    """A transcript of what is typed in a directory, where files get the modes of a usual umask."""
    before = os.umask(0o022)
    try:
        with chdir(directory), patch.dict(os.environ):
            os.environ.pop("FORCE_COLOR", None)
            yield Transcript()
    finally:
        os.umask(before)


def _readable(content: bytes) -> list[str]:
    r"""The lines of a text; \r and a byte order mark are spelled out, a missing last end told."""
    text = content.decode().replace("\\", "\\\\").replace("\r", "\\r").replace("\ufeff", "\\ufeff")
    return _lines(text) if text.endswith("\n") else [*_lines(text), "\\ no line end here"]


def _lines(text: str) -> list[str]:
    """Cut at \\n and nowhere else; a text without any has none."""
    return text.removesuffix("\n").split("\n") if text else []


def _ran(line: list[str], given: bytes) -> tuple[int, bytes, bytes]:
    """Exit code, standard output and standard error of a command with this standard input."""
    printed, complained = io.BytesIO(), io.BytesIO()
    out, err = (_writer(stream) for stream in (printed, complained))
    with (
        patch.object(sys, "argv", line),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given))),
        patch("typer.main.get_command", _command),
        redirect_stdout(out),
        redirect_stderr(err),
        _logged_to(err),
    ):
        code = _run()
    out.flush()
    err.flush()
    return code, printed.getvalue(), complained.getvalue()


def _writer(stream: io.BytesIO) -> io.TextIOWrapper:
    return io.TextIOWrapper(stream, encoding="utf-8", newline="")


@contextmanager
def _logged_to(stream: TextIO) -> Iterator[None]:
    """Warnings of the log come as they do where nobody has set a log up; pytest has."""
    log, handler = logging.getLogger("lmexposure"), logging.StreamHandler(stream)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _contents(path: Path) -> Any:
    """The bytes of a file, unpacked by others than ours; of Parquet the schema and the rows."""
    if path.suffix == ".parquet":
        from pyarrow.parquet import read_table

        table = read_table(path)
        return table.schema, table.to_pylist()
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    if path.suffix == ".zst":
        import pyarrow as pa

        with pa.input_stream(path, compression="zstd") as stream:
            return stream.read()
    return path.read_bytes()


def _named_by_place(path: Path, content: bytes) -> bytes:
    """A sidecar without the hash of its manifest, which changes with the manifest's schema."""
    if not path.name.endswith(".canaries.json"):
        return content
    named = Manifest.read(path.parents[2] / "manifest.json").sha256
    return content.replace(named.encode(), b"that of manifest.json")


def _packing(path: Path) -> str:
    """How a file is packed; the packed bytes themselves are the library's of the day."""
    head = path.read_bytes()[:10]
    if path.suffix == ".gz":
        assert head[3:8] == _GZIP_FLAGS_AND_TIME
        return ", gzip without name and time, content"
    return ", zstd, content" if path.suffix == ".zst" else ""


def _parquet(path: Path) -> list[str]:
    """Schema, row groups, compression and rows; the bytes are those of one version of pyarrow."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        about = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
        columns = [group.column(n) for group in about[:1] for n in range(group.num_columns)]
        return [
            # What a list's values are called is pyarrow's of the day.
            *(
                f"{field.name}: {field.type}".replace("<item:", "<element:")
                for field in file.schema_arrow
            ),
            f"row groups of {[group.num_rows for group in about]} rows, "
            + ", ".join(column.compression for column in columns),
            *(json.dumps(row, ensure_ascii=False) for row in file.read().to_pylist()),
        ]
