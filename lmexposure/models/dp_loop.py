"""What is around a DP step: who is in it, what the accountant is told, when a step is taken."""

import math
from collections.abc import Sequence

from lmexposure.models.dp_randomness import Drawn, draw, extremes_p, meetings_p, rate_p, spread_p
from lmexposure.models.dp_training import DpFinding, DpTraining, finding
from lmexposure.models.dp_updates import Turn, Turns

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
