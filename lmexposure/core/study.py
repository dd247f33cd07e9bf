"""A study: what was measured, in one file, and what it tells; judged and shown alike.

A kind is one class with a `KIND`, a `document` and `checks`; its module says all of it,
and `registry` knows where it is. A directory or a file holds one study, done or begun: it is opened
(`open_study`), or refused to another kind.
"""

import errno
import json
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from lmexposure import __version__
from lmexposure._files import (
    PRIVATE,
    canonical_json,
    is_held,
    open_regular,
    read_bytes,
    sha256_bytes,
)
from lmexposure._integrity import check_seal, read_sealed
from lmexposure._record import FileRecord, JsonValue, Sha256, Utc
from lmexposure._settings import settings_of
from lmexposure._style import short_hash, visible
from lmexposure._validate import of_type, one_of
from lmexposure.core.check import Check, CheckKind, Thresholds, Verdict, verdict_of
from lmexposure.core.document import Document, Fact, Section, answers_of, date_of, next_steps
from lmexposure.core.registry import BEGUN, OTHERS, PARTS, kinds, own_records
from lmexposure.core.render import as_cell, as_frame
from lmexposure.errors import ResultError, SettingsError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from lmexposure.core.charts import Chart

_CONTENT = re.compile(rb'"content_sha256": ?"([0-9a-f]{64})"')
# Names of directories that many trainings have.
_GENERIC = re.compile(
    r"(?:final[-_])?(?:model|adapter|weights|output|out)s?|checkpoints?(-\d+)?|best"
)
_FROM = "_home"
_TAB = ("notes", "plot", "save", "to_frame", "when")
_MOST_LINES = 8  # of checks on a first screen
HOME: str = ".work"  # of work under way, in the directory of its study
ASKED = "asked.json"
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_SCHEMA = re.compile(rb'"schema": ?"lmexposure\.([\w-]+)/\d')
_LOOKED_AT = 2**20  # bytes of a file, whose schema may come after longer parts


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What the numbers were made by, when, and of what."""

    lmexposure: str  # the version
    measured: str | None  # when, in UTC; None: not known
    hashes: Mapping[str, str]  # of what, by name; the first is shown
    model: str = ""  # the name of what was measured; "" where it has none

    @property
    def date(self) -> str:
        """The date in words."""
        return "date unknown" if self.measured is None else f"measured {self.measured}"

    @property
    def line(self) -> str:
        """All of it on one line.

        >>> said = {"lmexposure": "0.1.0", "measured": "2026-11-22T06:30:00Z"}
        >>> Provenance(**said, hashes={"inputs_sha256": "ab" * 32}).line
        'lmexposure 0.1.0, measured 2026-11-22T06:30:00Z; inputs abababababab'
        """
        name, sha256 = next(iter(self.hashes.items()))
        what = f"{name.removesuffix('_sha256')} {short_hash(sha256)}"
        model = f"{visible(self.model)}, " if self.model else ""
        return f"lmexposure {self.lmexposure}, {self.date}; {model}{what}"

    def to_dict(self) -> dict[str, str | None]:
        """Plain values, hashes in full."""
        model = {"model": self.model} if self.model else {}
        return {"lmexposure": self.lmexposure, "measured": self.measured, **model, **self.hashes}


@dataclass(frozen=True, kw_only=True)
class Number:
    """A main number of a study, for setting two studies side by side."""

    name: str
    value: float | None
    low: float | None = None  # low, high: ends of its interval, where it has one
    high: float | None = None
    unit: str = ""
    worse: Literal["", "high", "low"] = ""
    subtracted: bool = True  # whether one study's less another's says something; of p it does not


class Study(FileRecord):
    """What was measured, and what it tells: of a kind with its date in its record, a `Dated`."""

    KIND: ClassVar[str] = ""  # of its command, its file and its schema: "canife"
    WHAT: ClassVar[str]  # what it is, in a message: "a federated training"
    PRIVATE: ClassVar[bool] = False  # its file is for its owner alone
    FILES: ClassVar[Sequence[str]] = ("html", "md")  # formats of the report beside it
    LIMITS: ClassVar[frozenset[str]] = frozenset()  # names of `Thresholds` that it is held against
    CHECKS: ClassVar[Mapping[str, CheckKind]] = {}  # of its checks, in their order
    VERSION: ClassVar[int] = 1
    TAB: ClassVar[Sequence[str]] = ()  # what the Tab key offers, where its fields are too many
    ERROR = ResultError

    lmexposure: str  # the version
    inputs_sha256: Sha256  # of all that decides the numbers

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.NAME, cls.FAMILY = f"{cls.KIND}.json", f"lmexposure.{cls.KIND}"

    @property
    @abstractmethod
    def when(self) -> str | None:
        """When it was measured, in UTC; None: not known."""

    @abstractmethod
    def document(self) -> Document:
        """All that it tells."""

    @abstractmethod
    def checks(self, limits: Thresholds) -> Iterator[Check | str]:
        """The checks that can be made; as a text what was not tested, and why."""

    @abstractmethod
    def numbers(self) -> Iterator[Number]:
        """Its main numbers."""

    @abstractmethod
    def asked(self) -> Mapping[str, JsonValue]:
        """What was asked for: the settings that decided the numbers."""

    def with_secrets(self) -> Document:
        """As `document`, with the secrets or texts that it is of; refused where it holds none."""
        raise SettingsError(f"{self.WHAT} holds no secrets, so none are shown; leave that out")

    def told_beside(self, studies: "Sequence[tuple[str, Self]]") -> str:
        """What such a comparison found, in a sentence or more; "": its first number says it."""
        return ""

    def beside(self, studies: "Sequence[tuple[str, Self]]") -> Iterator[Section]:
        """What a comparison says beyond main numbers, of named studies, this one first."""
        yield from ()

    def steps(self, verdict: Verdict) -> Iterator[str]:
        """What to do after a verdict, a sentence each, the most urgent first."""
        return next_steps(verdict)

    def sure(self, verdict: Verdict, limits: Thresholds) -> Iterator[str]:
        """How often such verdicts err, a sentence each."""
        yield from ()

    def qualified(self, verdict: Verdict, limits: Thresholds) -> Verdict:
        """The verdict with what must be said with it."""
        return verdict

    def short_of(self, verdict: Verdict) -> str:
        """Its finding on a first screen; "" where that of the verdict does."""
        return ""

    def since(self) -> Iterator[Fact]:
        """When which version measured what, and on which data."""
        name, sha256 = next(iter(self.provenance.hashes.items()))
        told = {"model": self.model_name, **self.of_data()}
        yield from (Fact(name=what, value=visible(said)) for what, said in told.items() if said)
        yield Fact(name="measured", value=date_of(self.when))
        yield Fact(name="lmexposure", value=self.lmexposure)
        yield Fact(name=f"{name.removesuffix('_sha256')}, SHA-256", value=short_hash(sha256))

    def told(self, limits: Thresholds | None = None, *, show_secrets: bool = False) -> Document:
        """The document with its verdict before it: what a report shows."""
        limits = Thresholds() if limits is None else limits
        verdict = judged(self, limits)
        answers = answers_of(
            verdict,
            since=tuple(self.since()),
            steps=tuple(self.steps(verdict)),
            sure=tuple(self.sure(verdict, limits)),
            finding=self.short_of(verdict),
            most=_MOST_LINES,
        )
        shown = self.with_secrets() if show_secrets else self.document()
        document = replace(shown, private=shown.private or show_secrets, secrets=show_secrets)
        return replace(document, verdict=verdict, answers=answers)

    @property
    def home(self) -> Path | None:
        """The directory that its file lies in; None: it is in memory alone."""
        home: Path | None = self.__dict__.get(_FROM)
        return home

    def in_memory(self) -> Self:
        """The same study, after what it reads next to its file was read: that may go away."""
        self.__dict__.pop(_FROM, None)
        return self

    @property
    def model_name(self) -> str:
        """Of the model that was measured, as people tell it; "" where there is none of its own."""
        return ""

    def of_data(self) -> Mapping[str, str]:
        """Which "corpus" it is of, and of which "data" in it a leak would be, in words."""
        return {}

    @property
    def hashes(self) -> dict[str, str]:
        """Of what it was made from."""
        return {"inputs_sha256": self.inputs_sha256}

    @property
    def beside_it(self) -> Mapping[str, str]:
        """Files next to its own that it was made from or with, and the hash of what each holds."""
        return {}

    @property
    def notes(self) -> Sequence[str]:
        """What its reader must know, a sentence each: the warnings of its record."""
        warnings: Sequence[str] = getattr(self, "warnings", ())
        return warnings

    @property
    def provenance(self) -> Provenance:
        """Which version, when, and of what."""
        return Provenance(
            lmexposure=self.lmexposure,
            measured=self.when,
            hashes=self.hashes,
            model=self.model_name,
        )

    def to_frame(self) -> "pd.DataFrame":
        """The main table as a pandas frame: a row for each thing that was measured."""
        return as_frame(self.document())

    def plot(self, name: str = "") -> "Chart":
        """A chart of its report, by default the first; a notebook shows it.

        Raises:
            SettingsError: it has no charts, or none of this name.
        """
        charts = {chart.name: chart for chart in self.document().drawings()}
        if not charts:
            raise SettingsError(f"{self.WHAT} has no charts; see to_frame() for its numbers")
        return charts[one_of("name", name, tuple(charts)) if name else next(iter(charts))]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.provenance.line}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return as_cell(self.told())

    def __dir__(self) -> list[str]:
        """What a person needs of it, for the Tab key; all else is there too."""
        own = type(self).model_fields.keys() - Dated.model_fields.keys() - {"warnings"}
        return sorted(self.TAB or (*_TAB, *(name for name in own if "sha256" not in name)))

    def same_as(self, other: Self) -> bool:
        """Whether a file holds this very study."""
        return self == other

    def save(self, out: str | Path) -> Path:
        """Write its file into a directory, whole or not at all; where it is."""
        path = Path(out) / self.NAME
        self.write(path, mode=PRIVATE if self.PRIVATE else 0o644)
        self.__dict__[_FROM] = path.parent  # as a cached property: no field, and nothing compared
        return path

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read its file, or that of its directory."""
        made = super().read(path)
        path = Path(path)
        home = path if path.is_dir() else path.parent
        if path.is_dir() or path.name == cls.NAME:
            made.refuse_strange(home)
        made.__dict__[_FROM] = home
        return made

    def refuse_strange(self, home: Path) -> None:
        """Refuse a file next to its own that is another study's, as far as it may be read."""
        for name, sha256 in self.beside_it.items():
            try:
                content = read_bytes(home / name)
            except OSError:
                continue
            if sha256.encode() not in _CONTENT.findall(content):
                raise ResultError(
                    f"{visible(home / name)} is of another study than {self.NAME} next to it; put "
                    f"back the one that belongs to it, or move {self.NAME} to a directory of its "
                    "own"
                )


class Dated(Study):
    """A study whose record holds its date. All numbers are Python's own."""

    measured: Utc  # when, in UTC

    @classmethod
    def now(cls, *, inputs_sha256: str = "", **fields: Any) -> Self:
        """What was measured now, by this version; by default known by all that it holds."""
        made = cls(
            inputs_sha256=inputs_sha256 or "0" * 64,
            measured=utc_now(),
            lmexposure=__version__,
            **fields,
        )
        if inputs_sha256:
            return made
        known = made.model_dump(mode="json", exclude=set(Dated.model_fields))
        return made.model_copy(update={"inputs_sha256": sha256_bytes(canonical_json(known))})

    @property
    def when(self) -> str:
        """When it was measured."""
        return self.measured


def telling_name(path: str, within: str = "") -> str:
    """As much of a model's path, or name on a hub, as tells which it is; `within`: where it lies.

    >>> telling_name("runs/chats/model"), telling_name("/data/chats/model/checkpoint-500")
    ('chats/model', 'chats/model/checkpoint-500')
    >>> telling_name("org/name"), telling_name("gpt2"), telling_name("model", within="chats")
    ('org/name', 'gpt2', 'chats/model')
    """
    parts = [*filter(None, [within]), *PurePosixPath(path).parts]
    own = (place for place, part in enumerate(reversed(parts), 1) if not _GENERIC.fullmatch(part))
    return "/".join(parts[-max(2, next(own, len(parts))) :]).replace("//", "/")


def utc_now() -> str:
    """This moment in UTC, to the second: "2026-11-22T06:30:00Z"."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def judged(study: Study, limits: Thresholds | None = None) -> Verdict:
    """The verdict on a study."""
    limits = Thresholds() if limits is None else limits
    of_type("thresholds", limits, Thresholds, "Thresholds(max_epsilon=8)")
    _refuse_others(study, limits)
    said = list(study.checks(limits))
    checks = [_asked(check, limits) for check in said if isinstance(check, Check)]
    untested = [line for line in said if isinstance(line, str)]
    verdict = replace(
        verdict_of(checks, untested, study.CHECKS), charts=lambda: study.document().drawings()
    )
    return study.qualified(verdict, limits)


def _asked(check: Check, limits: Thresholds) -> Check:
    """A check that the user set the threshold of says so, whoever made it."""
    given = check.key in settings_of(Thresholds) and limits.asked(check.key)
    return replace(check, asked=True) if given else check


def _refuse_others(study: Study, limits: Thresholds) -> None:
    """A threshold that a study cannot be held against would be without effect."""
    for name, declared in settings_of(Thresholds).items():
        value = getattr(limits, name)
        if name not in study.LIMITS and value != declared.default:
            fitting = ", ".join(sorted(study.LIMITS))
            remedy = f"leave it out, or give {fitting}" if fitting else "leave it out"
            raise SettingsError(f"{name}={value!r} does not apply to {study.WHAT}; {remedy}")


def kind_of(name: str) -> type[Study]:
    """The class of a kind."""
    module, _, cls = kinds()[name].partition(":")
    found: type[Study] = getattr(import_module(module), cls)
    if name != found.KIND:
        raise SettingsError(
            f"{module}:{cls} is registered as {name!r} and has KIND={found.KIND!r}; give both one "
            "name"
        )
    return found


def open_study(path: str | Path) -> Study:
    """Read a study of any kind: its directory, or its file."""
    _refuse_no_path(path)
    kind = _kind_at(Path(path))
    if kind is None:
        files = ", ".join(own_records())
        raise ResultError(f"{visible(path)} holds no study; give one of {files}, or its directory")
    _refuse_begun(Path(path), kind)
    return kind_of(kind).read(path)


def _refuse_no_path(path: str | Path) -> None:
    """Refuse a path where nothing is, or that no disk can have."""
    try:
        Path(path).stat()
    except (OSError, ValueError) as failure:  # a null character is Python's own ValueError
        why = f"which cannot be read ({getattr(failure, 'strerror', failure)}); give another path"
        if getattr(failure, "errno", None) in _NOTHING:
            why = "where nothing is; give the directory of a study"
        raise ResultError(f"no study at {visible(path)[:1000]}, {why}") from None


def _kind_at(path: Path) -> str | None:
    """The kind of study that a directory or a file holds; None: none of those that there are."""
    if not path.is_dir():
        return _kind_in(path)
    every = [kind for kind in kinds() if (path / f"{kind}.json").exists()]
    there = [kind for kind in every if kind not in PARTS]
    by_file = (kind for kind, name in BEGUN.items() if (path / name).exists())
    work = read_asked(path)
    begun = next(by_file, work.kind if work is not None and work.kind in kinds() else None)
    there = there or ([] if begun else every)  # parts of a study that is not done are none
    if len(there) > 1:
        files = ", ".join(f"{kind}.json" for kind in there)
        raise ResultError(f"{visible(path)} holds several studies ({files}); name one file")
    return next(iter(there), begun)


def _kind_in(path: Path) -> str | None:
    """The kind that a file is of: as it says; as it is called where it is torn."""
    try:
        with open_regular(path) as stream:
            schema = _SCHEMA.search(stream.read(_LOOKED_AT))
    except OSError:
        schema = None
    known = kinds()
    called = path.stem if path.suffix == ".json" and path.stem in known else None
    kind = called if schema is None else schema[1].decode()
    if kind not in known:
        return None
    if called not in (None, kind):
        raise ResultError(
            f"{visible(path)} has the name of {kind_of(str(called)).WHAT}, and holds "
            f"{kind_of(str(kind)).WHAT}; put back the one that belongs there, or call it "
            f"{kind}.json"
        )
    return kind


def _refuse_begun(path: Path, kind: str) -> None:
    """Say of work that is not done what there is to do."""
    if not path.is_dir() or (path / f"{kind}.json").exists() or read_asked(path) is None:
        return
    if is_held(path):
        why = "another process is at work there; wait until it has ended"
    else:
        why = "it is not done: give its command again"
    raise ResultError(f"{visible(path)} holds {kind_of(kind).WHAT} without {kind}.json; {why}")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What work was begun for: the kind of study, and what decides its outcome, by names."""

    kind: str
    asked: Mapping[str, JsonValue]


def read_asked(out: Path) -> Asked | None:
    """What a directory's work was begun for; None where nothing says so, or it is damaged."""
    path = out / HOME / ASKED
    try:
        content = read_sealed(path) if path.exists() and check_seal(path) else None
        return None if content is None else Asked(**json.loads(content))
    except (OSError, TypeError, ValueError):  # no file, or as another version wrote it
        return None


def refuse_other_study(out: Path, own: Collection[str], name: str) -> None:
    """Refuse a directory that holds another kind of study, whose files this one would replace."""
    by_file = {
        **OTHERS,
        **{file: kind for kind, file in BEGUN.items()},
        **{f"{kind}.json": kind for kind in kinds() if kind not in PARTS},
    }
    ours = {by_file[file] for file in own if file in by_file}
    held = [(file, kind) for file, kind in by_file.items() if (out / file).exists()]
    if (begun := read_asked(out)) is not None:
        held.append((f"{HOME}/{ASKED}", begun.kind))
    for file, kind in held:
        if kind not in ours:
            what = kind_of(kind).WHAT if kind in kinds() else visible(kind)
            raise ResultError(
                f"{visible(out)} holds {what} ({file}), whose files this would replace; give "
                f"another directory, such as {visible(out / name)}"
            )
