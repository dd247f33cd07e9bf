"""What a DP step does with documents' gradients: clipped, summed, with noise, into weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor, nn

from lmexposure.models.dp_training import DpFinding, DpTraining, Step, world_size

_TOLERANCE = 1e-4  # relative, of a document's gradient
_FAINT = 1e-3  # of the largest; a smaller gradient is rounding, as where no token has loss
_SHOWN = 4
_VISIBLE_LR = 0.01  # a smaller step may be lost in rounding, and says nothing about who moves

NO_STEP = (
    "the optimizer took no step after a batch: it waits for more batches, and a Poisson sample "
    "must end in a step; take one after each batch, BatchMemoryManager splits large ones"
)


_NO_GRADIENTS = (
    "no document has a gradient in the optimizer's weights: the loss does not depend on them; make "
    "the optimizer from the model as it is trained"
)


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What is claimed of a step, apart from who is in it.

    Args:
        noise_multiplier: sigma, in units of the clipping norm.
        max_grad_norm: the clipping norm C.
    """

    noise_multiplier: float
    max_grad_norm: float


def check_position_ids(training: DpTraining, numbers: Sequence[int]) -> DpFinding:
    """Whether each weight has as many documents' gradients as the batch has documents."""
    training.backward(training.batch(numbers))
    wrong = {
        training.name(p): found
        for p in training.weights
        if (held := getattr(p, "grad_sample", None)) is not None
        and (found := sum(map(len, held)) if isinstance(held, list) else len(held)) != len(numbers)
    }
    if not wrong:
        told = f"each weight has a gradient for each of {len(numbers)} documents"
        return DpFinding(name="position ids", passed=True, message=told)
    name, found = next(iter(wrong.items()))
    return DpFinding(
        name="position ids",
        passed=False,
        message=f"{name} has gradients of {found} documents in a batch of {len(numbers)}"
        f"{_and_more(wrong)}: all documents are clipped there as if they were {found}, and one "
        "document can change the sum by more than the clipping norm. A layer that is read once for "
        "the whole batch does that, as GPT-2's positions are: give position_ids of shape "
        "(documents, tokens) in each batch",
    )


def check_gradients(training: DpTraining, numbers: Sequence[int]) -> tuple[DpFinding, list[float]]:
    """Each document's gradient in a batch against that of the document alone.

    Returns:
        The finding; and the norm of each document's gradient, alone.
    """
    training.backward(training.batch(numbers))
    together = {
        id(p): held
        for p in training.weights
        if torch.is_tensor(held := getattr(p, "grad_sample", None)) and len(held) == len(numbers)
    }
    norms, alones, errors, togethers = [], [], [], []
    for place, alone in enumerate(_alone(training, numbers)):
        pairs = [
            (gradient, together[id(p)][place].view_as(p))
            for p, gradient in zip(training.weights, alone, strict=True)
            if id(p) in together
        ]
        norms.append(_norm(alone))
        alones.append(_norm([a for a, _ in pairs]))
        togethers.append(_norm([b for _, b in pairs]))
        errors.append(_norm([a - b for a, b in pairs]))
    if not together or not any(norms):
        return DpFinding(name="gradients", passed=False, message=_NO_GRADIENTS), norms
    sizes = [max(size, _FAINT * max(alones)) for size in alones]
    errors = [error / size for error, size in zip(errors, sizes, strict=True)]
    ratios = [found / size for found, size in zip(togethers, sizes, strict=True)]
    worst = max(range(len(errors)), key=lambda place: errors[place])
    passed = errors[worst] <= _TOLERANCE
    told = (
        f"{len(numbers)} documents' gradients differ from those of each alone by at most "
        f"{errors[worst]:.1e} of their norm, allowed {_TOLERANCE:g}"
    )
    if not passed:
        told = (
            f"document {numbers[worst]} has in a batch of {len(numbers)} a gradient of "
            f"{ratios[worst]:.4g} times its norm alone, off by {errors[worst]:.1e} of it, allowed "
            f"{_TOLERANCE:g}: {_reason(ratios, len(numbers), training.private.loss_reduction)}"
        )
    return DpFinding(name="gradients", passed=passed, message=told), norms


def check_clipping(
    training: DpTraining, numbers: Sequence[int], norms: Sequence[float], bound: float
) -> tuple[DpFinding, Step | None]:
    """The optimizer's clipped sum against that of documents alone, the loss made steep enough.

    Returns:
        The finding; and the step that was looked at, None if the optimizer took none.
    """
    least = min((norm for norm in norms if norm > _FAINT * max(norms)), default=1.0)
    scale = max(3 * bound, 1.0) / least  # so that each document with a gradient is clipped
    expected = [torch.zeros_like(p) for p in training.weights]
    for alone in _alone(training, numbers):
        for total, gradient in zip(expected, _clipped(training, alone, scale, bound), strict=True):
            total += gradient
    for total in expected:
        total *= world_size()  # each process has the same documents here
    training.backward(training.batch(numbers), scale)
    step = training.take_step()
    if step is None:
        return DpFinding(name="clipping", passed=False, message=NO_STEP), None
    found, wanted = _norm(step.sums), _norm(expected)
    error = _norm([a - b for a, b in zip(step.sums, expected, strict=True)])
    most, passed = len(numbers) * bound, error <= _TOLERANCE * len(numbers) * bound
    told = (
        f"the clipped sum of {len(numbers)} documents with gradients of norm {3 * bound:.3g} and "
        f"more has norm {found:.4g}; clipping each to {bound:g} gives {wanted:.4g}, at most "
        f"{most:.4g}; they differ by {error:.1e}"
    )
    if not passed:
        told += (
            f": documents are not clipped to {bound:g}, and the noise hides less than is claimed; "
            "look at the optimizer's max_grad_norm and clip_and_accumulate"
        )
    return DpFinding(name="clipping", passed=passed, message=told), step


def check_noise(
    training: DpTraining, steps: Sequence[Step], claim: Mechanism, level: float
) -> DpFinding:
    """The noise of two steps: its variance, in all and of each weight, and that it is drawn anew.

    A third of `level` goes to the chi-squared test of all coordinates, one to those of each
    weight's, one to the correlation of the two steps'.
    """
    wanted = claim.noise_multiplier * claim.max_grad_norm
    if wanted == 0:
        told = "the claim is a noise multiplier of 0: no epsilon is; set one above 0"
        return DpFinding(name="noise", passed=False, message=told)
    noises = [
        [n.double() - s for n, s in zip(step.noisy, step.sums, strict=True)] for step in steps
    ]
    first, second = (torch.cat([n.flatten() for n in noise]) for noise in noises)
    found = float((first.square().mean()) ** 0.5)
    told = (
        f"the noise has standard deviation {found:.4g} in {len(first)} coordinates, claimed "
        f"{wanted:.4g} = {claim.noise_multiplier:g} x {claim.max_grad_norm:g}"
    )
    trouble = ""
    if _variance_p(first, wanted) < level / 3:
        trouble = f": {_amount(found / wanted)}; the claim is for noise_multiplier x max_grad_norm"
    elif weak := _uneven(training, noises[0], wanted, level / 3):
        trouble = f", but on {weak}: every weight needs the same noise"
    elif stats.pearsonr(first.cpu(), second.cpu()).pvalue < level / 3:
        trouble = (
            ", but two steps have the same noise, or noise of the same course: their difference "
            "has none; do not seed the noise generator anew at each step"
        )
    return DpFinding(name="noise", passed=not trouble, message=told + trouble)


def check_weights(training: DpTraining, numbers: Sequence[int]) -> DpFinding:
    """Whether every weight that is meant to learn moves in one step.

    Meant are those that require a gradient, and those that the optimizer was given; with adapters,
    frozen weights may be among the latter.
    """
    held = [p for group in training.innermost.param_groups for p in group["params"]]
    free = [p for p in training.model.parameters() if p.requires_grad]
    adapters = any("lora_" in name for name in training.names.values())
    meant = {id(p): p for p in (*free, *(p for p in held if p.requires_grad or not adapters))}
    before = {key: p.detach().clone() for key, p in meant.items()}
    for group in training.innermost.param_groups:
        rate = group.get("lr") or group.get("initial_lr")  # a warm-up begins at 0
        if rate:
            group["lr"] = max(float(rate), _VISIBLE_LR)
    training.backward(training.batch(numbers))
    without = {id(p) for p in free if getattr(p, "grad_sample", None) is None}
    trouble = ""
    try:
        training.optimizer.step()
    except (ValueError, RuntimeError) as failure:
        trouble = f" (the optimizer's step failed: {failure})"
    still = {key: p for key, p in meant.items() if torch.equal(before[key], p)}
    outside = [p for p in held if id(p) not in training.names]
    if not (still or outside or trouble):
        told = f"all {len(meant)} weights that are to learn moved in a step"
        return DpFinding(name="weights", passed=True, message=told)
    return DpFinding(
        name="weights",
        passed=False,
        message=f"{len(still)} of {len(meant)} weights that are to learn did not move in a step"
        f"{trouble}: {_reasons(training, list(still.values()), without, outside)}",
    )


def _reasons(
    training: DpTraining, still: list[nn.Parameter], without: set[int], outside: list[nn.Parameter]
) -> str:
    held = {id(p) for group in training.innermost.param_groups for p in group["params"]}
    kinds = {
        "are frozen (requires_grad=False; leave them out of the optimizer, or let them learn)": [
            p for p in still if not p.requires_grad
        ],
        "are not in the optimizer (make it from the model as it is trained)": [
            p for p in still if p.requires_grad and id(p) not in held
        ],
        "get no gradient (they have no part in the loss; move the model to its device before "
        "get_peft_model)": [p for p in still if id(p) in without and id(p) in held],
    }
    said = [f"{_named(training, found)} {what}" for what, found in kinds.items() if found]
    if outside:
        said.append(f"the optimizer holds {len(outside)} weights that are not the model's")
    known = {id(p) for found in (outside, *kinds.values()) for p in found}
    if rest := [p for p in still if id(p) not in known]:
        said.append(f"{_named(training, rest)} stay where they are; is their learning rate 0?")
    return "; ".join(said) or "see the optimizer's step"


def _alone(training: DpTraining, numbers: Sequence[int]) -> Iterator[list[Tensor]]:
    """The gradient of each document by an ordinary backward pass of it alone."""
    for number in numbers:
        training.backward(training.batch([number]))
        yield [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in training.weights]


def _clipped(
    training: DpTraining, gradients: list[Tensor], scale: float, bound: float
) -> list[Tensor]:
    """A document's gradients times `scale`, clipped together or, if training does so, by weight."""
    layers = getattr(training.private, "max_grad_norms", None)
    if layers is None:
        factor = min(1.0, bound / max(scale * _norm(gradients), 1e-30))
        return [gradient * (scale * factor) for gradient in gradients]
    share = bound / training.private.max_grad_norm
    return [
        gradient * (scale * min(1.0, layer * share / max(scale * _norm([gradient]), 1e-30)))
        for gradient, layer in zip(gradients, layers, strict=True)
    ]


def _variance_p(noise: Tensor, wanted: float) -> float:
    """Two-sided, of the sum of squares in units of the claimed variance: chi-squared."""
    total = float((noise / wanted).square().sum())
    law = stats.chi2(noise.numel())
    return float(min(1.0, 2 * min(law.cdf(total), law.sf(total))))


def _uneven(training: DpTraining, noise: list[Tensor], wanted: float, level: float) -> str:
    """The weight whose noise fits the claim least, if it does not at its share of the level."""
    found = [_variance_p(n, wanted) for n in noise]
    least = min(range(len(found)), key=lambda place: found[place])
    if found[least] >= level / len(found):
        return ""
    size = float(noise[least].square().mean() ** 0.5)
    return f"{training.name(training.weights[least])} it is {size:.4g}"


def _amount(share: float) -> str:
    return "no noise is added" if share < 1e-3 else f"it is {share:.3g} times what is claimed"


def _reason(ratios: list[float], documents: int, reduction: str) -> str:
    middle = sorted(ratios)[len(ratios) // 2]
    if abs(middle / documents - 1) < 0.01:
        return f"the loss is a sum over documents, and loss_reduction={reduction!r} takes a mean"
    if abs(middle * documents - 1) < 0.01:
        return f"the loss is a mean over documents, and loss_reduction={reduction!r} takes a sum"
    return (
        "a document's gradient must not depend on the others in its batch; take the mean over each "
        "document's own tokens first (the loss of transformers is a mean over all tokens of the "
        "batch), and no layer that looks across documents"
    )


def _norm(tensors: Sequence[Tensor]) -> float:
    return float(sum(float(t.double().square().sum()) for t in tensors) ** 0.5)


def _named(training: DpTraining, weights: Sequence[nn.Parameter]) -> str:
    names = [training.name(p) for p in weights]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _and_more(found: dict[str, int]) -> str:
    return f", and {len(found) - 1} more weights" if len(found) > 1 else ""
