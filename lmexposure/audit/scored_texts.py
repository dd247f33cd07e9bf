"""Texts out, scores in: a model that another program asks, such as lm-eval, vLLM or a cluster's.

Among the texts are some that no secret is in, whose scores show what went wrong elsewhere. They
rest on what is true of every language model: a longer beginning is no likelier, the same text has
the same score, and what may come next has a probability of 1 in all.
"""

import json
import math
import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import PRIVATE, atomic_write, canonical_json, read_bytes, sha256_bytes
from lmexposure._style import number as shown
from lmexposure.audit.context import ScoringContext, rows_beside, scoring_context
from lmexposure.audit.kinds import scored_draws
from lmexposure.canaries import DEFAULT_REFERENCES, WITNESS, Manifest, derive_seed
from lmexposure.core import Encoded, TokenScores
from lmexposure.errors import ModelError, SettingsError
from lmexposure.models import SOURCE_ENDS, Context, tokenizer_named
from lmexposure.studies import ContextRecord, MeasureSettings

_Floats = NDArray[np.float64]
_AGAIN = 200  # texts that have two ids
_GROUPS = 12  # of characters at random, each behind a blank, in the longest of the beginnings
_NUMBERS = 8  # in front of a thousand, of which one may follow
_PARTS = ((4, 8), (8, 12))  # how many groups: of a beginning, and of a longer one
_RISE = 1.0  # bits; of four characters at random, one group in 2^22 costs less
_SLACK, _SHARE = 1.0, 0.02  # bits, and a share of them: what two right computations differ by
# Bits, a share of them (half precision), and how often the share by which the same text differs.
_APART, _HALF, _TIMES = 0.5, 0.01, 4.0
_TIED = 0.5  # of a format's texts, what may have the same bits without a word
_MOST, _LEAST = 1.25, 0.6  # of a sum of probabilities: rounding apart, and what tells no unit
_ROUNDING = 1e-2  # bits; what is above it is worth a word
_MOST_BITS, _LEAST_BITS = 1e9, 1e-6  # of a token; below 0 by rounding alone
_LN2 = math.log(2)
_CHARACTERS = string.ascii_letters + string.digits
_ID = re.compile(r"[0-9a-f]{12}-[0-9]{1,12}", re.ASCII)
_OURS = re.compile(rb'{"id": "[0-9a-f]{12}-0", "context": ".*", "text": "(?:[^"\\]|\\.)*"}\n')
# What a row may say, and how many bits one of it is.
_UNITS = {
    "bits": 1.0,
    "nats": 1 / _LN2,
    "logprob": -1 / _LN2,
    "token_bits": 1.0,
    "token_logprobs": -1 / _LN2,
}
_SAID = ", ".join(_UNITS)
_RULE = "a score is the sum of -log P(token | context and tokens before) over all tokens of a text"


@dataclass(frozen=True, kw_only=True)
class ScoredTexts:
    """A model of which the bits of one manifest's texts are known: ranks, and no search."""

    name: str  # of the file
    manifest: Manifest = field(repr=False)  # whose texts they are
    references: int | None  # with how many of each format they were written
    notes: tuple[str, ...]  # what a reader of the scores must know
    # of each format and text, the number of its scores
    places: Mapping[tuple[str, str], int] = field(repr=False)
    # bits of each token of a text, or their sum alone
    scores: Sequence[_Floats] = field(repr=False)
    tokenizer = None
    size = 0

    @cached_property
    def identity(self) -> str:
        """SHA-256 of the scores."""
        return sha256_bytes(canonical_json([row.tolist() for row in self.scores]))

    def to_dict(self) -> dict[str, Any]:
        """What a result says of its model."""
        known = {"parameters": 0, "dtype": "float64", "context_window": None}
        return {"name": self.name, "type": "scores", "weights_sha256": self.identity, **known}

    def decisive(self) -> dict[str, Any]:
        """What decides the numbers."""
        return {"scores": self.identity}

    def asking(self) -> AbstractContextManager[None]:
        """Nothing is to be prepared."""
        return nullcontext()

    def encode(self, texts: Sequence[str], context: Any) -> list[Encoded]:
        """Texts of the format that `context` names, each as a token of its own for each score."""
        places = [self.places[context, text] for text in texts]
        return [
            Encoded(ids=[place] * (1 + self.scores[place].size), scored_from=1) for place in places
        ]

    def token_bits(
        self, encoded: Sequence[Encoded], *, batch_size: int | None = None, progress: Any = None
    ) -> TokenScores:
        """The scores of texts that were encoded."""
        return TokenScores(
            bits=tuple(self.scores[text.ids[0]] for text in encoded), encoded=tuple(encoded)
        )

    def bits(self, texts: Sequence[str], context: Any = None) -> _Floats:
        """Log-perplexity of each text, shape (n,)."""
        return self.token_bits(self.encode(texts, context)).totals

    @property
    def context(self) -> ScoringContext:
        """Each format by its name; what was around a text is the other program's to know."""
        names = self.manifest.hidden_formats
        none = cast("ContextRecord", None)  # as in results of which no context is known
        return ScoringContext(by_format=dict(zip(names, names, strict=True)), record=none)

    def checked(
        self, settings: MeasureSettings, manifest: Manifest, *, base: object, wrapping: object
    ) -> MeasureSettings:
        """The settings, without the searches; refuse what scores cannot give."""
        if base is not None or wrapping is not None:
            raise SettingsError(
                "a base, and settings of its rows, are for a model that is asked, and scores are "
                "given; leave them out"
            )
        if manifest.sha256 != self.manifest.sha256:
            raise ModelError(f"{self.name} has the scores of another manifest's texts")
        if settings.references is None:
            settings = replace(settings, references=self.references)
        asked = settings.references_for(DEFAULT_REFERENCES)
        if asked > (most := self.references or DEFAULT_REFERENCES):
            raise SettingsError(
                f"{asked:,} references are asked for, and the texts were written with {most:,}; "
                "write them with as many (write_texts)"
            )
        if settings.estimate not in ("auto", "sampled", "skew_normal"):
            raise SettingsError(
                f"estimate={settings.estimate!r} needs a model that answers token by token, and "
                "scores give ranks among references; leave it out"
            )
        if settings.left_context is not None:
            raise SettingsError(
                f"left_context={settings.left_context!r} is for the texts that are scored; give it "
                "where they are written (write_texts)"
            )
        estimate = "sampled" if settings.estimate == "auto" else settings.estimate
        return replace(settings, estimate=estimate, extraction=False)


@dataclass(frozen=True)
class _Sheet:
    """The texts of a manifest, those that show wrong scores behind them, and their order."""

    manifest: Manifest
    references: int | None

    @cached_property
    def texts(self) -> list[tuple[str, str]]:
        """Each format and text: those drawn, then references."""
        manifest, found = self.manifest, []
        usual = self.references or DEFAULT_REFERENCES
        for name, form in manifest.hidden_formats.items():
            found += [(name, entry.text) for entry in manifest.entries if entry.format == name]
            wanted = usual if form.is_uniform else 0
            if name == WITNESS.name:
                wanted = scored_draws(manifest, self.references) if manifest.witnesses else 0
            strict = self.references is not None and name in manifest.formats
            indices = manifest.references(name, wanted, strict=strict and form.is_uniform)
            found += [(name, form.text(index)) for index in indices]
        return found

    def stream(self, what: str) -> np.random.Generator:
        """A stream of its own: neither ids nor order say anything of roles or coins."""
        return np.random.default_rng(derive_seed(self.manifest.plan.seed, "texts", what))

    @cached_property
    def again(self) -> list[int]:
        """Texts that have a second id, by their number."""
        found: list[int] = self.stream("again").integers(len(self.texts), size=_AGAIN).tolist()
        return found

    @property
    def tag(self) -> str:
        """What all ids begin with."""
        return sha256_bytes(canonical_json([self.manifest.sha256, "texts", self.references]))[:12]

    @property
    def number(self) -> int:
        """How many rows there are."""
        shown = _AGAIN + _GROUPS + len(_PARTS) + len(_CHARACTERS) + 1_000
        return len(self.texts) + shown

    @cached_property
    def order(self) -> list[int]:
        """Of each row, its place in the file."""
        places: list[int] = self.stream("order").permutation(self.number).tolist()
        return places

    def rows(self, contexts: Mapping[str, str]) -> list[tuple[str, str]]:
        """Context and text of each row, in no order of roles."""
        generator = self.stream("rows")
        found = [(contexts[name], text) for name, text in self.texts]
        found += [found[place] for place in self.again]
        front = contexts[next(iter(self.manifest.formats))]
        # No text is longer than all of them, so that whatever is cut cuts these.
        size = max(4, math.ceil(max(len(text) for _, text in self.texts) / _GROUPS))
        groups = [" " + "".join(generator.choice(list(_CHARACTERS), size)) for _ in range(_GROUPS)]
        found += [(front, "".join(groups[: end + 1])) for end in range(_GROUPS)]
        for begin, end in _PARTS:
            found.append((front + "".join(groups[:begin]), "".join(groups[begin:end])))
        found += [(front, character) for character in _CHARACTERS]
        before = " ".join(f"{n:03d}," for n in generator.integers(1_000, size=_NUMBERS))
        found += [(f"{front}{before}", f" {n:03d}") for n in range(1_000)]
        rows = [("", "")] * self.number
        for place, (context, text) in zip(self.order, found, strict=True):
            # Blanks belong to what follows them, as tokens have them.
            bare = context.rstrip()
            rows[place] = bare, context[len(bare) :] + text
        return rows


def write_texts(
    manifest: str | Path | Manifest,
    out: str | Path,
    *,
    tokenizer: str | None = None,
    references: int | None = None,
    left_context: str | None = None,
) -> int:
    """Write what another program is to score, JSONL, for its owner alone; how many rows they are.

    Each row has an id, a context, which is read and not scored, and a text. See `read_scores` for
    what is to come back.

    Args:
        manifest: what was inserted, or the path of manifest.json.
        out: the file.
        tokenizer: of the model, a directory or hub name; for chats, whose rows its template makes.
        references: as of `measure`.
        left_context: as of `measure`.

    Raises:
        ManifestError: the manifest cannot be read.
        ModelError: a tokenizer that cannot be loaded, or rows that cannot be written as text.
        PlanError: a format has fewer secrets left than references.
        SettingsError: rows that take a tokenizer, and none is given.
        FileError: the disk refused.
    """
    rows = rows_beside(manifest) if isinstance(manifest, str | Path) else None
    known = Manifest.of(manifest)
    if tokenizer is None:
        if known.wrapping is not None or rows is not None or left_context in ("bos", "eos"):
            raise SettingsError(
                "the rows of these canaries are made by the model's tokenizer; give it "
                "(tokenizer=..., a directory or hub name)"
            )
        left = known.separator or "" if left_context is None else left_context
        contexts = dict.fromkeys(known.hidden_formats, "" if left == "none" else left)
    else:
        read: Any = SimpleNamespace(tokenizer=tokenizer_named(tokenizer), name=tokenizer)
        made = scoring_context(read, known, left_context=left_context, rows=rows).by_format
        contexts = {name: _spelled(read.tokenizer, context) for name, context in made.items()}
    sheet = _Sheet(known, references)
    with atomic_write(Path(out), mode=PRIVATE, replaces=_OURS.match) as file:
        for n, (context, text) in enumerate(sheet.rows(contexts)):
            row = {"id": f"{sheet.tag}-{n}", "context": context, "text": text}
            file.write(json.dumps(row).encode() + b"\n")
    return sheet.number


def _spelled(tokenizer: Any, context: Any) -> str:
    """A context as text, but for a start token that the tokenizer puts there by itself."""
    if not isinstance(context, Context):
        return context or ""
    if SOURCE_ENDS in (context.start or ()):
        raise ModelError(
            "an encoder-decoder reads its source apart from its text, and texts have one context; "
            "measure the model itself"
        )
    if context.unscored:
        raise ModelError(
            f"the first {context.unscored} tokens of a canary carry no loss in its row, and texts "
            "are scored whole; measure the model itself"
        )
    start = list(context.start or ())
    left = str(tokenizer.decode(start, clean_up_tokenization_spaces=False)) + context.before
    adds = tokenizer.bos_token_id in tokenizer("a")["input_ids"][:1]
    return left.removeprefix(tokenizer.bos_token) if adds else left


def read_scores(
    path: str | Path, manifest: str | Path | Manifest, *, references: int | None = None
) -> ScoredTexts:
    """What another program found for the texts of `write_texts`, as a model to be measured.

    Each row has the id of a text, and one of: bits or nats, the sum of -log P over its tokens, at
    least 0; logprob, the sum of log P in nats; token_bits or token_logprobs, a list of these, one
    a token, in the order of the text. lm-eval's logged samples of the task are read, too.

    Args:
        path: the file, JSONL.
        manifest: that the texts are of.
        references: as they were written.

    Raises:
        ModelError: rows that are missing, doubled, of other texts, or no such sums; scores that no
            language model gives.
        ManifestError: the manifest cannot be read.
    """
    known = Manifest.of(manifest)
    sheet = _Sheet(known, references)
    found = dict(_parsed(Path(path), sheet))
    if len(found) < sheet.number:
        missing = next(n for n in range(sheet.number) if n not in found)
        raise ModelError(
            f"{path} has no score of {sheet.number - len(found):,} of {sheet.number:,} texts, "
            f"{sheet.tag}-{missing} first; score every row, or give a model that cannot read "
            "one as a function (language_model)"
        )
    scores = [found[place] for place in sheet.order]
    notes = _checked(str(path), sheet, np.array([row.sum() for row in scores]))
    notes += tuple(_tied(sheet, scores))
    counted = any(row.size > 1 for row in scores)
    if known.wrapping is None:
        notes += (
            "what is in front of each text is what the texts were written with; if the training "
            "had other tokens there, a start token among them, leaks are underestimated",
        )
    if known.witnesses and not counted:
        notes += (
            "the scores do not say how many tokens a text has, so that a tokenizer that was made "
            "from this corpus would look like a model that read it; token_bits or token_logprobs "
            "say it",
        )
    return ScoredTexts(
        name=str(path),
        manifest=known,
        references=references,
        notes=notes,
        places={key: place for place, key in enumerate(sheet.texts)},
        scores=scores[: len(sheet.texts)],
    )


def _parsed(path: Path, sheet: _Sheet) -> Iterator[tuple[int, _Floats]]:
    """The number of each row, and its bits."""
    try:
        lines = read_bytes(path).decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as failure:
        why = getattr(failure, "strerror", None) or "it is no UTF-8"
        raise ModelError(f"cannot read the scores {path}: {why}; give a JSONL file") from None
    seen: set[int] = set()
    unit = ""
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        where = f"{path}, line {line}"
        try:
            row = json.loads(text)
            row = _of_lm_eval(row, where) if "resps" in row else row
            name = str(row["id"])
        except ModelError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise ModelError(
                f"{where}: no JSON object with the id of a text; a row has an id and one of {_SAID}"
            ) from None
        tag, _, n = name.rpartition("-")
        if not _ID.fullmatch(name) or tag != sheet.tag or int(n) >= sheet.number:
            known = repr(name) if _ID.fullmatch(name) else "there"
            raise ModelError(
                f"{where}: the id {known} is of no text of this manifest; give the manifest and "
                "the number of references that the texts were written with"
            )
        units = [name for name in _UNITS if name in row]
        if len(units) != 1 or unit not in ("", units[0]):
            raise ModelError(
                f"{where} has {', '.join(units) or 'no score'}; every row has the same one of "
                f"{_SAID}"
            )
        if int(n) in seen:
            raise ModelError(f"{where}: {name} has a score already; score each row once")
        seen.add(int(n))
        unit = units[0]
        yield int(n), _bits(row[unit], unit, where)


def _of_lm_eval(sample: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A logged sample of a task of loglikelihood as a row."""
    asked, doc = sample["arguments"], sample["doc"]
    # In older versions, a list of lists.
    first = asked[0] if isinstance(asked, list) else [*asked["gen_args_0"].values()]
    if first[:2] != [doc["context"], doc["text"]]:
        raise ModelError(
            f"{where}: lm-eval was asked for another text than that of its row; the task takes "
            "output_type: loglikelihood, doc_to_text: '{{context}}', doc_to_target: '{{text}}' and "
            "target_delimiter: ''"
        )
    return {"id": doc["id"], "logprob": float(sample["resps"][0][0][0])}


def _bits(given: Any, unit: str, where: str) -> _Floats:
    """One row's score in bits, checked to be one."""
    listed = given if unit.startswith("token_") else [given]
    numbers = isinstance(listed, list) and bool(listed)
    if not numbers or any(isinstance(n, bool) or not isinstance(n, int | float) for n in listed):
        what = "a list of numbers" if unit.startswith("token_") else "a number"
        raise ModelError(f"{where}: {unit} is {type(given).__name__}, and must be {what}; {_RULE}")
    try:
        bits = np.array(listed, dtype=np.float64) * _UNITS[unit]
    except OverflowError:
        bits = np.array([np.inf])
    if not bits.max() < _MOST_BITS or not bits.min() > -_LEAST_BITS:
        sign = "at most" if _UNITS[unit] < 0 else "at least"
        raise ModelError(f"{where}: {unit} must be finite, and {sign} 0; {_RULE}")
    return np.maximum(bits, 0.0)


def _checked(name: str, sheet: _Sheet, bits: _Floats) -> tuple[str, ...]:
    """What a reader must know of the scores, in bits by row; refuse what no model gives."""
    own = len(sheet.texts)
    ids = [f"{sheet.tag}-{place}" for place in sheet.order]
    first, second = bits[sheet.again], bits[own : own + _AGAIN]
    gap = np.abs(first - second)
    if (apart := gap > _SLACK + _SHARE * np.maximum(first, second)).any():
        n = int(np.flatnonzero(apart)[0])
        raise ModelError(
            f"{name}: {ids[sheet.again[n]]} and {ids[own + n]} are the same text, and have "
            f"{first[n]:.1f} and {second[n]:.1f} bits; rows in another order, dropout, or numbers "
            "that depend on the rest of a batch look so"
        )
    start = own + _AGAIN
    beginnings = bits[start : start + _GROUPS]
    if (fallen := np.diff(beginnings) < _RISE).any():
        n = int(np.flatnonzero(fallen)[0])
        raise ModelError(
            f"{name}: the text of {ids[start + n]} begins that of {ids[start + n + 1]}, and they "
            f"have {beginnings[n]:.1f} and {beginnings[n + 1]:.1f} bits; means per token, cut "
            f"texts or rows in another order look so: {_RULE}"
        )
    start += _GROUPS
    ends = start + len(_PARTS)
    singles, whole = (
        float(np.exp2(-part).sum()) for part in np.split(bits[ends:], [len(_CHARACTERS)])
    )
    if whole > _MOST:
        raise ModelError(
            f"{name}: a thousand texts that exclude each other have a probability of {whole:.3g} "
            "in all; nats read as bits, means per token, tokens left out or an unknown token look "
            f"so: {_RULE}"
        )
    notes = []
    if singles > _MOST:
        notes.append(
            "the first token of a text is not scored, or is an unknown token: score it behind a "
            "start token; where secrets begin with it, leaks are underestimated"
        )
    if whole < _LEAST:
        notes.append(
            "the unit of the scores could not be checked: a thousand numbers, of which one was to "
            f"follow, have a probability of {shown(whole, 3)} in all. The model expects none there,"
            " or the unit is not the one that is named, or the tokenizer not the model's; ranks "
            "and exposures do not depend on the unit"
        )
    parts = [
        beginnings[begin - 1] + bits[start + n] - beginnings[end - 1]
        for n, (begin, end) in enumerate(_PARTS)
    ]
    more = max(parts, key=abs)
    relative = float((gap / np.maximum(first, 1.0)).max())
    if abs(more) > _APART + (_HALF + _TIMES * relative) * beginnings[-1]:
        notes.append(
            f"a text in two parts has {abs(more):.1f} bits {'more' if more > 0 else 'fewer'} than "
            "as one: the context was not read, an end token was scored, the first token of each "
            "text was not, or some texts have a start token before them and others have none; "
            "leaks may be underestimated"
        )
    if gap.max() > _ROUNDING:
        notes.append(f"the same text has up to {gap.max():.2f} bits more or fewer when asked again")
    return tuple(notes)


def _tied(sheet: _Sheet, scores: Sequence[_Floats]) -> Iterator[str]:
    """Formats whose texts hardly differ in their scores."""
    by_format: dict[str, list[float]] = {}
    for (name, _), bits in zip(sheet.texts, scores, strict=False):
        by_format.setdefault(name, []).append(float(bits.sum()))
    for name, sums in by_format.items():
        if (most := Counter(sums).most_common(1)[0][1]) > max(1, _TIED * len(sums)):
            yield (
                f"format {name!r}: {most:,} of {len(sums):,} texts have the same score, as where "
                "scores are cut off or rounded; their ranks say nothing"
            )
