"""A check of a DP-SGD training by Opacus before it is believed: is it what its epsilon is for?"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from typing import Any

from lmexposure._validate import fraction, integer, positive
from lmexposure.errors import ModelError
from lmexposure.models.dp_gradients import (
    NoiseSeen,
    check_clipping,
    check_gradients,
    check_noise,
    check_position_ids,
    check_weights,
)
from lmexposure.models.dp_loop import (
    check_accountant,
    check_accumulation,
    check_batches,
    check_empty_batches,
)
from lmexposure.models.dp_randomness import DpBatches
from lmexposure.models.dp_training import (
    DpFinding,
    DpTraining,
    Loss,
    Step,
    batches_of_loader,
    finding,
    random_numbers,
    samplers_of,
    unchanged,
    without_dropout,
    world_size,
)
from lmexposure.models.dp_updates import Guard, Turn, check_update, plain_turn, take_turns

_NOT_COVERED = (
    "later steps than the first two dozen",
    "documents that are in the corpus more than once",
    "who can foresee the noise or the coins",
    "what is published beside the weights",
)
_NO_LOOP = "the loop around the optimizer (give step=)"


@dataclass(frozen=True, kw_only=True)
class DpCheck:
    """What a check of a DP training found."""

    findings: tuple[DpFinding, ...]  # one a question, in the order in which they were asked
    # noise_multiplier, max_grad_norm, sample_rate: the claim that was checked; None: unknown
    noise_multiplier: float
    max_grad_norm: float
    sample_rate: float | None
    level: float  # the probability that a right training has any finding that failed, at most
    not_covered: tuple[str, ...]  # what a pass says nothing about

    @property
    def passed(self) -> bool:
        """Whether every question could be looked at, and its answer is as it should be."""
        return not self.failed and not self.not_seen

    @property
    def failed(self) -> tuple[DpFinding, ...]:
        """The findings that are not as they should be."""
        return tuple(f for f in self.findings if f.seen and not f.passed)

    @property
    def not_seen(self) -> tuple[DpFinding, ...]:
        """What could not be looked at: no fault, and no pass."""
        return tuple(f for f in self.findings if not f.seen)

    def require(self) -> None:
        """Go on only if nothing is wrong and all was seen; a pass does not cover `not_covered`."""
        said = ". ".join(f"{f.name}: {f.message}" for f in self.failed or self.not_seen)
        if self.failed:
            raise ModelError(f"this is not the DP-SGD training that its epsilon is for. {said}")
        if self.not_seen:
            raise ModelError(
                "it is not known whether this is the training that its epsilon is for. Not seen: "
                f"{said}"
            )

    def to_dict(self) -> dict[str, Any]:
        """The claim and the findings as JSON values."""
        return {"passed": self.passed, **asdict(self)}

    def __str__(self) -> str:
        words = ("right" if f.passed else "WRONG" if f.seen else "not seen" for f in self.findings)
        lines = [f"{w}  {f.name}: {f.message}" for w, f in zip(words, self.findings, strict=True)]
        return "\n".join([*lines, f"not covered  {'; '.join(self.not_covered)}"])


def dp_check(  # noqa: PLR0913  a public door: one argument an input
    model: Any,
    optimizer: Any,
    loader: Any,
    *,
    loss: Loss | None = None,
    step: Turn | None = None,
    accountant: Any = None,
    noise_multiplier: float | None = None,
    max_grad_norm: float | None = None,
    sample_rate: float | None = None,
    processes: int | None = None,
    documents: int = 8,
    level: float = 0.001,
) -> DpCheck:
    """Check that a training by Opacus is the DP-SGD that its epsilon is for; nothing is changed.

    Some two dozen steps are taken for real, on documents of the corpus, and put back to the byte:
    weights, gradients, the optimizers' state, the accountant, samplers, random numbers. Checked are
    each document's gradient, clipping, noise, batches and their rate, what the accountant is told,
    whether each weight learns and moves by the noisy gradient alone, empty batches, and accumulated
    gradients. What is random is tested; together the tests alarm at a right training with
    probability `level` at most: half of it is shared equally by ten tests of noise, half by four of
    what the sampler draws. A pass covers what was looked at; `not_covered` says what was not.

    A training with a loop and documents of its own gives, in place of a loader,
    `DpBatches(count=..., batch=..., sample=...)`: `batch(numbers)` makes for example
    `(input_ids, labels)` of documents, `sample()` draws the numbers of a step's documents; and
    `loss(model, batch)`, which may give each document's loss, shape (B,). The model still has
    Opacus' hooks and the optimizer is a DPOptimizer.

    Args:
        model: what `make_private` returns, or the hooked model itself.
        optimizer: the DPOptimizer, also as prepared by accelerate.
        loader: what training iterates over: a DPDataLoader, also as prepared by accelerate; or
            DpBatches.
        loss: (model, batch) -> the loss as training has it, reduced as the optimizer's
            `loss_reduction` says, or of each document; None: `model(**batch).loss`.
        step: one turn of the training's loop for a given batch, from forward pass to step, without
            a schedule of learning rates; then the loop itself is looked at, for twelve turns. None:
            it is not covered.
        accountant: the PrivacyEngine or its accountant; None: the one that the optimizer's hook
            tells.
        noise_multiplier: the claimed sigma; None: what the accountant is told.
        max_grad_norm: the claimed clipping norm; None: the optimizer's.
        sample_rate: the claimed probability q of a document to be in a step's batch; None: what
            the accountant is told.
        processes: how many processes train together, each with such a loader; None: those of
            torch.distributed, all of which then call this.
        documents: how many documents' gradients are compared, 2 or more.
        level: of all tests together, in (0, 1).

    Returns:
        A DpCheck, whose `passed` says whether all is right and whose `require()` insists on it. Of
        a training whose forward or backward pass fails, as Opacus' does at layers that it does not
        know, it has one finding, which was not seen.

    Raises:
        ModelError: opacus is missing or older than 1.6, or the model or optimizer is not by it.
        SettingsError: an argument outside its range, ghost clipping, a loader without a batch
            sampler, batches that the model gives no loss for.
    """
    processes = world_size() if processes is None else integer("processes", processes, low=1)
    integer("documents", documents, low=2)
    fraction("level", level)
    batches = loader if isinstance(loader, DpBatches) else batches_of_loader(loader)
    training = DpTraining(model, optimizer, batches, loss=loss, accountant=accountant)
    private = training.private
    sigma = None if noise_multiplier is None else positive("noise_multiplier", noise_multiplier)
    clip = None if max_grad_norm is None else positive("max_grad_norm", max_grad_norm)
    rate = None if sample_rate is None else fraction("sample_rate", sample_rate)
    clip = clip or float(private.max_grad_norm)
    others = [training.accountant, training.hooks, *samplers_of(loader)]
    kept = [other for other in others if other is not None]
    guard = partial(unchanged, training.model, training.optimizers, kept, training.generators)
    # At random, for documents of a corpus may take turns by length.
    numbers = Random(0).sample(range(batches.count), min(documents, batches.count))
    not_covered = _NOT_COVERED if step else (_NO_LOOP, *_NOT_COVERED)
    with guard():
        without_dropout(training.model)
        training.model.train()
        claimed = sigma, clip, rate
        try:
            findings, sigma, rate = _answers(
                training, numbers, claimed, step, processes, level, guard
            )
        except ModelError as failure:  # of the training's own pass, or Opacus at a layer in it
            message, not_covered = f"{failure}; so nothing could be looked at", _NOT_COVERED
            findings = [finding("gradients", message, "", seen=False)]
    return DpCheck(
        findings=tuple(findings),
        noise_multiplier=float(private.noise_multiplier) if sigma is None else sigma,
        max_grad_norm=clip,
        sample_rate=batches.rate if rate is None else rate,
        level=level,
        not_covered=not_covered,
    )


def _answers(
    training: DpTraining,
    numbers: Sequence[int],
    claimed: tuple[float | None, float, float | None],
    loop: Turn | None,
    processes: int,
    level: float,
    guard: Guard,
) -> tuple[list[DpFinding], float, float | None]:
    """The questions in their order, and the noise multiplier and the rate that were claimed.

    Where no argument claims them, what the accountant is told is the claim.
    """
    findings = [check_position_ids(training, numbers)]
    gradients, norms = check_gradients(training, numbers)
    noise, told = NoiseSeen(training), list[tuple[tuple[float, float, int], ...]]()

    def see(step: Step) -> None:
        noise.add(step)
        told.append(step.told)

    clip = claimed[1]
    clipping, trouble = check_clipping(training, numbers, norms, clip, see)
    findings += [gradients, clipping]
    turn = loop or plain_turn(training)
    with guard():  # what a loop leaves, such as a learning rate, is not the training's
        turns = take_turns(training, numbers, turn, see)
        go_on = random_numbers(training.generators)
    go_on()  # or the sampler's coins would be the very numbers of the turns' noise
    first = next((entry for of_step in told for entry in of_step), (None, None, 0))
    sigma: float = _first(claimed[0], first[0], float(training.private.noise_multiplier))
    rate = _first(claimed[2], first[1], training.batches.rate)
    if trouble:
        findings += [finding(name, trouble, "") for name in ("noise", "accountant")]
    else:
        findings.append(check_noise(training, noise, sigma, clip, level / 2))
        findings.append(check_accountant(training, told, sigma, rate))
    findings += check_batches(training, rate, processes, level / 2)
    findings.append(check_update(training, numbers, turn, turns, guard))
    findings.append(check_weights(training, numbers))
    findings.append(check_accumulation(training, turns, loop is not None))
    findings.append(check_empty_batches(training, rate, loop))
    return findings, sigma, rate


def _first(*values: float | None) -> Any:
    return next((value for value in values if value is not None), None)
