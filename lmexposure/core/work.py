"""Work that goes on where it was ended: what was asked, once, and parts that are whole or none.

A directory is claimed by one process at a time. What was asked is written first; another wish is
refused by the name that differs. A part is sealed: one that is torn or damaged is made again.
Nothing here knows what the work is.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lmexposure import _written
from lmexposure._files import PRIVATE, canonical_json, only_writer, sha256_bytes
from lmexposure._integrity import read_sealed, write_sealed
from lmexposure._record import JsonTable, JsonValue
from lmexposure._text import visible
from lmexposure.core.study import Study
from lmexposure.errors import ResultError

HOME = ".work"  # in the directory of the study
_ASKED = "asked.json"
_Any = TypeVar("_Any", bound=Study)
_DIGITS = 16  # of a hash, in the name of a part


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of work that is kept as bytes."""

    path: Path

    def read(self) -> bytes | None:
        """What was kept; None where nothing was, or it is damaged."""
        return read_sealed(self.path)

    def write(self, data: bytes) -> None:
        """Keep it, whole or not at all, for its owner alone."""
        write_sealed(self.path, data, mode=PRIVATE)


@dataclass(frozen=True, kw_only=True)
class Work:
    """One piece of work in a directory."""

    out: Path
    asked: Mapping[str, JsonValue]  # all that decides its outcome, by names that people know
    hidden: frozenset[str] = frozenset()  # names whose values no message shows

    @contextmanager
    def claimed(self) -> Iterator["Work"]:
        """Hold the directory until the block ends.

        Raises:
            BusyError: another process holds it.
            ResultError: it holds work of another wish, which is named.
        """
        with only_writer(self.out):
            home = self.out / HOME
            _written.refuse_foreign(self.out, (HOME,))
            home.mkdir(parents=True, exist_ok=True)
            asked = Part(path=home / _ASKED)
            before = asked.read()
            if before is None:
                asked.write(canonical_json(dict(self.asked)))
            else:
                self._refuse_other(json.loads(before))
            try:
                yield self
            except BaseException:
                if not self._parts():  # it came to nothing: another wish is as good
                    _written.remove(home)
                raise

    def finished(self, kind: type[_Any]) -> _Any | None:
        """The study that this very work has made; None: it is not done yet.

        Raises:
            ResultError: a study of other work, or one that cannot be read.
        """
        if not (self.out / kind.NAME).exists():
            return None
        try:
            made = kind.read(self.out)
        except ResultError as failure:
            raise ResultError(f"{failure}; move the file away first") from None
        if made.inputs_sha256 != self.sha256:
            raise ResultError(
                f"{visible(self.out)} holds {kind.WHAT} of other inputs ({kind.NAME}); choose "
                "another directory, or move it away"
            )
        return made

    @property
    def sha256(self) -> str:
        """Of what was asked."""
        return sha256_bytes(canonical_json(dict(self.asked)))

    def part(self, name: str) -> Part:
        """A part by its name, kept or not yet; never one of other work."""
        return Part(path=self.out / HOME / f"{name}-{self.sha256[:_DIGITS]}")

    def drop(self) -> None:
        """Remove all parts, which nothing needs any more; what was asked stays."""
        for path in self._parts():
            _written.remove(path)

    def _parts(self) -> list[Path]:
        return sorted((self.out / HOME).glob("?*-" + "[0-9a-f]" * _DIGITS))

    def _refuse_other(self, before: JsonTable) -> None:
        now = json.loads(canonical_json(dict(self.asked)))
        names = before.keys() | now.keys()
        for name in sorted(names, key=lambda name: (name in self.hidden, name)):
            if before.get(name) != now.get(name):
                told = f"was {before.get(name)!r}, now {now.get(name)!r} is asked for"
                told = "was another" if name in self.hidden else told
                raise ResultError(
                    f"{visible(self.out)} holds other work: its {name} {told}; choose another "
                    "directory, or what was asked then"
                )
