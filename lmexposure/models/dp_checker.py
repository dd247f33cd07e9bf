"""A check of a DP-SGD training by Opacus before it is believed: is it what its epsilon is for?

Around a DP step: who is in it, what the accountant is told, when a step is taken.
"""

import math
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
from lmexposure.models.dp_randomness import (
    DpBatches,
    Drawn,
    draw,
    extremes_p,
    meetings_p,
    rate_p,
    spread_p,
)
from lmexposure.models.dp_training import (
    DpFinding,
    DpTraining,
    Loss,
    Step,
    batches_of_loader,
    finding,
    samplers_of,
    unchanged,
    without_dropout,
    world_size,
)
from lmexposure.models.dp_updates import Guard, Turn, Turns, check_update, plain_turn, take_turns
from lmexposure.models.weights import random_numbers

_RARE = 1e-9  # an empty batch of such a probability does not come
_TESTS = 4  # of what a sampler draws
_EXACT = 1e-6  # relative, of numbers that are handed on
_POISSON = (
    "take batches by Poisson sampling (make_private does, a DPDataLoader): accounted as Poisson, "
    "shuffled batches leak up to 4 times what is claimed, and variants 10 times"
)


def check_accountant(
    training: DpTraining,
    told: Sequence[tuple[tuple[float, float, int], ...]],
    sigma: float,
    rate: float | None,
) -> DpFinding:
    """Whether each step was told as one step of the claimed noise and rate."""
    trouble = ""
    entries = [entry for of_step in told for entry in of_step]
    counts = [sum(entry[2] for entry in of_step) for of_step in told]
    noises, rates = {e[0] for e in entries}, {e[1] for e in entries}
    if training.private.step_hook is None and training.accountant is None:
        trouble = (
            "no accountant is told of steps: attach one with optimizer.attach_step_hook("
            "accountant.get_optimizer_hook_fn(sample_rate))"
        )
    elif training.accountant is None:
        trouble = "the optimizer's step hook shows no accountant; give accountant="
    elif not entries:
        trouble = (
            "the accountant was not told of a step: attach "
            "accountant.get_optimizer_hook_fn(sample_rate) to the optimizer that takes the steps"
        )
    elif any(count != 1 for count in counts):
        trouble = f"the accountant was told of {sum(counts)} steps where {len(counts)} were taken"
    elif other := [n for n in noises if not math.isclose(n, sigma, rel_tol=_EXACT)]:
        trouble = f"the accountant is told noise_multiplier {other[0]:g}, claimed {sigma:g}"
    elif rate is not None and (
        wrong := [r for r in rates if not math.isclose(r, rate, rel_tol=_EXACT)]
    ):
        trouble = f"the accountant is told sample_rate {wrong[0]:g}, claimed {rate:g}"
    done = f"each of {len(counts)} steps was told as one, with noise_multiplier {sigma:g}"
    if rate is not None:
        done += f" and sample_rate {rate:g}"
    return finding("accountant", trouble, done)


def check_batches(
    training: DpTraining, rate: float | None, processes: int, level: float
) -> list[DpFinding]:
    """Batch size, rate and independence; tests of rate, sizes (two), meetings share `level`."""
    if rate is None:
        trouble = "no sampling rate is claimed and no accountant is told of one; give sample_rate="
        return [finding("rate", trouble, "")]
    drawn = draw(training.batches, rate)
    of_rate = _rate(training, drawn, rate, processes, level / _TESTS)
    there = rate
    if not of_rate.passed:  # which is said; sampling may be right at the rate that there is
        documents = training.batches.pool or training.batches.count
        there = min(1.0, float(drawn.sizes.mean()) / documents)
    return [
        _batch_size(training, drawn, rate, processes),
        of_rate,
        _sampling(training, drawn, there, level / _TESTS),
    ]


def check_accumulation(training: DpTraining, turns: Turns, looped: bool) -> DpFinding:
    """Whether each batch ends in a step of its own; with `looped`, the turns are a given loop's."""
    state = next((s for o in training.optimizers if (s := vars(o).get("gradient_state"))), None)
    waiting, trouble = getattr(state, "num_steps", 1), ""
    told = "a second backward pass before a step is refused"
    if waiting > 1:
        trouble = f"accelerate gathers {waiting} batches for a step: gradient_accumulation_steps=1"
    elif looped:
        told = f"{len(turns.batches)} batches ended in a step each"
        wrong = [
            (batch, steps)
            for batch, steps in zip(turns.batches, turns.held, strict=True)
            if steps != [batch]
        ]
        if wrong:
            trouble = f"a batch of {wrong[-1][0]} documents ended in steps of {wrong[-1][1]}"
        elif turns.failure:
            trouble = f"the loop ends {turns.failure}"
            if turns.outside:
                trouble += (
                    f". {', '.join(turns.outside)} get gradients and are not in the DP optimizer, "
                    "which neither clips nor clears them: put all weights that learn into it"
                )
            return finding("accumulation", trouble, "")
    elif getattr(training.hooks, "grad_accumulation_allowed", False):
        trouble = (
            "the model takes several backward passes before a step without a word: "
            "model.forbid_grad_accumulation(), or give step="
        )
    if trouble:
        trouble += (
            ". Over several Poisson samples a document counts several times under one noise, at a "
            "rate that was not accounted; split large batches with BatchMemoryManager"
        )
    return finding("accumulation", trouble, told)


def check_empty_batches(training: DpTraining, rate: float | None, turn: Turn | None) -> DpFinding:
    """Whether a sample without documents ends in a step of noise alone, if such a sample comes."""
    count = training.batches.count
    probability = 1.0 if rate is None else (1 - rate) ** count
    try:
        trouble = _empty(training, turn)
    except Exception as failure:  # whatever a model that others wrote says to an empty batch
        trouble = f"it fails: {type(failure).__name__}: {failure}"
    told = "an empty batch ends in a step of noise alone"
    if trouble:
        expected = f"an empty batch has probability {probability:.1e} a step"
        told = f"{expected}; none comes"
        trouble = (
            f"{expected}, and {trouble}. Its step must be taken, with noise alone, or it shows "
            "that there was none: give each weight a grad_sample of shape (0, ...) and call "
            "optimizer.step()"
        )
    return finding("empty batches", "" if probability < _RARE else trouble, told)


def _empty(training: DpTraining, turn: Turn | None) -> str:
    if turn is not None:
        held: list[int] = []
        training.forget()
        with training.watched(lambda step: held.append(step.documents), moving=False):
            turn(training.batch(()))
        return "" if len(held) == 1 else f"the loop takes {len(held)} steps for it"
    training.backward(training.batch(()))
    step = training.take_step()
    if step is None:
        return "no step is taken for it"
    norm = math.sqrt(sum(float(total.double().square().sum()) for total in step.sums))
    if norm == 0:
        return ""
    return f"its sum has norm {norm:.3g} and must be 0: what is read in its place counts"


def _batch_size(training: DpTraining, drawn: Drawn, rate: float, processes: int) -> DpFinding:
    """What the noisy sum is divided by, and how many documents all processes draw together."""
    count, private = training.batches.count, training.private
    wanted, mean = count * rate / processes, float(drawn.sizes.mean())
    of_each = f"{count} documents x {rate:g}"
    if processes > 1:
        of_each += f" / {processes} processes"
    told = f"a process draws {mean:.4g} documents a step, claimed {wanted:.4g} = {of_each}"
    trouble = ""
    if processes > 1 and mean > wanted * (1 + processes) / 2:
        trouble = (
            f"{told}: each of {processes} processes draws from all documents, and a step has "
            f"{mean * processes:.4g} where {count * rate:.4g} are accounted; split the documents, "
            "as make_private does for a model in DifferentiallyPrivateDistributedDataParallel"
        )
    elif private.loss_reduction == "mean":
        expected = float(private.expected_batch_size)
        told += f"; the noisy sum is divided by {expected:g}"
        if not wanted - 1 / processes - _EXACT <= expected <= wanted * (1 + _EXACT):
            trouble = (
                f"{told}: expected_batch_size must be {wanted:.4g}, "
                "documents x sample_rate / processes"
            )
    return finding("batch size", trouble, told)


def _rate(
    training: DpTraining, drawn: Drawn, rate: float, processes: int, level: float
) -> DpFinding:
    count, given = training.batches.count, training.batches.rate
    steps, total = len(drawn.sizes), int(drawn.sizes.sum())
    share = count / processes
    if training.batches.pool is not None and abs(training.batches.pool - share) < 1:
        share = training.batches.pool
    p = rate_p(drawn, share, rate)
    told = (
        f"{steps} batches held {total} documents of {share * steps * rate:.0f} expected at rate "
        f"{rate:g}, p = {p:.2g}"
    )
    # Opacus' loader has int(1 / rate) steps an epoch, and make_private takes 1 / steps for rate.
    same = given is None or math.isclose(given, rate, rel_tol=_EXACT)
    rounded = given is not None and math.isclose(1 / int(1 / given), rate, rel_tol=_EXACT)
    trouble = ""
    if not (same or rounded):
        trouble = f"the sampler takes documents at rate {given:g}, accounted are {rate:g}; {told}"
    elif p < level:
        trouble = f"{told}: the loader's rate is about {total / (share * steps):.4g}"
    if trouble:
        trouble += ". Give the accountant the rate of the loader that training iterates over"
    return finding("rate", trouble, told)


def _sampling(training: DpTraining, drawn: Drawn, rate: float, level: float) -> DpFinding:
    documents = training.batches.pool or training.batches.count
    sizes, steps = drawn.sizes, len(drawn.sizes)
    spread, wanted = float(sizes.std()), math.sqrt(documents * rate * (1 - rate))
    p, found, expected = meetings_p(drawn, documents, rate)
    told = (
        f"{steps} batches of {sizes.mean():.4g} documents with standard deviation {spread:.3g}, "
        f"binomial {wanted:.3g}; a document was in two of them {found:.0f} times, independent "
        f"{expected:.0f}"
    )
    cut = extremes_p(drawn, documents, rate) < level
    reasons = {
        f"{drawn.repeated} batches hold a document twice": drawn.repeated > 0,
        "sizes are constant": spread == 0 < wanted,
        "sizes are not binomial": spread > 0 and spread_p(sizes, documents, rate) < level,
        f"no batch is larger than {sizes.max()} or smaller than {sizes.min()}": spread > 0 and cut,
        "each document comes once an epoch": p < level and found < expected,
        "some documents come too often": p < level and found > expected,
    }
    trouble = " and ".join(reason for reason, holds in reasons.items() if holds)
    return finding("sampling", f"{told}: {trouble}; {_POISSON}" if trouble else "", told)


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
        undo = random_numbers(training.generators)
    for go_on in undo:  # or the sampler's coins would be the very numbers of the turns' noise
        go_on()
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
