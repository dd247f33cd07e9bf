"""Ranks of identifiers that a corpus holds among fresh draws of their format, under each model.

An identifier that a model never saw is as likely as fresh draws of its format in the same place, if
it was made at random. One that the model read is likelier. Which of the two makes ranks low, only
identifiers can tell that a random split of the same source held out of the training.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import canonical_json, sha256_bytes
from lmexposure._forecast import Phase
from lmexposure._record import JsonValue
from lmexposure._settings import own_values
from lmexposure._style import count
from lmexposure.audit.workload import Progress, Watcher
from lmexposure.canaries import (
    Format,
    Identifiers,
    derive_seed,
    find_identifiers,
    load_format,
)
from lmexposure.core import Encoded, Part
from lmexposure.errors import CorpusError, ModelError, SettingsError
from lmexposure.models import Context, encode_in_context
from lmexposure.scoring import AnyModel, TorchModel, any_model
from lmexposure.statistics import identifiers_needed, rank_among_draws
from lmexposure.studies import IdentifierSettings, RunSettings

_COMPARING = "comparing identifiers"
_COMPARING_HELD_OUT = "comparing held-out identifiers"
_FEWEST_HELD_OUT = 20  # documents; of fewer, the test hardly sees a thing
_TEXTS = 5_000  # scored in one call, which finds out anew how to read their common beginnings
_Kept = Callable[[str], Part]  # where a block of ranks is kept, by its name


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Identifiers of held-out documents."""

    found: Identifiers  # those; the kept ones are not in the corpus
    ranks: NDArray[np.int64]  # of these under the model, shape (n,)
    # by which each lies above the median of its draws under the model, shape (n,)
    bits: NDArray[np.float64]
    read: NDArray[np.float64]  # the same of those that were kept of the corpus
    both: int  # identifiers that were left out of corpus and held-out documents, being in both


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is to be compared: identifiers, those held out, and the models that rank them."""

    found: Identifiers
    apart: Identifiers | None
    both: int  # identifiers that were left out, being in both
    sides: Sequence[TorchModel]  # the model, and the base where there is one
    settings: IdentifierSettings

    @property
    def named(self) -> dict[str, JsonValue]:
        """All that decides the ranks, by names that people know; texts by their hash."""
        weights = [lm.identity for lm in self.sides]
        return {
            **own_values(self.settings),
            "formats": {name: form.template for name, form in self.found.formats.items()},
            "model": weights[0],
            "base": weights[1] if len(weights) > 1 else None,
            "corpus": _hash(self.found),
            "held_out": None if self.apart is None else _hash(self.apart),
        }

    def ranked(
        self, progress: Progress, kept: _Kept | None = None
    ) -> tuple[NDArray[np.int64], HeldOut | None]:
        """Their ranks, shape (n, models), by block; a block that was kept is not scored again."""
        self._plan(progress)
        ranks, bits = _ranks(self.found, self.sides, self.settings, progress, _COMPARING, kept)
        held_out = None
        if self.apart is not None:
            own, theirs = _ranks(
                self.apart, self.sides[:1], self.settings, progress, _COMPARING_HELD_OUT, kept
            )
            held_out = HeldOut(
                found=self.apart,
                ranks=own[:, 0],
                bits=theirs[:, 0],
                read=bits[:, 0],
                both=self.both,
            )
        return ranks, held_out

    def _plan(self, progress: Progress) -> None:
        """Tell a watcher what is to come."""
        if not isinstance(progress, Watcher):
            return
        phases = []
        for what, found, sides in (
            (_COMPARING, self.found, self.sides),
            (_COMPARING_HELD_OUT, self.apart, self.sides[:1]),
        ):
            if found is not None:
                first = found.kept[0]
                text = found.formats[first.format].text(first.index)
                read = [lm.tokenizer(text, add_special_tokens=False)["input_ids"] for lm in sides]
                tokens = sum(map(len, read))
                work = float(len(found.kept) * (self.settings.draws + 1) * tokens)
                phases.append(Phase(what=what, kind="scoring", work=work))
        identifiers = count(len(self.found.kept), "identifier")
        title = f"comparing: {identifiers}, {self.settings.draws:,} draws each"
        progress.plan(title, phases, keeps=False)


def comparison(
    model: AnyModel,
    corpus: str | Path | Sequence[str | Path],
    formats: Sequence[str | Path | Format],
    tokenizer: Any,
    *,
    base: "AnyModel | None",
    held_out: str | Path | Sequence[str | Path] | None,
    settings: IdentifierSettings,
) -> Comparison:
    """Find the identifiers, and load the models; see `natural_identifiers`."""
    if settings.most < identifiers_needed():
        raise SettingsError(
            f"most={settings.most} is fewer than needed: a claim takes {identifiers_needed()} "
            "identifiers in different documents; give a larger number"
        )
    if not isinstance(formats, list | tuple) or not formats:
        raise SettingsError(f"formats={formats!r} must be a list of formats, such as ['uuid']")
    found, apart, both = _found(corpus, held_out, formats, settings)
    sides = _sides(model, tokenizer, base, found, settings.run)
    return Comparison(found=found, apart=apart, both=both, sides=sides, settings=settings)


def _hash(found: Identifiers) -> str:
    """Of the identifiers, with what is around each."""
    kept = [[k.format, str(k.index), k.file, k.document, k.before, k.behind] for k in found.kept]
    return sha256_bytes(canonical_json([found.names, found.documents, kept]))


def _found(
    corpus: str | Path | Sequence[str | Path],
    held_out: str | Path | Sequence[str | Path] | None,
    formats: Sequence[str | Path | Format],
    settings: IdentifierSettings,
) -> tuple[Identifiers, Identifiers | None, int]:
    """The identifiers, enough of them for a claim, each with enough fresh draws."""
    forms = [form if isinstance(form, Format) else load_format(form) for form in formats]
    found, apart, both = _searched(corpus, forms, settings), None, 0
    each = ", ".join(f"{name}: {len(counts):,}" for name, counts in found.counts.items())
    if not found.distinct:
        raise CorpusError(
            f"the corpus holds no identifiers ({each}, in {count(found.documents, 'document')}); "
            "give a format that its identifiers have: `lmexposure formats`, or a file"
        )
    if held_out is not None:
        other = _searched(held_out, forms, settings)
        both = sum(len(found.taken[name] & other.taken[name]) for name in found.taken)
        found, apart = found.apart_from(other), other.apart_from(found)
        documents = len(apart.one_per_document())
        if documents < _FEWEST_HELD_OUT:
            raise CorpusError(
                f"held out are identifiers in {count(documents, 'document')} "
                f"({both:,} are in the corpus too, and left out){_left_out(apart)}: it takes at "
                f"least {_FEWEST_HELD_OUT}; give more held-out documents (held_out=[...])"
            )
    documents, needed = len(found.one_per_document()), identifiers_needed()
    if documents < needed:
        raise CorpusError(
            f"{count(found.distinct, 'different identifier')} in {count(documents, 'document')} "
            f"are fewer than needed ({each}): identifiers of one document depend on each other, "
            f"and to tell 1 % from 5 % takes {needed} documents with some{_left_out(found)}; give "
            "more of the corpus, or more formats"
        )
    for name in {identifier.format for identifier in found.kept}:
        found.draws(name, settings.draws, seed=0)
    return found, apart, both


def _left_out(found: Identifiers) -> str:
    """Those that the text in front foretells, for a message."""
    if not found.foretold:
        return ""
    return f" ({found.foretold:,} are left out: the text in front of them holds a part of them)"


def _searched(
    files: str | Path | Sequence[str | Path], forms: Sequence[Format], settings: IdentifierSettings
) -> Identifiers:
    return find_identifiers(
        files,
        forms,
        most=settings.most,
        left=settings.left,
        seed=settings.seed,
        layout=settings.layout,
        text_field=settings.text_field,
    )


@dataclass(frozen=True, kw_only=True)
class _Place:
    """An identifier and fresh draws, all in its place."""

    texts: Sequence[str]  # the identifier's first
    context: Context  # what is around each of them
    where: str  # that is, for a message

    @classmethod
    def of(
        cls, number: int, found: Identifiers, settings: IdentifierSettings, what: str
    ) -> "_Place":
        """Of the identifier of this number among those that were kept."""
        identifier = found.kept[number]
        form = found.formats[identifier.format]
        draws = "draws" if what == _COMPARING else "draws held out"  # none are shared by the two
        seed = derive_seed(settings.seed, draws, str(number))
        drawn = found.draws(identifier.format, settings.draws, seed=seed, before=identifier.before)
        return cls(
            texts=[form.text(index) for index in (identifier.index, *drawn)],
            context=Context(before=identifier.before, behind=identifier.behind),
            where=f"an identifier of format {form.name!r} in document {identifier.document} of "
            f"{found.files[identifier.file]}",
        )


def _ranks_under(lm: TorchModel, places: Sequence[_Place]) -> list[tuple[int, float]]:
    """The rank of each place's first text among the others, and its bits above their median."""
    encoded = [_encoded(lm, place) for place in places]
    bits = lm.token_bits([text for row in encoded for text in row]).totals
    each = np.split(bits, np.cumsum([len(row) for row in encoded])[:-1])
    return [
        (rank_among_draws(float(row[0]), row[1:]), float(row[0] - np.median(row[1:])))
        for row in each
    ]


def _encoded(lm: TorchModel, place: _Place) -> list[Encoded]:
    try:
        encoded = encode_in_context(lm.tokenizer, place.texts, context=place.context)
    except ModelError as failure:
        raise ModelError(f"{place.where}, under model {lm.name!r}: {failure}") from failure
    longest = max(len(text.ids) for text in encoded)
    if lm.window is not None and longest > lm.window:
        raise ModelError(
            f"{place.where}: {longest} tokens with the text in front, and model {lm.name!r} reads "
            f"{lm.window}; give less text in front (left=...), or leave the format out"
        )
    return encoded


def _refuse_unknown(lm: TorchModel, form: Format) -> None:
    """Refuse a format some of whose fills the tokenizer cannot read."""
    tokenizer = lm.tokenizer
    tokens = {c: tokenizer(c, add_special_tokens=False)["input_ids"] for c in form.characters}
    lacking = [c for c, ids in tokens.items() if not ids or tokenizer.unk_token_id in ids]
    if lacking:
        raise ModelError(
            f"the tokenizer of model {lm.name!r} has no token for "
            f"{', '.join(map(ascii, lacking))}, which secrets of format {form.name!r} hold; "
            "leave the format out, or give one whose characters it knows"
        )


def _sides(
    model: AnyModel,
    tokenizer: Any,
    base: "AnyModel | None",
    found: Identifiers,
    machine: RunSettings,
) -> list[TorchModel]:
    """The model, and the base where there is one."""
    sides = [any_model(model, tokenizer, machine)]
    if base is not None:
        try:
            sides.append(any_model(base, sides[0].tokenizer, replace(machine, revision=None)))
        except ModelError as failure:
            raise ModelError(f"no base: {failure}") from failure
    for lm in sides:
        for name in {identifier.format for identifier in found.kept}:
            _refuse_unknown(lm, found.formats[name])
    return sides


def _ranks(
    found: Identifiers,
    sides: Sequence[TorchModel],
    settings: IdentifierSettings,
    progress: Progress,
    what: str,
    kept: _Kept | None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rank and bits above the draws of each kept identifier, each of shape (n, models)."""
    bits = np.empty((len(found.kept), len(sides)))
    ranks = np.empty((len(found.kept), len(sides)), dtype=np.int64)
    together = max(1, _TEXTS // (settings.draws + 1))
    for first in range(0, len(found.kept), together):
        numbers = range(first, min(first + together, len(found.kept)))
        part = None if kept is None else kept(f"{what.replace(' ', '-')}-{first}")
        before = None if part is None else part.read()
        if before is not None:
            with np.load(io.BytesIO(before), allow_pickle=False) as arrays:
                ranks[numbers], bits[numbers] = arrays["ranks"], arrays["bits"]
        else:
            places = [_Place.of(number, found, settings, what) for number in numbers]
            for column, lm in enumerate(sides):
                ranks[numbers, column], bits[numbers, column] = zip(
                    *_ranks_under(lm, places), strict=True
                )
            if part is not None:
                stream = io.BytesIO()
                np.savez(stream, ranks=ranks[numbers], bits=bits[numbers])
                part.write(stream.getvalue())
        progress(what, numbers.stop, len(found.kept))
    return ranks, bits
