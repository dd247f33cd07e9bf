"""Train a model on a corpus with canaries: hold out, pack, check, train, keep the best."""

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from lmexposure._files import PRIVATE, canonical_json, set_aside_in, sha256_bytes, sha256_file
from lmexposure._integrity import file_hashes, say_rebuilt, write_hashed
from lmexposure._written import check, refuse_foreign, study
from lmexposure.canaries import Wrapping
from lmexposure.errors import CorpusError, ModelError, ResultError, SettingsError
from lmexposure.models.behind_source import BehindSource
from lmexposure.models.dp_checker import DpCheck
from lmexposure.models.dp_sgd import DpSgd
from lmexposure.models.load import LoadedModel, check_fit
from lmexposure.models.methods import (
    Goldfish,
    Hamp,
    PlainTraining,
    RelaxLoss,
    Setup,
    TrainingMethod,
)
from lmexposure.models.new_models import check_lora, with_new_adapter
from lmexposure.models.packing import (
    Batches,
    check_deliveries,
    pack,
    split_validation,
    steps_per_epoch,
    unigram_bits,
)
from lmexposure.models.padded_rows import (
    check_units,
    deduplicated,
    rows_of_documents,
    rows_of_records,
)
from lmexposure.models.teachers import (
    TEACHERS,
    Distillation,
    Selena,
    parts_of,
    plain_settings,
    rows_to_sample,
    shifted,
)
from lmexposure.models.trainer import (
    BEGINS_ANEW,
    CheckpointDirectory,
    Counters,
    ProgressCallback,
    Trainer,
    damaged_model,
    set_dropout,
)
from lmexposure.models.weights import computing_threads, threads_for, warn_imitated, weights_sha256
from lmexposure.studies import (
    DISTILLATION,
    DP_SGD,
    GOLDFISH,
    HAMP,
    PLAIN,
    RELAXLOSS,
    SELENA,
    TRAINING_SCHEMA,
    DpClaim,
    TrainingResult,
    TrainingSettings,
    read_training,
)

_METHODS: dict[str, Callable[[Setup], TrainingMethod]] = {
    PLAIN: PlainTraining,
    DP_SGD: DpSgd,
    GOLDFISH: Goldfish,
    RELAXLOSS: RelaxLoss,
    HAMP: Hamp,
    SELENA: Selena,
    DISTILLATION: Distillation,
}
# The rows of each model that is trained plainly before, from the same initial weights.
_TEACHERS: dict[str, Callable[[TrainingSettings, Batches], list[Batches]]] = {
    SELENA: parts_of,
    DISTILLATION: lambda settings, rows: [rows],
}


def train(  # noqa: PLR0913  a public door: one argument an input
    loaded: LoadedModel,
    documents: Sequence[str] | Sequence[Mapping[str, Any]],
    *,
    settings: TrainingSettings,
    separator: str | None,
    canaries: Mapping[str, int],
    out: Path,
    validation: Sequence[str] | Sequence[Mapping[str, Any]] | None = None,
    wrapping: Wrapping | None = None,
    units: Sequence[str | None] | None = None,
    progress: ProgressCallback | None = None,
    promise: Callable[[DpClaim], None] | None = None,
    mode: int = 0o666,
    manifest_sha256: str | None = None,
) -> TrainingResult:
    """Train a model on a corpus; the same call again resumes, or returns what is there.

    The model object itself is changed and left in its last state: load the kept one from
    `model_path`. In `out` are `model/` (the checkpoint with the lowest validation loss),
    `metrics.jsonl` (a line per evaluation), `training.json`, and `snapshots/epoch-N/`,
    `dp_report.json` and `white_box.json` where asked.
    While training is under way there are `checkpoint.pt` and `best-STEP/` to resume from. After a
    kill at any moment, one CPU process ends with the very bytes of an undisturbed training, also on
    a machine with more or fewer cores. torch's number of threads is put back.

    Started with `torchrun` on several processes, all call this with the same arguments.

    Args:
        loaded: new or pretrained, on the device to train on, weights in float32.
        documents: the corpus with its canaries, in order: texts, or records of `wrapping`.
        settings: how to train; with `lora`, `model/` and the checkpoints hold an adapter.
        separator: the text between documents, None for records, as the manifest says.
        canaries: text of each inserted canary -> its repetitions.
        out: output directory.
        validation: documents to validate on, none of `documents`; None: some of those without a
            canary are held out.
        wrapping: how a record becomes a row of its own, and which of its tokens carry loss; None:
            documents are texts, one after the other in blocks, or each in a row of its own where
            the training is private.
        units: of a private training, whose each document is; None, or None for a document: it is by
            itself.
        progress: called after each step on the main process.
        promise: called before the first step with what all epochs of a private training promise.
        mode: permission bits that the files of models may have at most: the corpus's, since weights
            remember it.
        manifest_sha256: of the manifest that the canaries are of, for the record.

    Raises:
        SettingsError: block_size is beyond the model's context window; a promise that the corpus
            cannot be given, or units without `unit_field`, or the other way round.
        CorpusError: too few documents to hold some out; more or fewer units than documents.
        ModelError: weights not in float32, too many tokens for the model, a canary that does not
            fit a block, meets an unknown token, carries no loss or is not in the documents as
            planned; a tokenizer without a chat template; a model that cannot be given an adapter;
            accelerate sees other processes or computes in another precision.
        ResultError: `out` holds another training.
        NumericalError: the loss or its gradient is not finite; checkpoints so far are kept.
        FileError: the disk refused, or something has a name in `out` that the training will write.
    """
    _check_model(loaded, settings)
    corpus = _Corpus(documents, validation, separator, canaries, wrapping, units)
    rows, read = _rows(loaded, corpus, settings)
    with study(out):
        return _train(
            loaded,
            rows,
            settings,
            Path(out),
            delivered=None if settings.method == DISTILLATION else read,
            progress=progress,
            promise=promise,
            mode=mode,
            manifest_sha256=manifest_sha256,
            chat_date=None if wrapping is None else wrapping.chat_date,
        )


def _train(  # noqa: PLR0913  what `train` takes, as rows
    loaded: LoadedModel,
    rows: tuple[Batches, Batches],
    settings: TrainingSettings,
    out: Path,
    *,
    delivered: int | None = None,
    progress: ProgressCallback | None = None,
    promise: Callable[[DpClaim], None] | None = None,
    mode: int,
    manifest_sha256: str | None = None,
    chat_date: str | None = None,
) -> TrainingResult:
    """As `train`, of rows to train on and to validate on; models that teach are trained first."""
    training, held = rows
    inputs = _inputs_sha256(loaded, settings, training, held)
    checkpoints = CheckpointDirectory(out, inputs, mode=mode)
    if (finished := _finished(out, inputs, settings)) is not None:
        if os.environ.get("RANK", "0") == "0":
            checkpoints.clear(out / TEACHERS)  # what a kill at the very end left
        return finished
    accelerator = _accelerator(loaded)
    teachers, progress = _taught(loaded, rows, settings, out, progress, mode)
    setup = _setup(loaded, training, settings, accelerator, teachers)
    method, held_out = _METHODS[settings.method](setup), setup.blocks(held)
    trainer = Trainer(method, setup, held_out, loaded.tokenizer, checkpoints, progress)
    try:
        counters = _run(trainer, method, loaded, settings, promise)
    finally:
        method.close()
    claim = method.claim()
    let_out = None if claim is None else method.document_privacy(claim)
    if claim is not None and let_out is not None:
        claim = claim.model_copy(update={"ex_post": let_out.ex_post})
    inside = None if claim is None else method.white_box(claim)
    if claim is not None and inside is not None:
        claim = claim.model_copy(update={"white_box": inside.bounds})
    assert counters.best_bits is not None  # training ends with an evaluation
    assert counters.initial_bits is not None
    assert counters.stopped is not None
    result = TrainingResult(
        model_path=out / "model",
        validation_bits=counters.best_bits,
        initial_validation_bits=counters.initial_bits,
        best_step=counters.best_step,
        best_epoch=counters.best_step / method.steps_per_epoch,
        steps=counters.step,
        epochs=counters.step / method.steps_per_epoch,
        tokens=counters.tokens,
        seconds=round(counters.seconds, 3),
        stopped=counters.stopped,
        processes=accelerator.num_processes,
        threads=counters.threads,
        reused=False,
        claim=claim,
        unigram_bits=unigram_bits(training, held),
        delivered=delivered,
    )
    if accelerator.is_main_process:
        kept = [study.save(out) for study in (let_out, inside) if study is not None]
        _set_aside(out, checkpoints.best(counters.best_step))
        record = {
            "schema": TRAINING_SCHEMA,
            "inputs_sha256": inputs,
            "settings": settings.to_dict(),
            "manifest_sha256": manifest_sha256,
            "chat_date": chat_date,
            "result": result.model_dump(mode="json"),
            "model_files": checkpoints.finish(counters.best_step),
            "beside": {path.name: sha256_file(path) for path in kept},
        }
        # By its seed and its hash a small seed can be tried, and the one secret of a small plan.
        write_hashed(out / "training.json", record, mode=PRIVATE)
        checkpoints.clear(out / TEACHERS)  # models that taught know the corpus
    accelerator.wait_for_everyone()
    return result


def check_private(
    loaded: LoadedModel,
    documents: Sequence[str] | Sequence[Mapping[str, Any]],
    *,
    settings: TrainingSettings,
    separator: str | None,
    canaries: Mapping[str, int],
    wrapping: Wrapping | None = None,
    units: Sequence[str | None] | None = None,
) -> tuple[DpClaim, DpCheck]:
    """Check the private training that `train` would make of these arguments, without training."""
    _check_model(loaded, settings)
    corpus = _Corpus(documents, None, separator, canaries, wrapping, units)
    (training, _), _ = _rows(loaded, corpus, settings)
    method = _METHODS[settings.method](_setup(loaded, training, settings, _accelerator(loaded)))
    try:
        with computing_threads(threads_for(loaded, asked=settings.threads, recorded=None)):
            checked = method.check()
    finally:
        method.close()
    claim = method.claim(method.steps_per_epoch * settings.epochs)
    if checked is None or claim is None:
        raise SettingsError(
            f"method={settings.method!r} promises nothing that could be checked; give "
            f"method={DP_SGD!r}"
        )
    return claim, checked


def _setup(
    loaded: LoadedModel,
    rows: Batches,
    settings: TrainingSettings,
    accelerator: Accelerator,
    teachers: Sequence[Path] = (),
) -> Setup:
    model = with_new_adapter(loaded, settings) if settings.lora else loaded.model
    if settings.dropout:
        set_dropout(model, settings.dropout)
    return Setup(
        model=model, rows=rows, settings=settings, accelerator=accelerator, teachers=teachers
    )


def _taught(
    loaded: LoadedModel,
    rows: tuple[Batches, Batches],
    settings: TrainingSettings,
    out: Path,
    progress: ProgressCallback | None,
    mode: int,
) -> tuple[list[Path], ProgressCallback | None]:
    """The models that teach this one, and what takes its progress; most have none."""
    if settings.method not in _TEACHERS:
        return [], progress
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SettingsError(
            f"method={settings.method!r} trains several models one after the other, and on several "
            "processes none; train on one"
        )
    of_each = _TEACHERS[settings.method](settings, rows[0])
    empty = [place for place, own in enumerate(of_each) if not len(own)]
    if empty:
        raise CorpusError(
            f"teacher {empty[0]} of {len(of_each)} has no rows at all; give a larger corpus, or "
            "fewer models that teach"
        )
    sampled = settings.method == DISTILLATION
    read = [*map(len, of_each), rows_to_sample(settings, rows[0]) if sampled else len(rows[0])]
    steps = [steps_per_epoch(n, settings.batch_size) * settings.epochs for n in read]
    teachers = []
    for place, own in enumerate(of_each):
        untrained = replace(loaded, model=copy.deepcopy(loaded.model))
        said = shifted(progress, sum(steps[:place]), sum(steps))
        its_settings, its_out = plain_settings(settings, place), out / TEACHERS / str(place)
        with study(its_out):
            result = _train(
                untrained, (own, rows[1]), its_settings, its_out, progress=said, mode=mode
            )
        teachers.append(result.model_path)
    return teachers, shifted(progress, sum(steps[:-1]), sum(steps))


def _run(
    trainer: Trainer,
    method: TrainingMethod,
    loaded: LoadedModel,
    settings: TrainingSettings,
    promise: Callable[[DpClaim], None] | None,
) -> Counters:
    """Resume or begin, with the promise said and the training checked, and train."""
    trainer.resume()
    counters = trainer.counters
    counters.threads = threads_for(loaded, asked=settings.threads, recorded=counters.threads)
    if promise is not None:
        claim = method.claim(method.steps_per_epoch * settings.epochs)
        if claim is not None:
            promise(claim)
    with computing_threads(counters.threads):
        if counters.step == 0 and (checked := method.check()) is not None:
            checked.require()
        return trainer.run()


def _check_model(loaded: LoadedModel, settings: TrainingSettings) -> None:
    window = loaded.window
    if window is not None and settings.block_size > window:
        raise SettingsError(
            f"block_size={settings.block_size} must be at most {window}, the context window of "
            f"{loaded.name!r}"
        )
    causal = settings.lora or settings.is_private or settings.method == DISTILLATION
    if causal and isinstance(loaded.model, BehindSource):
        raise SettingsError(
            f"lora=True, method={DP_SGD!r} and method={DISTILLATION!r} are for causal models, and "
            f"{loaded.name!r} is an encoder-decoder; train it plainly (method={PLAIN!r}), or "
            "elsewhere, and measure it"
        )
    if settings.lora:
        check_lora(loaded.name)
    if settings.precision == "bf16":
        warn_imitated(torch.bfloat16, loaded.model.device)
    dtypes = {str(p.dtype) for p in loaded.model.parameters() if p.is_floating_point()}
    if dtypes != {"torch.float32"}:
        raise ModelError(
            f"model {loaded.name!r} has weights in {', '.join(sorted(dtypes))}; load it with "
            "dtype='float32' for training, and set precision='bf16' for mixed precision"
        )
    check_fit(loaded.name, loaded.model, loaded.tokenizer)


@dataclass(frozen=True)
class _Corpus:
    """What a training reads; see `train`."""

    documents: Sequence[Any]
    validation: Sequence[Any] | None
    separator: str | None
    canaries: Mapping[str, int]
    wrapping: Wrapping | None
    units: Sequence[str | None] | None


def _rows(
    loaded: LoadedModel, corpus: _Corpus, settings: TrainingSettings
) -> tuple[tuple[Batches, Batches], int]:
    """Rows to train on and to validate on, and how many copies of canaries are in the first."""
    documents, canaries, held = corpus.documents, corpus.canaries, corpus.validation
    wrapping, separator = corpus.wrapping, corpus.separator
    check_units(corpus.units, documents, settings)
    if settings.deduplicate != "none":
        documents, canaries = deduplicated(
            documents, canaries, wrapping=wrapping, near=settings.deduplicate == "near"
        )
    copies, tokenizer, size = sum(canaries.values()), loaded.tokenizer, settings.block_size
    if settings.is_private or wrapping is not None:
        given: dict[str, Any] = {"canaries": canaries, "settings": settings, "validation": held}
        given["units"] = corpus.units
        if wrapping is None:
            return rows_of_documents(tokenizer, documents, separator=separator, **given), copies
        return rows_of_records(tokenizer, documents, wrapping=wrapping, **given), copies
    if held is None:
        documents, held = split_validation(documents, canaries, settings)
    blocks = pack(tokenizer, documents, separator=separator, block_size=size, atomic=canaries)
    check_deliveries(tokenizer, blocks, canaries, separator=separator)
    return (blocks, pack(tokenizer, held, separator=separator, block_size=size)), copies


def _inputs_sha256(
    loaded: LoadedModel, settings: TrainingSettings, training: Batches, validation: Batches
) -> str:
    """Hash of all that decides the result, apart from the machine."""
    parts = [
        canonical_json(settings.decisive()),
        canonical_json(sorted(loaded.tokenizer.get_vocab().items())),
        weights_sha256(loaded.model).encode(),
        *training.parts,
        *validation.parts,
    ]
    return sha256_bytes(canonical_json([sha256_bytes(part) for part in parts]))


def _finished(out: Path, inputs: str, settings: TrainingSettings) -> TrainingResult | None:
    """The result of this very training, if it is in `out`; what is damaged of it counts as none."""
    path, model = out / "training.json", out / "model"
    record = read_training(path) if path.exists() else None
    if record is not None and record.inputs_sha256 != inputs:
        raise ResultError(
            f"{out} holds a finished training with other settings, data or initial weights; "
            "choose another directory"
        )
    damaged = path if record is None else damaged_model(model)
    if record is not None and damaged is None:
        for name in record.refuse_strange(out):
            raise ResultError(
                f"{out / name} has gone since the training, which alone can make it; put it back, "
                "or train into another directory"
            )
        return record.result.model_copy(update={"model_path": model, "reused": True})
    refuse_foreign(out, _written_by(settings))
    check(model)
    if path.exists():
        say_rebuilt(damaged or path, BEGINS_ANEW)
    elif model.exists() and not (out / "checkpoint.pt").exists():
        raise ResultError(f"{out} holds a model of another origin; choose another directory")
    return None


def _written_by(settings: TrainingSettings) -> Iterator[str]:
    """What a training writes, by its names in the output directory."""
    yield from ("model", "checkpoint.pt", "metrics.jsonl", "training.json", "best-[0-9]*")
    if settings.method in _TEACHERS:
        yield TEACHERS
    if settings.snapshot_epochs:
        yield "snapshots"
    if settings.is_private:
        yield from ("dp_report.json", "white_box.json")


def _set_aside(out: Path, best: Path) -> None:
    """Keep a model that is not what its training wrote, or of which no record says whose it is."""
    path, model = out / "training.json", out / "model"
    if not path.exists() or (model.is_dir() and file_hashes(model) == file_hashes(best)):
        return
    aside = set_aside_in(out)
    aside.mkdir()
    for moved in (model, path):
        if moved.exists():
            moved.rename(aside / moved.name)
    say_rebuilt(path, f"what it may belong to is kept in {aside}")


def _accelerator(loaded: LoadedModel) -> Accelerator:
    accelerator = Accelerator(cpu=loaded.model.device.type == "cpu")
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if accelerator.num_processes != launched:
        raise ModelError(
            f"{launched} processes were launched, but accelerate runs "
            f"{accelerator.num_processes}; on the CPU launch with ACCELERATE_USE_CPU=true torchrun"
        )
    if accelerator.mixed_precision != "no":
        raise ModelError(
            f"accelerate computes in {accelerator.mixed_precision} in this process, as its launch, "
            "its environment or an earlier Trainer wanted, and our precision would not hold; train "
            "in a new process, and set precision='bf16' for mixed precision"
        )
    return accelerator
