"""The corpus of a run: canaries inserted once, with the manifest in its place.

Before it, and before a training is paid for: what it would do to the corpus (`preview`), and the
most that an audit of it can show (`max_attainable`).
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from lmexposure._files import only_writer, read_bytes, sha256_bytes
from lmexposure._saved_models import check_tokenizer
from lmexposure._style import percent
from lmexposure.canaries import (
    KINDS,
    OF_RECORDS,
    PARTNERS,
    UNIFORM,
    WITNESS,
    Files,
    Format,
    Manifest,
    Material,
    Plan,
    Preview,
    Reading,
    Wrapping,
    copies_of,
    corpus_files,
    fresh_seed,
    guess_layout,
    insert_copies,
    insert_through,
    is_stream,
    layout_for,
    listed_files,
    load_format,
    packing,
    preview_insertion,
    read_documents,
    read_records,
    refuse_inserted,
    spooled,
    witness_copies,
    wrapping_among,
)
from lmexposure.core import Thresholds
from lmexposure.errors import CorpusError, InputError, ResultError, SettingsError
from lmexposure.studies import REPETITIONS, RunSettings

# Beyond, the model learns the canaries as well, and is no longer the model of the corpus.
_FEWEST = Thresholds.min_canaries  # of a class: the gate takes no fewer for a pass
_MOST_OF_TOKENS, _MOST_OF_DOCUMENTS = 0.01, 0.05
# Beyond, the search takes longer than a person waits, and the claim is out of reach.
_MOST_CANDIDATES = 2**17
_CLOSE_ENOUGH = 1.05
# Of what a corpus can take, the part that numbers by default use: its documents are estimated.
_ROOM = 0.8
_SEEN = 1_000  # documents, from the first, that the estimate is made from
# Settings that a wrapping has by the same names.
_SAID = (
    *("form", "turn", "loss", "rendering", "system", "prompt_field", "completion_field"),
    "chat_date",
)


def plan_of(
    settings: RunSettings, *, seed: int | None = None, chosen: Sequence[Format] = ()
) -> Plan:
    """The plan that the settings ask for; secrets and coins without a seed are fresh."""
    plan = Plan(
        formats=(*map(load_format, settings.uniform_formats), *chosen),
        canaries=settings.per_class,
        repetitions=settings.classes,
        controls=settings.controls,
        seed=_seed(settings) if seed is None else seed,
        inclusion_probability=settings.inclusion_probability,
        inclusion_seed=fresh_seed() if _fresh_coins(settings) else settings.inclusion_seed,
        witness=settings.witness,
    )
    plan.check_space(references=settings.measure.references or 1)
    return plan


def _seed(settings: RunSettings) -> int:
    return fresh_seed() if settings.seed is None else settings.seed


def _fresh_coins(settings: RunSettings) -> bool:
    return settings.inclusion_probability is not None and settings.inclusion_seed is None


def fitted(
    settings: RunSettings, corpus: Files | IO[bytes], out: str | Path | None = None
) -> RunSettings:
    """With the repetitions that a corpus of this size can take, unless they are given.

    They are the most of `REPETITIONS` with which the canaries are too small a part of it to warn
    of; a stream, whose size is not known, gets the first of them. A directory keeps its own.
    """
    if settings.repetitions is not None or is_stream(corpus):
        return settings.resolved()
    if out is not None and (Path(out) / "manifest.json").exists():
        kept = Manifest.read(Path(out) / "manifest.json").plan.repetitions
        return replace(settings, repetitions=kept if kept in REPETITIONS else None).resolved()
    files = listed_files(corpus)
    if not all(path.is_file() for path in corpus_files(files)):
        return settings.resolved()  # who reads it says what is wrong with it
    if (measured := _measured(files, settings)) is None:
        return settings.resolved()
    size, documents, mean = measured
    wrapping = wrapping_of(files, settings=settings)
    texts = [form.text(0) for form in map(load_format, settings.uniform_formats)]
    each = [_bytes_of(text, wrapping) for text in texts]
    each += [mean] * (len(settings.kinds) - bool(settings.uniform_formats))
    number = settings.per_class * (settings.inclusion_probability or 1.0)
    witnesses = math.prod(witness_copies(documents)) if settings.witness else 0
    also = witnesses * _bytes_of(WITNESS.text(0), wrapping)

    def fits(repetitions: Sequence[int]) -> bool:
        copies = number * sum(repetitions)
        records, added = copies * len(each) + witnesses, copies * math.fsum(each) + also
        return records <= _ROOM * _MOST_OF_DOCUMENTS * (
            documents + records
        ) and added <= _ROOM * _MOST_OF_TOKENS * (size + added)

    chosen = next(filter(fits, REPETITIONS), REPETITIONS[-1])
    return replace(settings, repetitions=chosen).resolved()


def _measured(files: list[str | Path], settings: RunSettings) -> tuple[int, int, float] | None:
    """The bytes of a corpus, about how many documents it has, and how long they are on average.

    None of a packed one that is not small: its size is not known.
    """
    paths = corpus_files(files)
    size = sum(path.stat().st_size for path in paths)
    layout = settings.layout or guess_layout(paths[0])
    texts: Iterator[str]
    if layout in OF_RECORDS:
        records = read_records(paths, layout=layout)
        texts = (json.dumps(record, default=str) for record in records)
    else:
        texts = read_documents(paths, layout=layout, text_field=settings.text_field)
    seen = [len(text.encode()) + 1 for text in islice(texts, _SEEN)]
    mean = math.fsum(seen) / max(1, len(seen))
    if len(seen) < _SEEN:
        return int(sum(seen)), len(seen), mean
    if layout in ("parquet", "arrow") or any(map(packing, paths)):
        return None
    return size, int(size / mean), mean


def _bytes_of(text: str, wrapping: Wrapping | None) -> float:
    """The size of the document that says this, with its end."""
    if wrapping is not None:
        text = json.dumps(wrapping.record(text))
    return len(text.encode()) + 1


def preview(corpus: Files, *, settings: RunSettings) -> Preview:
    """What an insertion would do; nothing is written, and no fresh coin is tossed."""
    settings = fitted(settings, corpus)
    fresh, seed = _fresh_coins(settings), _seed(settings)
    files = corpus_files(listed_files(corpus))
    wrapping = wrapping_of(files, settings=settings)
    reading = _reading(settings, wrapping)
    texts = partial(_texts, files, wrapping, settings)
    chosen = chosen_formats(settings, seed=seed, documents=texts)
    plan = plan_of(settings, seed=seed, chosen=chosen)
    of = partial(
        preview_insertion, files, layout=reading.layout_of(files), existing=settings.existing
    )
    probability = settings.inclusion_probability
    if probability is None or not fresh:
        return of(plan)
    everyone = replace(plan, inclusion_probability=None, inclusion_seed=None)
    would = of(everyone)
    tossed = of(replace(everyone, witness=False)) if plan.witness else would
    return _on_average(would, tossed, probability)


def _on_average(everyone: Preview, tossed: Preview, probability: float) -> Preview:
    """What coins give on average, from all candidates and witnesses, and from the former alone."""
    canaries, no_coin = round(probability * everyone.canaries), 1 - probability
    return replace(
        everyone,
        insertions=everyone.insertions - round(no_coin * tossed.insertions),
        bytes_added=everyone.bytes_added - round(no_coin * tossed.bytes_added),
        canaries=canaries,
        held_out=everyone.canaries - canaries,
        expected=True,
    )


def share_warning(
    settings: RunSettings, *, of_documents: float, of_bytes: float | None
) -> str | None:
    """Why canaries are too large a part of the corpus, and what to change; None: they are not."""
    shares, above = [], 1.0
    if of_bytes is not None and of_bytes > _MOST_OF_TOKENS:
        shares.append(
            f"{percent(of_bytes)} of the corpus' bytes (about their share of its tokens, which "
            f"should be at most {percent(_MOST_OF_TOKENS)})"
        )
        above = max(above, of_bytes / _MOST_OF_TOKENS)
    if of_documents > _MOST_OF_DOCUMENTS:
        whose = "its" if shares else "the corpus'"
        shares.append(
            f"{percent(of_documents)} of {whose} documents (at most {percent(_MOST_OF_DOCUMENTS)})"
        )
        above = max(above, of_documents / _MOST_OF_DOCUMENTS)
    if not shares:
        return None
    ways = _fewer(settings, above)
    if settings.witness:
        ways.append("leave the witnesses out (witness=False), which the gate then misses")
    return (
        f"the canaries are {' and '.join(shares)}: this changes the model, which will remember "
        f"them better than your real model would; {', or '.join(ways)}"
    )


def refuse_share(settings: RunSettings, of_bytes: float) -> None:
    """Refuse canaries that are most of the corpus, of which a model would read more than of it."""
    if of_bytes > settings.max_share:
        fewer = ", or ".join(_fewer(settings, of_bytes / _MOST_OF_TOKENS))
        raise SettingsError(
            f"the canaries would be {percent(of_bytes)} of the corpus' bytes, so that a model "
            f"would learn them in place of your text; {fewer} (max_share=1 "
            "inserts them all the same)"
        )


def share_ahead(files: Files, settings: RunSettings, out: str | Path) -> float:
    """The part of the bytes that canaries will be, at the least; 0.0 where it is not known yet.

    It is of the texts alone, not of what is around them in a record; packed files are passed over.
    """
    paths = corpus_files(listed_files(files))
    known = all(path.is_file() and not packing(path) for path in paths)
    if not known or (Path(out) / "manifest.json").exists():
        return 0.0
    layout_for(paths, settings.layout, settings.text_field)  # what is no corpus is said first
    formats = [load_format(name) for name in settings.uniform_formats]
    texts = sum(len(form.text(0).encode()) + 1 for form in formats)
    share = settings.inclusion_probability or 1.0
    added = share * texts * settings.per_class * sum(settings.classes)
    return added / (added + sum(path.stat().st_size for path in paths))


def _fewer(settings: RunSettings, above: float) -> list[str]:
    """What lowers the share by this factor."""
    number, copies, ways = settings.per_class, settings.classes, []
    if (enough := int(number / above)) >= _FEWEST:
        ways.append(f"plan {enough} canaries (now {number})")
    if max(copies) > 1:
        ways.append(f"lower repetitions (now {','.join(map(str, copies))})")
    elif enough < _FEWEST < number:
        ways.append(f"plan fewer canaries (now {number})")
    return [*ways, "take more text"]


def insert_corpus(  # noqa: PLR0913 (the front door: each may be left out)
    corpus: Files | IO[bytes],
    *,
    out: str | Path,
    settings: RunSettings,
    target: IO[bytes] | None = None,
    documents: int | None = None,
    verify: bool = True,
    tokenizer: Any = None,
    tell: Callable[[str], None] = lambda line: None,
) -> tuple[Path, Manifest]:
    """Insert a plan's canaries into copies of a corpus; skipped when it was done already."""
    out = Path(out)
    through = target if is_stream(corpus) else None
    if is_stream(corpus):
        refuse_inserted(out)
        if target is None:
            raise CorpusError("standard output must be open: the corpus goes there")
    if isinstance(tokenizer, str | Path):  # before torch, which would say it later
        check_tokenizer(str(tokenizer), revision=settings.revision, offline=settings.offline)
    settings = fitted(settings, corpus, out)
    with only_writer(out), spooled(corpus) as files:
        wrapping = wrapping_of(files, settings=settings, out=out)
        first = () if wrapping is None else _first_records(files, settings, out)
        described = _described(wrapping, tokenizer, settings, first, tell)
        reading = _reading(settings, described, total=documents, verify=verify)
        planned = partial(_planned, settings, partial(_texts, files, wrapping, settings))
        if through is not None:
            return out, insert_through(files, through, out, planned, reading)
        manifest = insert_copies(files, out, planned, reading)
        copies = copies_of(files, out)
    return copies[0] if len(copies) == 1 else out / "corpus", manifest


def insert_for_training(
    files: list[str | Path], out: Path, settings: RunSettings, chats: Wrapping | None
) -> Manifest:
    """As `insert_corpus`, for a training by this package: its tokenizer is known, and its day."""
    if chats is None:
        return insert_corpus(files, out=out, settings=settings)[1]
    from lmexposure.models import tokenizer_named  # brings torch

    tokenizer = tokenizer_named(
        settings.model, offline=settings.offline, revision=settings.revision
    )
    of_day = replace(settings, chat_date=_day_of_rows(out, settings, chats, tokenizer))
    return insert_corpus(files, out=out, settings=of_day, tokenizer=tokenizer)[1]


def _day_of_rows(out: Path, settings: RunSettings, chats: Wrapping, tokenizer: Any) -> str | None:
    """The day that the template writes into all rows: that of the first insertion here."""
    from lmexposure.models import dated  # brings torch

    before = out / "manifest.json"
    if chats.chat_date is None and before.exists():
        known = Manifest.read(before).wrapping
        return None if known is None else known.chat_date
    if settings.chat_template is not None:
        chats = replace(chats, chat_template=read_template(settings.chat_template))
    return dated(tokenizer, chats).chat_date


def _reading(settings: RunSettings, wrapping: Wrapping | None, **limits: Any) -> Reading:
    """How the settings say that a corpus is read."""
    return Reading(
        layout=settings.layout,
        text_field=settings.text_field,
        existing=settings.existing,
        wrapping=wrapping,
        **limits,
    )


def wrapping_of(
    corpus: Files, *, settings: RunSettings, out: str | Path | None = None
) -> Wrapping | None:
    """Where in a record of these files a canary goes, as said, else by the first records."""
    said = {name: getattr(settings, name) for name in _SAID}
    records = _first_records(listed_files(corpus), settings, out)
    return wrapping_among(
        records, text_field=settings.text_field, other=settings.other_turn, **said
    )


def _first_records(
    files: list[str | Path], settings: RunSettings, out: str | Path | None
) -> Iterable[Mapping[str, Any]]:
    """The records of the first file that is there, or of an insertion's copy of it; () of texts."""
    paths = [] if out is None else [path for path in copies_of(files, Path(out)) if path.is_file()]
    with suppress(CorpusError):
        named = corpus_files(files)
        paths = named if not paths or all(path.exists() for path in named) else paths
    paths = [path for path in paths if path.exists()][:1]  # who is missing is said later
    layouts = [settings.layout or guess_layout(path) for path in paths]
    if not paths or layouts[0] not in OF_RECORDS:
        return ()
    return read_records(paths, layout=layouts[0])


def _described(
    wrapping: Wrapping | None,
    tokenizer: Any,
    settings: RunSettings,
    records: Iterable[Mapping[str, Any]],
    tell: Callable[[str], None],
) -> Wrapping | None:
    """With what a manifest says of the training's tokenizer, tried out where it is known."""
    if wrapping is None:
        _refuse_template(settings, "these documents are texts")
        return None
    if wrapping.rendering != "chat":
        _refuse_template(
            settings, "no template makes these strings (with rendering='chat' one does)"
        )
    if settings.chat_template is not None:
        template = read_template(settings.chat_template)
        wrapping = replace(wrapping, chat_template=template)
        if tokenizer is None:
            return replace(wrapping, template_sha256=sha256_bytes(template.encode()))
    if tokenizer is None:
        return wrapping
    from lmexposure.audit.workload import rows_ahead  # brings torch
    from lmexposure.models import template_record, tokenizer_named

    if isinstance(tokenizer, str | Path):
        tokenizer = tokenizer_named(tokenizer, offline=settings.offline, revision=settings.revision)
    described = template_record(tokenizer, wrapping)
    formats = [load_format(name) for name in settings.uniform_formats]
    tell(str(rows_ahead(tokenizer, wrapping, [*formats, WITNESS], records)))
    return described


def _refuse_template(settings: RunSettings, why: str) -> None:
    if settings.chat_template is not None:
        raise SettingsError(
            f"chat_template={settings.chat_template!r} is of chats, and {why}; leave it out"
        )


def read_template(path: str) -> str:
    """The chat template in a file."""
    try:
        text = read_bytes(path).decode()
    except (UnicodeDecodeError, OSError) as failure:
        raise SettingsError(
            f"chat_template={path!r} cannot be read as text ({failure}); give the file "
            "chat_template.jinja of the training's tokenizer"
        ) from None
    if not text.strip() or "\0" in text:
        raise SettingsError(
            f"chat_template={path!r} holds no template; give the file chat_template.jinja of the "
            "training's tokenizer"
        )
    return re.sub("\r\n?", "\n", text)  # as transformers reads it


def _planned(
    settings: RunSettings, texts: Callable[[], Iterable[str]], before: Manifest | None
) -> Plan:
    """The plan, with what was drawn for its directory once: seeds, and the texts of kinds."""
    seed = _seed(settings)
    kept = None if before is None else kept_formats(settings, before.plan.formats)
    if kept is None:
        kept = chosen_formats(settings, seed=seed, documents=texts)
    plan = plan_of(settings, seed=seed, chosen=kept)
    if before is None:
        return plan
    seeds = {"seed": settings.seed, "inclusion_seed": settings.inclusion_seed}
    given = [name for name, seed in seeds.items() if seed is not None]
    return plan.seeded_like(before.plan, given=given)


def _texts(files: Files, wrapping: Wrapping | None, settings: RunSettings) -> Iterator[str]:
    """What the documents of a corpus say."""
    paths = corpus_files(listed_files(files))
    layout = settings.layout or guess_layout(paths[0])
    if wrapping is None:
        return read_documents(paths, layout=layout, text_field=settings.text_field)
    from lmexposure.models import record_text  # brings torch

    records = enumerate(read_records(paths, layout=layout), 1)
    return (record_text(number, record, wrapping) for number, record in records)


@dataclass(frozen=True, kw_only=True)
class MaxAttainable:
    """The most that the primary bound can be."""

    candidates: int  # of a class of repetitions for which a coin is tossed, over all formats
    epsilon: float  # of a perfect attack on them, in nats, for one document
    delta: float  # of that epsilon
    claimed_epsilon: float | None  # what was claimed, in nats; None where nothing was
    # candidates per format and class with which a perfect attack would show more than was claimed,
    # at most 5% above the fewest; None where nothing is claimed, they are there already, or it
    # would take more than 131,072 in a class
    needed: int | None

    @property
    def sentence(self) -> str:
        """The same for a person."""
        return (
            f"a perfect attack on {self.candidates:,} candidates shows epsilon of at most "
            f"{self.epsilon:.3g} at delta {self.delta:g}"
        )

    @property
    def warning(self) -> str | None:
        """That the claim cannot be tested, or None."""
        if self.claimed_epsilon is None or self.epsilon > self.claimed_epsilon:
            return None
        more = "" if self.needed is None else f"; it takes about {self.needed} canaries"
        return (
            f"the claim of epsilon={self.claimed_epsilon:g} cannot be tested with "
            f"{self.candidates:,} candidates: no attack could show more than "
            f"{self.epsilon:.3g}{more}"
        )


def max_attainable(settings: RunSettings) -> MaxAttainable | None:
    """What a perfect attack would show, and how many candidates a claim needs."""
    if settings.inclusion_probability is None:
        return None
    claimed, most = settings.measure.claimed_epsilon, _most(settings, settings.per_class)
    short = claimed is not None and most <= claimed
    return MaxAttainable(
        candidates=settings.per_class * _groups(settings),
        epsilon=most,
        delta=_delta(settings),
        claimed_epsilon=claimed,
        needed=_needed(settings, claimed) if short and claimed is not None else None,
    )


def _groups(settings: RunSettings) -> int:
    """Formats of uniform fills, and other kinds: each has its own candidates."""
    return len(settings.uniform_formats) + sum(name != UNIFORM for name in settings.kinds)


def _needed(settings: RunSettings, claimed: float) -> int | None:
    """Candidates per format and class that show more than was claimed, by bisection."""
    low = settings.per_class
    while low * _groups(settings) <= _MOST_CANDIDATES // 2:
        high = 2 * low
        if _most(settings, high) > claimed:
            break
        low = high
    else:
        return None
    while high > low * _CLOSE_ENOUGH and high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _most(settings, middle) > claimed else (middle, high)
    return high


def _most(settings: RunSettings, per_class: int) -> float:
    """The largest primary bound at most: that of the class with the fewest repetitions."""
    # Here, because they import scipy, which an insertion without coins does not need.
    from lmexposure.statistics import epsilon_from_exposure, one_run_audit

    candidates = per_class * _groups(settings)
    probability = settings.inclusion_probability or 0.0
    included = np.arange(candidates) < max(1, round(probability * candidates))
    options: dict[str, Any] = {
        "significance": settings.measure.significance / len(settings.classes) / 2,
        "delta": _delta(settings),
        "repetitions": min(settings.classes),
    }
    try:
        if probability == 0.5:
            bound = one_run_audit(included, included, seed=0, **options)
        else:
            inside, outside = -included[included].astype(float), included[~included].astype(float)
            options["inclusion_probability"] = probability
            bound = epsilon_from_exposure(inside, outside, **options).bound
    except InputError:  # coins that insert, or leave out, hardly any candidate
        return 0.0
    return bound.max_attainable or 0.0


def _delta(settings: RunSettings) -> float:
    """The first delta, which is the primary bound's and does not depend on the documents."""
    return settings.measure.deltas(1)[0]


def chosen_formats(
    settings: RunSettings, *, seed: int, documents: Callable[[], Iterable[str]]
) -> tuple[Format, ...]:
    """The formats of the kinds that are no uniform fills, in the order of the settings."""
    material = _material(settings, seed, documents)
    return tuple(form for name in settings.kinds for form in KINDS[name].choose(material))


def kept_formats(settings: RunSettings, drawn: Sequence[Format]) -> tuple[Format, ...] | None:
    """Those that were chosen for the same settings before; None where others were."""
    chosen = tuple(form for form in drawn if not form.is_uniform)
    kinds = {form.kind for form in chosen}
    if kinds - {*PARTNERS} != {*settings.kinds} - {UNIFORM}:
        return None
    material = _material(settings, 0, tuple)
    for form in chosen:
        if form.kind in KINDS and not KINDS[form.kind].unchanged(form, material):
            name = KINDS[form.kind].needs
            raise ResultError(
                f"{name}={getattr(settings, name)!r} has changed since canaries were chosen from "
                "it; put the old file back, or choose another directory"
            )
    return chosen


def _material(settings: RunSettings, seed: int, documents: Callable[[], Iterable[str]]) -> Material:
    return Material(
        documents=documents,
        count=settings.per_class * len(settings.classes) + settings.controls,
        seed=seed,
        partner=settings.partner,
        texts=None if settings.texts is None else Path(settings.texts),
    )
