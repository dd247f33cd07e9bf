"""A canary format: a text with holes, and its randomness space; those that ship, and files."""

import difflib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmexposure._files import read_toml
from lmexposure._types import Checked, Count, Rows
from lmexposure._validate import integer
from lmexposure.canaries.language import Language, ambiguous_text, may_nest
from lmexposure.canaries.template import CheckDigit, Literal, Part, clean_lists, parse_template
from lmexposure.errors import FormatError

if TYPE_CHECKING:
    from lmexposure.canaries.text_search import TextSearch

    Lists = Mapping[str, Sequence[str]]
else:  # what became of them
    Lists = dict[str, Rows[str]]

# Python refuses to write integers of more than 4300 digits, and manifests hold them as decimals.
LARGEST_SIZE = 10**4000
UNIFORM = "uniform"
# Kinds of the copies of near-duplicates, which are not audited: with coins of their own, or
# inserted whatever coins say.
PARTNER, ALWAYS = "near_duplicate_partner", "near_duplicate_partner_always"
PARTNERS = (PARTNER, ALWAYS)
# Of a format of chosen texts: its one list, and its template.
_TEXTS = "texts"
_OF_TEXTS = f"{{choice:{_TEXTS}}}"
_FOLDER = "canary_formats"
_KEYS = {"name", "template", "lists", "description", "source"}  # of a file
_SMALL_BITS = 13.3  # log2 of the 10,000 references that are scored by default
_BEGINNING = 8  # characters by which a text within another is looked up


@dataclass(frozen=True, kw_only=True)
class Format(Checked):
    """A text with holes; its secrets are numbered 0 .. size - 1, the first hole most significant.

    Raises:
        FormatError: see `parse_template`; also two secrets that give one text, fewer than 2 or more
            than `LARGEST_SIZE` secrets, a bad name.

    >>> pin = Format(name="pin", template="My PIN is {digits:4}.")
    >>> pin.size, round(pin.bits, 2), pin.text(42), pin.index("My PIN is 0042.")
    (10000, 13.29, 'My PIN is 0042.', 42)
    """

    name: str
    """Lower-case letters, digits and underscores; ids and file names have it."""
    template: str
    """Python format-string syntax with the holes `{digits:n}` 0-9, `{lower:n}` a-z, `{upper:n}`
    A-Z, `{alnum:n}` a-z0-9, `{hex:n}` 0-9a-f, `{printable:n}` ! to ~, `{choice:list}` an entry of a
    list, `{luhn}` the check digit of all digits before it.
    """
    lists: Lists = field(default_factory=dict, hash=False, repr=False)
    """The entries of each list, in order."""
    description: str = ""
    """One line for people."""
    source: str = ""
    """Where the shape comes from."""
    kind: str = UNIFORM
    """"uniform": every fill is as likely to be drawn as any other, so that fills which were not can
    be ranked against; else a kind of `canaries.kinds`, whose texts were chosen one by one, see
    `of_texts`.
    """
    known: Rows[Count] = field(default=(), repr=False)
    """Of chosen texts, how many characters at the beginning of each are no secret; empty: all of
    each is one.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch("[a-z0-9_]+", self.name):
            raise FormatError(f"format name {self.name!r} must match [a-z0-9_]+")
        try:
            object.__setattr__(self, "lists", clean_lists(self.lists))
            self._check()
        except FormatError as failure:
            raise FormatError(f"format {self.name!r}: {failure}") from None

    def _check(self) -> None:
        for what in ("description", "source"):
            if not isinstance(getattr(self, what), str):
                raise FormatError(f"{what} must be a string")
        self._check_kind()
        digits = sum(math.log10(part.size) for part in self._parts)  # the product may take minutes
        if digits > 4001 or not 2 <= self.size <= LARGEST_SIZE:
            few = "fewer than 2" if digits < 0.2 else "more than 10^4000"
            raise FormatError(f"{few} ways to fill {self.template!r}; widen or narrow its holes")
        text = ambiguous_text(self._parts)
        if text is not None:
            index, other = list(self._readings(text, 0)[len(text)])[:2]
            raise FormatError(
                f"secrets {index} and {other} both give the text {text!r}; put a literal between "
                "the holes, or keep list entries from beginning with one another"
            )

    def _check_kind(self) -> None:
        object.__setattr__(self, "known", tuple(self.known))
        if self.kind == UNIFORM:
            if self.known:
                raise FormatError("known goes with chosen texts alone; leave it out")
            return
        if self.template != _OF_TEXTS or set(self.lists) != {_TEXTS}:
            raise FormatError(f"kind {self.kind!r} needs the template {_OF_TEXTS!r} and its list")
        if not self.known:
            return
        lengths = [len(text) for text in self.lists[_TEXTS]]
        if len(self.known) != len(lengths) or not all(
            0 <= n < length for n, length in zip(self.known, lengths, strict=False)
        ):
            raise FormatError("known must be a number for each text, from 0, below its length")

    @classmethod
    def of_texts(
        cls,
        name: str,
        texts: Sequence[str],
        *,
        kind: str,
        known: Sequence[int] = (),
        description: str = "",
        source: str = "",
    ) -> "Format":
        """A format whose fills are these texts, chosen one by one: it has no ranks.

        >>> chosen = Format.of_texts(
        ...     "new_token", ["a b !", "a c ?"], kind="new_token", known=[4, 4]
        ... )
        >>> chosen.is_uniform, chosen.text(1), chosen.free_mask(1)
        (False, 'a c ?', (False, False, False, False, True))
        """
        return cls(
            name=name,
            template=_OF_TEXTS,
            lists={_TEXTS: tuple(texts)},
            description=description,
            source=source,
            kind=kind,
            known=tuple(known),
        )

    @property
    def is_uniform(self) -> bool:
        """Whether its secrets are drawn uniformly from all fills, and so have ranks."""
        return self.kind == UNIFORM

    @cached_property
    def _parts(self) -> tuple[Part, ...]:
        return parse_template(self.template, {k: tuple(v) for k, v in self.lists.items()})

    @cached_property
    def size(self) -> int:
        """The exact number of secrets |R|."""
        return math.prod(part.size for part in self._parts)

    @property
    def bits(self) -> float:
        """log2 of the size: how many bits a secret holds, and the cap of its exposure."""
        return math.log2(self.size)

    @property
    def prefix(self) -> str:
        """The literal text before the first hole."""
        first = self._parts[0]
        return first.text if isinstance(first, Literal) else ""

    @property
    def characters(self) -> str:
        """Every character that some fill holds, each once, sorted: what a tokenizer must know."""
        return "".join(sorted(set("".join(part.characters for part in self._parts))))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Finds where a fill may be inside any text (it does not check the check digit)."""
        return re.compile("".join(part.regex for part in self._parts))

    @property
    def texts(self) -> Sequence[str]:
        """Of chosen texts, all of them by index; of uniform fills, none."""
        return () if self.is_uniform else self.lists[_TEXTS]

    @cached_property
    def search(self) -> "TextSearch":
        """Finds chosen texts in data."""
        from lmexposure.canaries.text_search import TextSearch  # brings numpy: no help waits for it

        return TextSearch(self.texts)

    @cached_property
    def may_nest(self) -> bool:
        """Whether one fill can lie within another; a plan refuses such a format."""
        if self.is_uniform:
            return may_nest(self._parts)
        return first_nested(self.texts) is not None

    @cached_property
    def language(self) -> Language:
        """What may follow a beginning of a text; see `Language`."""
        return Language(self._parts)

    def text(self, index: int) -> str:
        """The fill with this index."""
        return "".join(self._written(index))

    def fills(self, index: int) -> tuple[str, ...]:
        """What is in each hole, in template order, derived holes included."""
        pieces = zip(self._parts, self._written(index), strict=True)
        return tuple(piece for part, piece in pieces if part.is_hole)

    def index(self, text: str) -> int:
        """The index of the secret that gives this text."""
        found = self._readings(text, 0).get(len(text))
        if not found:
            raise FormatError(
                f"the text ({len(text)} characters) is not of format {self.name!r}: "
                f"{self.template!r}"
            )
        return found[0]

    def longest_at(self, text: str, start: int) -> tuple[int, int] | None:
        """(end, index) of the longest fill that begins at `start` of a text, or None."""
        readings = self._readings(text, start)
        if not readings:
            return None
        end = max(readings)
        return end, readings[end][0]

    def sample(self, n: int, *, seed: int) -> list[int]:
        """`n` different indices, uniform without replacement; more of them begin with fewer."""
        from lmexposure.canaries.plan import permutation

        integer("n", n, low=0, high=self.size, error=FormatError)
        return list(islice(permutation(self.size, seed), n))

    def viable(self, text: str) -> bool:
        """Whether some fill begins with this text."""
        return self.language.advance(self.language.start, text) is not None

    def next_characters(self, text: str) -> str:
        """The characters that keep this beginning viable, sorted; "" when none does."""
        state = self.language.advance(self.language.start, text)
        return "" if state is None else self.language.next_characters(state)

    def complete(self, text: str) -> bool:
        """Whether this text is a fill."""
        state = self.language.advance(self.language.start, text)
        return state is not None and self.language.complete(state)

    def free_mask(self, index: int) -> tuple[bool, ...]:
        """For each character of this fill whether it is secret: in a hole, and no check digit."""
        return tuple(free for _, free in self._characters(index))

    def free_characters(self, index: int) -> int:
        """How many characters of this fill are secret: all in holes but the check digit."""
        return sum(free for _, free in self._characters(index))

    def revealed(self, index: int, k: int) -> str:
        """The beginning of the fill known to one who has the template and `k` free characters.

        It goes on over literal text and check digits for as long as these are certain.
        """
        integer("k", k, low=0, high=self.free_characters(index), error=FormatError)
        text, seen = "", 0
        for character, free in self._characters(index):
            if seen == k and (free or len(self.next_characters(text)) > 1):
                break
            text += character
            seen += free
        return text

    def fills_left(self, index: int, k: int) -> int:
        """How many fills agree with this one in its first `k` free characters."""
        integer("k", k, low=0, high=self.free_characters(index), error=FormatError)
        left = 1
        for part, piece in zip(self._parts, self._written(index), strict=True):
            if isinstance(part, CheckDigit) or not part.is_free:
                continue
            # Whoever knows what follows an entry knows that it was not a longer one.
            left *= 1 if k > len(piece) else part.left(piece[:k])
            k = max(0, k - len(piece))
        return left

    @classmethod
    def load(cls, name_or_path: str | Path) -> "Format":
        """A shipped format by its name, or your own from a `.toml` file.

        >>> Format.load("pin").size
        10000
        """
        return load_format(name_or_path)

    def _written(self, index: int) -> list[str]:
        """The text of every part."""
        integer("index", index, low=0, high=self.size - 1, error=FormatError)
        values = []
        for part in reversed(self._parts):
            index, value = divmod(index, part.size)
            values.append(value)
        pieces: list[str] = []
        for part, value in zip(self._parts, reversed(values), strict=True):
            pieces.append(part.write(value, "".join(pieces)))
        return pieces

    def _characters(self, index: int) -> Iterator[tuple[str, bool]]:
        """(character, whether it is free) along the text."""
        if not self.is_uniform:
            known = self.known[index] if self.known else 0
            yield from ((c, n >= known) for n, c in enumerate(self.text(index)))
            return
        for part, piece in zip(self._parts, self._written(index), strict=True):
            for character in piece:
                yield character, part.is_free

    def _readings(self, text: str, start: int) -> dict[int, list[int]]:
        """Where a fill that begins at `start` may end, and up to two indices for each end."""
        places = {start: [0]}
        for part in self._parts:
            reached: dict[int, list[int]] = {}
            for at, indices in places.items():
                for end, value in part.read(text, start, at):
                    found = reached.setdefault(end, [])
                    found.extend(index * part.size + value for index in indices)
                    del found[2:]
            places = reached
        return places


def first_nested(texts: Sequence[str]) -> tuple[int, int] | None:
    """The places of two texts of which the first is within the second; None: no two are so."""
    places = {text: place for place, text in enumerate(texts)}
    lengths: dict[str, set[int]] = {}  # of the texts with this beginning
    for text in places:
        lengths.setdefault(text[:_BEGINNING], set()).add(len(text))
    sizes = {len(beginning) for beginning in lengths}
    for outer, text in enumerate(texts):
        for at in range(len(text)):
            for length in {n for size in sizes for n in lengths.get(text[at : at + size], ())}:
                inner = places.get(text[at : at + length], outer)
                if inner != outer:
                    return inner, outer
    return None


@dataclass(frozen=True, kw_only=True)
class FormatCheck:
    """What the check of a format file found."""

    format: Format | None  # the format, or None when `problems` is not empty
    problems: tuple[str, ...] = ()  # why the file cannot be used
    advice: tuple[str, ...] = ()  # what would make a sound format measure better


@cache
def _shipped() -> dict[str, Format]:
    files = [file for file in _folder().iterdir() if file.name.endswith(".toml")]
    formats = [_sound(tomllib.loads(f.read_text(encoding="utf-8")), f.name) for f in files]
    return {found.name: found for found in sorted(formats, key=lambda found: found.name)}


def _folder() -> Traversable:
    """`canary_formats`: in the package where it was built, at the top of a checkout otherwise."""
    package = resources.files("lmexposure")
    built = package / _FOLDER
    return built if built.is_dir() else Path(str(package)).parent / _FOLDER


def shipped_formats() -> dict[str, Format]:
    """The formats that come with the package, by name, in alphabetical order."""
    return dict(_shipped())


def load_format(name_or_path: str | Path) -> Format:
    """A shipped format by its name, or one's own from a `.toml` file."""
    shipped = shipped_formats()
    if str(name_or_path) in shipped:
        return shipped[str(name_or_path)]
    path = Path(name_or_path)
    if path.suffix != ".toml" and not path.exists():
        near = difflib.get_close_matches(path.name.lower(), shipped, n=1)
        guess = f"did you mean {near[0]!r}? The" if near else "the"
        raise FormatError(
            f"no format {str(name_or_path)!r}; {guess} shipped ones are {', '.join(shipped)}; "
            "give the path of a .toml file to use your own"
        )
    return _sound(read_toml(path, what="format file", error=FormatError), str(path))


def check_format_file(path: str | Path) -> FormatCheck:
    """Check a format file without raising; for `lmexposure formats check`."""
    try:
        values = read_toml(Path(path), what="format file", error=FormatError)
        found = _sound(values, str(path))
    except FormatError as failure:
        return FormatCheck(format=None, problems=(str(failure),))
    return FormatCheck(format=found, advice=tuple(_advice(found)))


def _sound(values: dict[str, Any], where: str) -> Format:
    """The format of the values of a TOML file, which errors call so."""
    unknown, missing = set(values) - _KEYS, {"name", "template"} - set(values)
    try:
        if unknown or missing:
            wrong = ", ".join(sorted(unknown or missing))
            what = "unknown" if unknown else "missing"
            raise FormatError(f"{what} keys: {wrong}; a format has {', '.join(sorted(_KEYS))}")
        return Format(**values)
    except FormatError as failure:
        raise FormatError(f"{where}: {failure}") from None


def _advice(found: Format) -> Iterator[str]:
    if not found.prefix:
        yield "no literal text before the first hole: extraction has nothing to start from"
    if found.bits < _SMALL_BITS:
        yield f"only {found.bits:.1f} bits: exposure cannot go above that"
    if found.may_nest:
        yield (
            "one secret can lie within another, so that no plan takes it: put literal text before "
            "and after lists whose entries begin or end with one another"
        )
    if not found.description:
        yield "no description: say in one line what the secret stands for"
