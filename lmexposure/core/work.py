"""Work that goes on where it was ended: what was asked, once, and parts that are whole or none.

A directory is claimed by one process at a time, for one kind of study. What was asked is written
first; another wish is refused by the name that differs. A part is sealed with its name: one that is
torn, damaged or another's is made again. Nothing here knows what the work is.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from lmexposure import _written
from lmexposure._files import PRIVATE, canonical_json, only_writer, sha256_bytes
from lmexposure._integrity import read_sealed, write_sealed
from lmexposure._record import JsonValue, plain
from lmexposure._style import visible
from lmexposure.core.study import ASKED, HOME, Study, read_asked, refuse_other_study
from lmexposure.errors import ResultError

_Kind = TypeVar("_Kind", bound=Study)
_DIGITS = 16  # of a hash, in the name of a part
_TOLD = 200  # characters of two values that a refusal names
REPORTS: tuple[str, ...] = (
    "report.html",
    "report.md",
    "report.csv",
)  # what a command writes beside a record


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of work that is kept as bytes."""

    path: Path
    of: str = ""  # what it is a part of, where its name does not say so

    def read(self) -> bytes | None:
        """What was kept; None where nothing was, or it is damaged or another part."""
        return read_sealed(self.path, of=self._named)

    def write(self, data: bytes) -> None:
        """Keep it, whole or not at all, for its owner alone."""
        write_sealed(self.path, data, mode=PRIVATE, of=self._named)

    @property
    def _named(self) -> str:
        return f"{self.path.name} {self.of}"


@dataclass(frozen=True, kw_only=True)
class Work(Generic[_Kind]):
    """One piece of work in a directory that is held: it ends in a study of a kind."""

    kind: type[_Kind]
    out: Path
    asked: Mapping[str, JsonValue]  # all that decides its outcome, by names that people know

    def finished(self) -> _Kind | None:
        """The study that this very work has made; None: it is not done yet."""
        kind = self.kind
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


@dataclass(frozen=True, kw_only=True)
class Held(Generic[_Kind]):
    """A directory that is held for a study of a kind."""

    kind: type[_Kind]
    out: Path

    @property
    def begun(self) -> bool:
        """Whether work was begun there before."""
        return (self.out / HOME / ASKED).exists()

    @contextmanager
    def work(
        self,
        asked: Mapping[str, JsonValue],
        *,
        hidden: Collection[str] = (),  # names whose values no message shows
        anew: bool = False,  # instead of refusing another wish
    ) -> Iterator[Work[_Kind]]:
        """Begin what is asked, or go on with it."""
        home, work = self.out / HOME, Work(kind=self.kind, out=self.out, asked=asked)
        before = read_asked(self.out)
        if anew and (before is None or before.asked != plain(dict(asked))):
            _written.remove(home)
            before = None
        elif before is None and self.begun:
            raise ResultError(
                f"{visible(home / ASKED)} is damaged, so that nothing says what this work was; "
                "move it away, and give the same command again"
            )
        if before is None:
            told = {"kind": self.kind.KIND, "asked": dict(asked)}
            write_sealed(home / ASKED, canonical_json(told), mode=PRIVATE)
        else:
            refuse_other_wish(self.kind, self.out, before.asked, asked, hidden)
        try:
            yield work
        except BaseException:
            if before is None and not work._parts():
                _written.remove(home)
            raise


@contextmanager
def claimed(
    kind: type[_Kind],
    out: str | Path,
    *,
    writes: Iterable[str] = (),  # names, or patterns, of what goes next to the record
    beside: Iterable[str] = (),  # files of other studies that it may lie next to
) -> Iterator[Held[_Kind]]:
    """Hold a directory for a study until the block ends, against other writers and kinds."""
    out = Path(out)
    with only_writer(out):
        refuse_other_study(out, (kind.NAME, *beside), kind.KIND)
        _written.refuse_foreign(out, (kind.NAME, HOME, *writes))
        yield Held(kind=kind, out=out)


def refuse_other_wish(
    kind: type[Study],
    out: Path,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    hidden: Collection[str] = (),  # named after those whose values are shown
) -> None:
    """Refuse another wish than what a directory was begun for, by the first name that differs."""
    names = dict.fromkeys((*now, *before))
    before, now = (json.loads(canonical_json(dict(values))) for values in (before, now))
    for name in sorted(names, key=lambda name: name in hidden):
        then, asked = before.get(name), now.get(name)
        if then != asked:
            raise ResultError(
                f"{visible(out)} holds another {kind.WHAT.partition(' ')[2]}: its {name} "
                f"{_differ(name, then, asked, hidden)}; choose another directory, or what was "
                "asked then"
            )


def _differ(name: str, then: JsonValue, now: JsonValue, hidden: Collection[str]) -> str:
    """How two values differ; of hidden ones only whether they were given."""
    if name not in hidden:
        told = f"was {then!r}, now {now!r} is asked for"
        return told if len(told) <= _TOLD else "was another"
    if then is None:
        return "was not given, and now it is"
    return "was given, and now it is not" if now is None else "was another"
