"""Natural identifiers: an audit after the fact, of what a corpus holds anyway, without insertion.

An identifier that a model never saw is as likely as fresh draws of its format in the same place, if
it was made at random. One that the model read is likelier. Which of the two makes ranks low, only
identifiers can tell that a random split of the same source held out of the training.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import only_writer
from lmexposure._forecast import Phase
from lmexposure._style import count
from lmexposure._written import refuse_foreign
from lmexposure.audit.identifier_record import HeldOut, identifiers_record
from lmexposure.audit.loaded_model import load_for_measuring
from lmexposure.audit.workload import Progress, Watcher, silent
from lmexposure.canaries import (
    Format,
    Identifier,
    Identifiers,
    derive_seed,
    find_identifiers,
    load_format,
)
from lmexposure.errors import CorpusError, ModelError, ResultError, SettingsError
from lmexposure.models import (
    Context,
    Encoded,
    LoadedModel,
    context_window,
    encode_in_context,
    weights_sha256,
)
from lmexposure.records import (
    IdentifierModel,
    IdentifierSettings,
    IdentifiersRecord,
    RunSettings,
)
from lmexposure.scoring import same_random_numbers, score_encoded
from lmexposure.statistics import (
    identifiers_needed,
    rank_among_draws,
)

_COMPARING = "comparing identifiers"
_COMPARING_HELD_OUT = "comparing held-out identifiers"
_FEWEST_HELD_OUT = 20  # documents; of fewer, the test hardly sees a thing
_TEXTS = 5_000  # scored in one call, which finds out anew how to read their common beginnings


def natural_identifiers(  # noqa: PLR0913 - two models, what they are compared on, and where
    model: str | Path | LoadedModel,
    corpus: str | Path | Sequence[str | Path],
    *,
    formats: Sequence[str | Path | Format],
    base: str | Path | LoadedModel | None = None,
    held_out: str | Path | Sequence[str | Path] | None = None,
    out: str | Path | None = None,
    settings: IdentifierSettings | None = None,
    machine: RunSettings | None = None,
    progress: Progress = silent,
) -> IdentifiersRecord:
    """Compare identifiers that a corpus holds with fresh draws of their format, in their place.

    Args:
        model: the audited model: a directory, a hub name, or what `load_model` gives.
        corpus: a file, several, or patterns, of any layout that texts are inserted into.
        formats: shipped ones by name, your own by path; words in front of the first hole are left
            out, for identifiers have others in front.
        base: a model that never saw the corpus, with any tokenizer: where it too ranks the
            identifiers low, they are not like fresh draws. That it does not says nothing of
            membership: it need not know what identifiers of this source have in common.
        held_out: files with documents of the same source that a random split held out of the
            training, of the corpus' layout. Only they allow to say "membership", or identifiers
            that are random by their standard: UUIDs of version 4.
        out: the directory that identifiers.json goes to; None writes nothing.
        settings: of the comparison; None: the defaults.
        machine: device, dtype and such, which both models are loaded with; None: the defaults.
        progress: watches; a `Watcher` is told what is to come.

    Returns:
        What was found; it holds no identifier's text.

    Raises:
        CorpusError: a file that cannot be read, no identifiers, or fewer than needed, in the corpus
            or held out.
        FormatError: no formats, one that is not sound, or one too small for the draws.
        ModelError: no such model or base, one that lacks a token for a character of a format, or
            whose context window is too short for an identifier.
        NumericalError: a model gave NaN or infinite logits.
        ResultError: `out` holds another comparison; another process is at work there.
        SettingsError: fewer identifiers are to be compared than a claim takes.

    Source: Natural identifiers, ICLR 2026.
    """
    settings = settings or IdentifierSettings()
    if settings.most < identifiers_needed():
        raise SettingsError(
            f"most={settings.most} is fewer than needed: a claim takes {identifiers_needed()} "
            "identifiers in different documents; give a larger number"
        )
    with nullcontext() if out is None else only_writer(out), same_random_numbers():
        if out is not None:
            refuse_foreign(Path(out), (IdentifiersRecord.NAME, "identifiers.md"))
        found, apart, both = _found(corpus, held_out, formats, settings)
        sides = _sides(model, base, found, machine or RunSettings())
        if out is not None:
            _refuse_another(Path(out), (found, apart), sides, settings)
        _plan(progress, (found, apart), sides, settings)
        ranks, bits = _ranks(found, sides, settings, progress)
        beside = None
        if apart is not None:
            own, theirs = _ranks(apart, sides[:1], settings, progress, what=_COMPARING_HELD_OUT)
            beside = HeldOut(
                found=apart, ranks=own[:, 0], bits=theirs[:, 0], read=bits[:, 0], both=both
            )
        models = [side.record for side in sides]
        record = identifiers_record(found, models, ranks, settings, beside)
        if out is not None:
            record.save(Path(out) / IdentifiersRecord.NAME)
    return record


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
            "give a format that its identifiers have: `lmexposure formats list`, or a file"
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
                f"least {_FEWEST_HELD_OUT}; give more held-out documents (--held-out)"
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


@dataclass(frozen=True, kw_only=True)
class _Side:
    """A model that ranks the identifiers."""

    loaded: LoadedModel
    record: IdentifierModel

    @classmethod
    def of(cls, model: str | Path | LoadedModel, machine: RunSettings) -> "_Side":
        found = model if isinstance(model, LoadedModel) else load_for_measuring(model, machine)
        sha256 = weights_sha256(found.model)
        return cls(loaded=found, record=IdentifierModel(path=found.name, weights_sha256=sha256))

    def ranks(self, places: Sequence[_Place]) -> list[tuple[int, float]]:
        """The rank of the first text of each place among the others, and its bits above them.

        Those are its log-perplexity less the others' median: where all identifiers of a source rank
        first, they tell still how much likelier each is.
        """
        encoded = [self._encoded(place) for place in places]
        bits = score_encoded(self.loaded.model, [text for row in encoded for text in row]).totals
        each = np.split(bits, np.cumsum([len(row) for row in encoded])[:-1])
        return [
            (rank_among_draws(float(row[0]), row[1:]), float(row[0] - np.median(row[1:])))
            for row in each
        ]

    def _encoded(self, place: _Place) -> list[Encoded]:
        name = self.loaded.name
        try:
            encoded = encode_in_context(self.loaded.tokenizer, place.texts, context=place.context)
        except ModelError as failure:
            raise ModelError(f"{place.where}, under model {name!r}: {failure}") from failure
        window = context_window(self.loaded.model.config)
        longest = max(len(text.ids) for text in encoded)
        if window is not None and longest > window:
            raise ModelError(
                f"{place.where}: {longest} tokens with the text in front, and model {name!r} reads "
                f"{window}; give a smaller --left, or leave the format out"
            )
        return encoded

    def refuse_unknown(self, form: Format) -> None:
        """Refuse a format some of whose fills the tokenizer cannot read."""
        tokenizer = self.loaded.tokenizer
        tokens = {c: tokenizer(c, add_special_tokens=False)["input_ids"] for c in form.characters}
        lacking = [c for c, ids in tokens.items() if not ids or tokenizer.unk_token_id in ids]
        if lacking:
            raise ModelError(
                f"the tokenizer of model {self.loaded.name!r} has no token for "
                f"{', '.join(map(ascii, lacking))}, which fills of format {form.name!r} hold; "
                "leave the format out, or give one whose characters it knows"
            )


def _sides(
    model: str | Path | LoadedModel,
    base: str | Path | LoadedModel | None,
    found: Identifiers,
    machine: RunSettings,
) -> list[_Side]:
    """The model, and the base where there is one."""
    sides = [_Side.of(model, machine)]
    if base is not None:
        try:
            sides.append(_Side.of(base, replace(machine, revision=None)))
        except ModelError as failure:
            raise ModelError(f"no base: {failure}") from failure
    for side in sides:
        for name in {identifier.format for identifier in found.kept}:
            side.refuse_unknown(found.formats[name])
    return sides


def _refuse_another(
    out: Path,
    corpora: tuple[Identifiers, Identifiers | None],
    sides: Sequence[_Side],
    settings: IdentifierSettings,
) -> None:
    """Refuse to take the place of another comparison; the same is made anew."""
    path = out / IdentifiersRecord.NAME
    if not path.exists():
        return
    there = IdentifiersRecord.read(path)
    models = [side.record.weights_sha256 for side in sides]
    theirs = [side.weights_sha256 for side in (there.model, there.base) if side is not None]
    names = [() if each is None else each.names for each in corpora]
    files = [there.files, () if there.split is None else there.split.files]
    numbers = (settings.draws, settings.left, settings.seed)
    same = (models, names, numbers) == (theirs, files, (there.draws, there.left, there.seed))
    if not same:
        raise ResultError(
            f"{path} is of other models, files or settings; choose another --out, or move it away"
        )


def _plan(
    progress: Progress,
    corpora: tuple[Identifiers, Identifiers | None],
    sides: Sequence[_Side],
    settings: IdentifierSettings,
) -> None:
    """Tell a watcher what is to come."""
    if not isinstance(progress, Watcher):
        return
    phases = []
    for what, found, own in zip(
        (_COMPARING, _COMPARING_HELD_OUT), corpora, (sides, sides[:1]), strict=True
    ):
        if found is not None:
            tokens = sum(_tokens(side, found.kept[0], found) for side in own)
            work = float(len(found.kept) * (settings.draws + 1) * tokens)
            phases.append(Phase(what=what, kind="scoring", work=work))
    title = f"{count(len(corpora[0].kept), 'identifier')}, {settings.draws:,} draws each"
    progress.plan(f"comparing: {title}", phases, keeps=False)


def _ranks(
    found: Identifiers,
    sides: Sequence[_Side],
    settings: IdentifierSettings,
    progress: Progress,
    *,
    what: str = _COMPARING,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rank and bits above the draws of each kept identifier, each of shape (n, models)."""
    bits = np.empty((len(found.kept), len(sides)))
    ranks = np.empty((len(found.kept), len(sides)), dtype=np.int64)
    together = max(1, _TEXTS // (settings.draws + 1))
    for first in range(0, len(found.kept), together):
        numbers = range(first, min(first + together, len(found.kept)))
        places = [_Place.of(number, found, settings, what) for number in numbers]
        for column, side in enumerate(sides):
            ranks[numbers, column], bits[numbers, column] = zip(*side.ranks(places), strict=True)
        progress(what, numbers.stop, len(found.kept))
    return ranks, bits


def _tokens(side: _Side, identifier: Identifier, found: Identifiers) -> int:
    text = found.formats[identifier.format].text(identifier.index)
    return len(side.loaded.tokenizer(text, add_special_tokens=False)["input_ids"])
