"""The plan of a sweep: candidates drawn, coins tossed, held-out documents chosen; written once.

Each model has a share of the candidates, and each text a coin in each model. The coins of a text
are a stream of its own, and those in the models of another share another one, so that no coin moves
another. In the models of a share below 1 only the first candidates of each class can be in; the
partner of a near-duplicate goes with its candidate.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, Literal

from lmexposure._files import PRIVATE, atomic_directory, only_writer
from lmexposure._settings import recorded_values
from lmexposure._validate import of_type
from lmexposure._written import refuse_foreign
from lmexposure.audit import insert_for_training, training_settings, wrapping_of
from lmexposure.canaries import (
    ALWAYS,
    KINDS,
    PARTNERS,
    Canary,
    Files,
    Manifest,
    derive_seed,
    fresh_seed,
    listed_files,
    permutation,
)
from lmexposure.core import refuse_other_study, refuse_other_wish
from lmexposure.errors import ModelError, ResultError, SettingsError
from lmexposure.models import (
    NEW_MODELS,
    encode_documents,
    grow,
    held_out,
    load_model,
    new_token_texts,
    new_tokenizer,
    tokenizer_sha256,
    training_rows,
)
from lmexposure.scoring import chosen_device
from lmexposure.studies import (
    AuditedText,
    RunSettings,
    SweepPlan,
    SweepResult,
    SweepSettings,
)
from lmexposure.sweeps.documents import (
    TOKENIZER,
    Rows,
    SweepCorpus,
    read_corpus,
    rows_of,
    saved_tokenizer,
)
from lmexposure.sweeps.task import check_base


def shares_of(settings: SweepSettings) -> tuple[float, ...]:
    """For each model, the share of the canaries that can be in it, descending."""
    return tuple(
        float(share) for share in settings.shares_used for _ in range(settings.models_of(share))
    )


def inserted_texts(manifest: Manifest) -> list[AuditedText]:
    """The candidates of a manifest, then the partners of near-duplicates, which are not audited."""
    groups: tuple[Literal["canaries", "partners"], ...] = ("canaries", "partners")
    return [
        AuditedText(
            id=entry.id,
            group=group,
            kind=f"{entry.format}/x{entry.repetitions}",
            format=entry.format,
            repetitions=entry.repetitions,
            document=None,
        )
        for group, entries in zip(groups, _split(manifest), strict=True)
        for entry in entries
    ]


def tossed(
    settings: SweepSettings, manifest: Manifest, names: Sequence[str], seed: int
) -> tuple[str, ...]:
    """A row of coins for each model."""
    places = _places(manifest)
    formats = {name for name, form in manifest.formats.items() if form.kind == ALWAYS}
    always = {entry.id for entry in manifest.canaries if entry.format in formats}
    rows: list[str] = []
    for share in settings.shares_used:
        width = settings.models_of(share)
        most = ceil(share * settings.run.per_class)
        stream = ("coins",) if share == 1 else ("coins", f"share {share:g}")
        columns = []
        for name in names:
            if places.get(name, -1) >= most:
                columns.append("0" * width)
            elif name in always:
                columns.append("1" * width)
            else:
                columns.append(_column(settings, width, derive_seed(seed, *stream, name)))
        rows.extend("".join(row) for row in zip(*columns, strict=True))
    return tuple(rows)


def eligible(texts: Iterable[AuditedText], share: float, per_class: int) -> list[bool]:
    """Which of the audited canaries can be in the models of a share."""
    most = ceil(share * per_class)
    return [_number(text.id) < most for text in texts]


def _split(manifest: Manifest) -> tuple[list[Canary], list[Canary]]:
    """Candidates that are audited, and the partners of near-duplicates."""
    partners = {name for name, form in manifest.formats.items() if form.kind in PARTNERS}
    audited = [entry for entry in manifest.canaries if entry.format not in partners]
    return audited, [entry for entry in manifest.canaries if entry.format in partners]


def _number(name: str) -> int:
    """Of a candidate within its class, from 0, by its id: 3 of "pin/x1/0003"."""
    return int(name.rpartition("/")[2])


def _places(manifest: Manifest) -> Mapping[str, int]:
    """The number within its class of each candidate; a partner has that of its candidate."""
    audited, others = _split(manifest)
    # Text i of both formats is a pair, whatever their ids.
    kinds = {name: KINDS.get(form.kind) for name, form in manifest.formats.items()}
    paired = {name for name, kind in kinds.items() if kind is not None and kind.paired}
    of_pair = {e.index: _number(e.id) for e in audited if e.format in paired}
    return {
        **{entry.id: _number(entry.id) for entry in audited},
        **{entry.id: of_pair.get(entry.index, _number(entry.id)) for entry in others},
    }


def _column(settings: SweepSettings, models: int, seed: int) -> str:
    """The coins of one text in the models of a share."""
    if settings.coins == "exactly_half":
        inside = set(list(permutation(models, seed))[: models // 2])
        return "".join("1" if model in inside else "0" for model in range(models))
    bits = random.Random(seed).getrandbits(models)
    return f"{bits:0{models}b}"


_MOST_VALIDATION = 500  # documents for validation that are scored as well
_WRITTEN = (
    *("corpus", TOKENIZER, "plan.json", "models", "work", "failed", "base.npz", "matrices.npz"),
    *("sweep.json", "report.html", "report.md"),
)
_KNOWN = ("plan.json", "manifest.json", "corpus", TOKENIZER)


def prepare(corpus: Files, *, out: str | Path, settings: SweepSettings | None = None) -> SweepPlan:
    """Draw canaries and coins of a sweep, once, before any model is trained."""
    settings = SweepSettings() if settings is None else settings
    of_type("settings", settings, SweepSettings, "SweepSettings(...)")
    out = Path(out)
    training_settings(settings.run)
    chosen_device(settings.run)
    with only_writer(out):
        refuse_other_study(out, (SweepResult.NAME, SweepPlan.NAME), SweepResult.KIND)
        before = _before(out, settings)
        refuse_foreign(out, _WRITTEN)
        files = listed_files(corpus)
        chats = wrapping_of(files, settings=settings.run, out=out)
        if chats is not None and settings.run.model in NEW_MODELS:
            raise ModelError(
                f"model={settings.run.model!r} is a new model, whose tokenizer knows no chats; "
                "give model=PATH of a pretrained one"
            )
        if settings.run.chat_template is not None:
            raise SettingsError(
                f"chat_template={settings.run.chat_template!r} is for one training: each of a "
                "sweep's models comes with a tokenizer and its template; put it there "
                "(chat_template.jinja)"
            )
        manifest = insert_for_training(files, out, settings.run, chats)
        if before is not None:
            if before.manifest_sha256 != manifest.sha256:
                raise ResultError(
                    f"{out / 'manifest.json'} is not the one that plan.json was drawn for; choose "
                    "another directory"
                )
            return before
        read = read_corpus(out, manifest)
        reader = _tokenizer(out, read, settings.run)
        check_base(settings, reader.tokenizer, new_token_texts(manifest.plan.formats))
        plan = _drawn(read, settings, reader)
        plan.save(out / SweepPlan.NAME)
        return plan


def _before(out: Path, settings: SweepSettings) -> SweepPlan | None:
    """The plan that is there already; None where there is nothing yet."""
    if not (out / SweepPlan.NAME).exists():
        names = sorted(p.name for p in out.iterdir()) if out.exists() else []
        strange = [n for n in names if n not in _KNOWN and not n.startswith(".")]
        if strange:
            raise ResultError(
                f"{out} holds {strange[0]!r} and no plan.json, so it is no sweep that can go on; "
                "choose a new directory"
            )
        return None
    plan = SweepPlan.read(out)
    then, now = recorded_values(plan.settings), recorded_values(settings.resolved())
    refuse_other_wish(SweepResult, out, then, now, {"seed"})
    if settings.inclusion_seed is not None:
        names = _with_coins(plan.texts, plan.varied)
        manifest = Manifest.read(out / "manifest.json")
        if names and _tossed(settings, manifest, names) != plan.coins:
            raise ResultError(f"{out} holds a sweep of other coins; leave inclusion_seed out")
    return plan


def _tokenizer(out: Path, corpus: SweepCorpus, settings: RunSettings) -> "_Reader":
    """The one tokenizer of all models, and the longest text that they read, in tokens."""
    formats = corpus.manifest.plan.formats
    new_tokens = new_token_texts(formats)
    if settings.model not in NEW_MODELS:
        loaded = load_model(settings.model, revision=settings.revision, offline=settings.offline)
        grow(loaded, new_tokens)
        return _Reader(loaded.tokenizer, loaded.window)
    made = new_tokenizer(
        settings.model,
        corpus.documents,
        separator=corpus.separator,
        extra_characters="".join(form.characters for form in formats),
        new_tokens=new_tokens,
    )
    # Without a plan, what has the name already may be of another model.
    with atomic_directory(out / TOKENIZER, mode=PRIVATE) as partial:
        made.save_pretrained(partial)
    # The one that was saved, which every model will have.
    return _Reader(saved_tokenizer(out), None if settings.model == "lstm" else 256)


@dataclass(frozen=True)
class _Reader:
    """The tokenizer of all models, and their window in tokens; None: no limit."""

    tokenizer: Any
    window: int | None


def _drawn(corpus: SweepCorpus, settings: SweepSettings, reader: _Reader) -> SweepPlan:
    """Everything but the coins, then the coins."""
    seed = corpus.manifest.plan.seed
    chosen = training_settings(settings.run, reader.window, records=corpus.wrapping is not None)
    own = replace(chosen, seed=derive_seed(seed, "sweep validation"))
    validation = sorted(held_out(corpus.texts, (), own))
    held = set(validation)
    fitting = _fitting(corpus, reader)
    eligible = [n for n in sorted(corpus.once) if n not in held and fitting[n]]
    wanted = _population(settings, len(corpus.documents), len(eligible))
    order = permutation(len(eligible), derive_seed(seed, "sweep population"))
    population = sorted(eligible[place] for place in islice(order, wanted))
    scored = [n for n in validation if n in corpus.once and fitting[n]][:_MOST_VALIDATION]
    texts = (
        *inserted_texts(corpus.manifest),
        *(_document(number, "population", 1) for number in population),
        *(_document(number, "validation", 0) for number in scored),
    )
    others = set(population) | held
    varied = tuple(n for n in range(len(corpus.documents)) if n not in others)
    varied = varied if settings.vary == "all" else ()
    plan = SweepPlan(
        manifest_sha256=corpus.manifest.sha256,
        settings=settings.resolved(),
        seed=settings.run.public_seed,
        tokenizer_sha256=tokenizer_sha256(reader.tokenizer),
        texts=texts,
        varied=varied,
        validation=tuple(validation),
        contexts=tuple(validation[: settings.contexts - 1]) if corpus.wrapping is None else (),
        shares=shares_of(settings),
        coins=_tossed(settings, corpus.manifest, _with_coins(texts, varied)),
    )
    rows = rows_of(reader.tokenizer, corpus, plan)  # refuses what no model could score
    _refuse_long_canaries(rows, plan, chosen.block_size)
    return plan


def _refuse_long_canaries(rows: Rows, plan: SweepPlan, block_size: int) -> None:
    """Refuse now what every training would: a canary must fit in one block whole."""
    for known, text in zip(plan.canaries, rows.texts, strict=False):
        tokens = len(text.encoded.ids)
        if tokens > block_size:
            raise ModelError(
                f"canary {known.id} has {tokens} tokens with what is in front of it, but "
                f"block_size={block_size}; raise block_size if the model's context window is "
                "longer, or use a shorter format"
            )


def _population(settings: SweepSettings, documents: int, eligible: int) -> int:
    wanted = settings.population_of(documents)
    if settings.population is not None and wanted > eligible:
        raise SettingsError(
            f"population={wanted}, but only {eligible} of {documents} documents say something that "
            f"no other does, fit the model and are not for validation; give at most {eligible}"
        )
    return min(wanted, eligible)


def _fitting(corpus: SweepCorpus, reader: _Reader) -> list[bool]:
    """Which documents the model reads whole, each by itself, with something to predict."""
    if corpus.wrapping is None:
        rows = encode_documents(reader.tokenizer, corpus.documents, context=corpus.separator)
        lengths = [len(ids) for ids in rows]
    else:
        made = training_rows(reader.tokenizer, corpus.documents, corpus.wrapping)
        lengths = [len(row.ids) if row.carried[1:].any() else 0 for row in made]
    most = reader.window or max(lengths, default=0)
    return [1 < length <= most for length in lengths]


def _document_id(number: int) -> str:
    return f"document/{number:06d}"


def _document(
    number: int, group: Literal["population", "validation"], repetitions: int
) -> AuditedText:
    return AuditedText(
        id=_document_id(number),
        group=group,
        kind=group,
        format=None,
        repetitions=repetitions,
        document=number,
    )


def _with_coins(texts: Sequence[AuditedText], varied: Sequence[int]) -> list[str]:
    """The names of all that have coins, in their order."""
    return [t.id for t in texts if t.group != "validation"] + [_document_id(n) for n in varied]


def _tossed(settings: SweepSettings, manifest: Manifest, names: Sequence[str]) -> tuple[str, ...]:
    """A row of coins for each model, by the seed that was given, else a fresh one."""
    seed = settings.inclusion_seed
    return tossed(settings, manifest, names, fresh_seed() if seed is None else seed)
