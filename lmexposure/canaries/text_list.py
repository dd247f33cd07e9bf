"""The kind "texts": canaries from a file, one text a line, made by whoever knows what to hide.

The file's lines are sorted before any is drawn, so that their order decides nothing: which texts
are candidates, and which of these are in, follows from the seeds alone.
"""

import unicodedata
from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from lmexposure._files import read_bytes, sha256_bytes
from lmexposure.canaries.choosing import Kind, Material
from lmexposure.canaries.format import Format, first_nested
from lmexposure.canaries.plan import permutation
from lmexposure.errors import CorpusError, PlanError

_LONGEST = 1_000  # characters of a text: a canary is to fit into one row of a training
_CONTROLS = ("Cc", "Zl", "Zp")  # Unicode's categories of what ends or disturbs a line
_INVISIBLE = "Cf"  # of what changes how a line is shown, or nothing at all
_JOINERS = "\u200c\u200d"  # are of it, and spell words of some scripts, and emoji
_TOGETHER = 512  # documents that are searched at once
_STDIN = "-"


def _choose(material: Material) -> Sequence[Format]:
    """Texts drawn uniformly from those of the file that the corpus does not hold."""
    path = _path(material)
    content = _content(path)
    lines = _lines(path, content)
    free = _drawn(sorted(lines.values()), material)
    if len(free) < material.count:
        held = len(lines) - len(free)
        raise PlanError(
            f"{path} has {len(free):,} texts that can be canaries{_those(held)}, and "
            f"{material.count:,} are planned: canaries in each class of repetitions, and controls; "
            f"plan at most {len(free):,} (canaries=..., repetitions=..., controls=...), or give "
            "more lines"
        )
    return [
        Format.of_texts(
            TEXTS.name,
            free,
            kind=TEXTS.name,
            description=TEXTS.meaning,
            source=_source(content),
        )
    ]


def _those(held: int) -> str:
    return f" ({held:,} more are in the corpus)" if held else ""


def _unchanged(form: Format, material: Material) -> bool:
    return form.source == _source(_content(_path(material)))


def _source(content: bytes) -> str:
    """What a manifest says of the file."""
    return f"a file of texts, SHA-256 {sha256_bytes(content)}"


def _path(material: Material) -> Path:
    if material.texts is None:
        raise PlanError("kind texts needs a file, one text a line; give texts")
    return material.texts


def _content(path: Path) -> bytes:
    if str(path) == _STDIN:
        raise CorpusError(
            "texts='-': texts are read again when a command goes on, and standard input is there "
            "once; write them to a file and name that"
        )
    if path.exists() and not path.is_file():
        what = "a directory" if path.is_dir() else "no regular file"
        raise CorpusError(f"{path} is {what}; give a text file, one text a line")
    try:
        return read_bytes(path)
    except OSError as failure:
        raise CorpusError(
            f"cannot read {path}: {failure.strerror}; give a text file, one text a line"
        ) from failure


def _lines(path: Path, content: bytes) -> dict[int, str]:
    """Its texts by the number of their line, from 1; each sound, and none within another."""
    content = content.removeprefix(BOM_UTF8)
    try:
        text = content.decode()
    except UnicodeDecodeError as failure:
        place = content.count(b"\n", 0, failure.start) + 1
        raise CorpusError(f"{path}, line {place}: not UTF-8; give a text file in UTF-8") from None
    every = enumerate((line.strip() for line in text.split("\n")), 1)
    lines = {number: line for number, line in every if line}
    if not lines:
        raise CorpusError(f"{path} has no line with a text; give one text a line")
    for number, line in lines.items():
        if wrong := _wrong(line):
            raise CorpusError(f"{path}, line {number}: {wrong}")
    _refuse_alike(path, lines)
    return lines


def _wrong(line: str) -> str:
    """Why a line is no text of a canary; "" where it is."""
    for character in line:
        kind = unicodedata.category(character)
        if kind in _CONTROLS or (kind == _INVISIBLE and character not in _JOINERS):
            what = "invisible" if kind == _INVISIBLE else "control"
            return (
                f"holds the {what} character U+{ord(character):04X}; leave it out, or write a space"
            )
    if len(line) > _LONGEST:
        return f"{len(line):,} characters; give at most {_LONGEST:,} in a line"
    return ""


def _refuse_alike(path: Path, lines: dict[int, str]) -> None:
    """Refuse two lines that look alike but for case and spaces, and one within another."""
    first: dict[str, int] = {}
    for number, line in lines.items():
        before = first.setdefault(_folded(line), number)
        if before != number:
            raise CorpusError(
                f"{path}, lines {before} and {number}: the same text, but for case, spaces "
                "and how Unicode spells it; keep one of them"
            )
    numbers = list(lines)
    if (pair := first_nested(list(lines.values()))) is not None:
        inner, outer = (numbers[place] for place in pair)
        raise CorpusError(
            f"{path}, lines {inner} and {outer}: the text of line {inner} is within that of line "
            f"{outer}, so that a copy of one would count as a copy of the other; keep one of them"
        )


def _folded(line: str) -> str:
    """What two lines that read alike have in common: "é" is one character, or two."""
    folded = unicodedata.normalize("NFKC", line).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def _drawn(texts: Sequence[str], material: Material) -> list[str]:
    """As many as are wanted, of those that no document holds; fewer where no more are left."""
    order = permutation(len(texts), material.seed_of(TEXTS.name))
    free: list[str] = []
    tried = 0
    while len(free) < material.count and tried < len(texts):
        # At least as many as before: the corpus is read anew for them.
        more = [texts[place] for place in islice(order, max(material.count - len(free), tried))]
        tried += len(more)
        held = held_in(more, material.documents())
        free += [text for text in more if text not in held]
    return free[: material.count]


def held_in(texts: Sequence[str], documents: Iterable[str]) -> set[str]:
    """Which of the texts are part of a document."""
    from lmexposure.canaries.text_search import TextSearch  # brings numpy: no help waits for it

    search, waiting = TextSearch(texts), iter(documents)
    held: set[str] = set()
    while together := list(islice(waiting, _TOGETHER)):
        data = "\n".join(together).encode(errors="surrogatepass")
        held.update(texts[number] for _, _, number in search.found(data))
    return held


TEXTS = Kind(
    name="texts",
    meaning="a line of a file, chosen by whoever made the file",
    secret="all of it",
    choose=_choose,
    unchanged=_unchanged,
    needs="texts",
)
