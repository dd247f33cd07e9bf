"""Putting canaries among documents, whatever these are kept in; and into any iterable of texts."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lmexposure._validate import one_of
from lmexposure.canaries.checking import check_inserted
from lmexposure.canaries.format import Format
from lmexposure.canaries.manifest import CorpusRecord, Manifest
from lmexposure.canaries.plan import Canary, Plan
from lmexposure.canaries.plan import draw as draw_plan
from lmexposure.canaries.search import Found, count_fills
from lmexposure.errors import CorpusError

Existing = Literal["refuse", "set_aside"]


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What a first look at a corpus found.

    Attributes:
        documents: how many.
        sha256: of the corpus.
        fills: per format name, the fills that stand in it already.
        place: what a fill's place is called, "line" or "record".
    """

    documents: int
    sha256: str
    fills: Mapping[str, Found]
    place: str


def draw(
    plan: Plan, survey: Survey, existing: Existing
) -> tuple[tuple[Canary, ...], dict[str, tuple[int, ...]]]:
    """Draw the plan for this corpus: (candidates and controls, secrets set aside per format).

    Raises:
        CorpusError: fills stand in the corpus already, and `existing` is "refuse".
        PlanError: the corpus or a format is too small.
    """
    one_of("existing", existing, ("refuse", "set_aside"), error=CorpusError)
    found = {name: fills for name, fills in survey.fills.items() if fills.counts}
    if found and existing == "refuse":
        listed = "; ".join(
            f"{name} {fills.named(fills.counts, survey.place)}" for name, fills in found.items()
        )
        raise CorpusError(
            f"the corpus already holds fills: {listed}; choose another format, or set these fills "
            "aside (existing='set_aside', on the command line --existing set_aside)"
        )
    set_aside = {name: tuple(sorted(fills.counts)) for name, fills in found.items()}
    return draw_plan(plan, documents=survey.documents, set_aside=set_aside), set_aside


def schedule(canaries: Iterable[Canary]) -> list[tuple[int, Canary]]:
    """(number of the document, canary before it), in the order of insertion; ids settle ties."""
    places = [(place, one) for one in canaries if one.inserted for place in one.positions]
    return sorted(places, key=lambda pair: (pair[0], pair[1].id))


def insert_into_texts(
    texts: Iterable[str], plan: Plan, *, existing: Existing = "refuse"
) -> tuple[list[str], Manifest]:
    """Insert the plan's canaries among texts, each a document.

    Args:
        texts: any iterable; it is read once and kept in memory.
        plan: what to insert.
        existing: what to do about fills that stand in a text already: "refuse", or "set_aside":
            never draw them, and say so in the manifest.

    Returns:
        (the texts with the canaries among them, the manifest).

    Raises:
        CorpusError: no texts, one that is no string, or fills already there.
        PlanError: more repetitions than texts, or more secrets than a format has.
    """
    if isinstance(texts, str):
        raise CorpusError("texts is one string; give an iterable of strings, one for each document")
    documents = list(texts)
    survey = survey_texts(documents, plan.formats)
    canaries, set_aside = draw(plan, survey, existing)
    inserted = list(_merged(documents, schedule(canaries)))
    after = survey_texts(inserted, plan.formats)
    check_inserted(canaries, after.fills, set_aside)
    record = CorpusRecord(
        name="",
        layout="texts",
        text_field=None,
        constant_fields=(),
        separator=None,
        documents=survey.documents,
        sha256=survey.sha256,
        sha256_inserted=after.sha256,
        verified=True,
    )
    manifest = Manifest(plan=plan, corpus=record, entries=canaries, set_aside=set_aside)
    return inserted, manifest


def survey_texts(texts: Iterable[str], formats: Sequence[Format]) -> Survey:
    """A first look at texts: how many, their hash, and the fills in them.

    Raises:
        CorpusError: none, only blank ones, or one that is no string or not Unicode text.
    """
    digest, counted = hashlib.sha256(), [0, 0]

    def numbered() -> Iterator[tuple[int, str]]:
        for number, text in enumerate(texts, 1):
            digest.update(text_line(number, text))
            counted[0] += 1
            counted[1] += bool(text.strip())
            yield number, text

    fills = count_fills(formats, numbered(), whole_lines=False)
    documents, visible = counted
    if not visible:
        raise CorpusError(f"the corpus has {documents} records and none holds text; give some")
    return Survey(documents=documents, sha256=digest.hexdigest(), fills=fills, place="record")


def text_line(number: int, text: str) -> bytes:
    """What is hashed of a text: JSON, so that no two lists of texts look alike.

    Raises:
        CorpusError: it is no string, or not Unicode text.
    """
    if not isinstance(text, str):
        raise CorpusError(
            f"record {number} is of type {type(text).__name__}, not a string; name the field that "
            "holds the text, or leave such records out"
        )
    try:
        return json.dumps(text, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        raise CorpusError(
            f"record {number} is not Unicode text: it holds a lone surrogate; mend it"
        ) from None


def _merged(documents: Sequence[str], places: Sequence[tuple[int, Canary]]) -> Iterator[str]:
    waiting = iter(places)
    place, canary = next(waiting, (-1, None))
    for number, document in enumerate(documents):
        while canary is not None and place == number:
            yield canary.text
            place, canary = next(waiting, (-1, None))
        yield document
