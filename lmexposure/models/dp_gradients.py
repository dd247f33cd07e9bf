"""What a DP step does with documents' gradients: clipped, summed, with noise, into weights."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from lmexposure.models.dp_randomness import CLEAR, Noise, copied, most_alike, noise_p, size_p
from lmexposure.models.dp_training import (
    DpFinding,
    DpTraining,
    Step,
    finding,
    shortened,
    world_size,
)

_TOLERANCE = 1e-4  # relative, of a document's gradient
_FAINT = 1e-3  # of the largest; a smaller gradient is rounding, as where no token has loss
STEPS = 12  # with weights held still
_STEEP = (3.0, 300.0)  # times the clip, the least norms of documents that are clipped
_NONE, _IS_NONE = 1e-3, "none"  # a share of the claimed noise that is rounding
_KEPT = 1 << 18  # coordinates of which noise is kept, of all weights; more where one is wide
_VISIBLE_LR = 0.01  # a smaller step may be lost in rounding, and says nothing about who moves

NO_STEP = (
    "the optimizer took no step after a batch: it waits for more batches, and a Poisson sample "
    "must end in a step; take one after each batch, BatchMemoryManager splits large ones"
)


_NO_GRADIENTS = (
    "no document has a gradient in the optimizer's weights: the loss does not depend on them; make "
    "the optimizer from the model as it is trained"
)


def check_position_ids(training: DpTraining, numbers: Sequence[int]) -> DpFinding:
    """Whether each weight has as many documents' gradients as the batch has documents."""
    training.backward(training.batch(numbers))
    wrong = {
        training.name(p): found
        for p in training.weights
        if (held := getattr(p, "grad_sample", None)) is not None
        and (found := sum(map(len, held)) if isinstance(held, list) else len(held)) != len(numbers)
    }
    trouble = ""
    for name, found in islice(wrong.items(), 1):
        more = f", and {len(wrong) - 1} more weights" if len(wrong) > 1 else ""
        trouble = (
            f"{name} has gradients of {found} documents in a batch of {len(numbers)}{more}: all "
            f"documents are clipped there as if they were {found}, and one document can change the "
            "sum by more than the clipping norm. A layer that is read once for the whole batch "
            "does that, as GPT-2's positions are: give position_ids of shape (documents, tokens) "
            "in each batch"
        )
    told = f"each weight has a gradient for each of {len(numbers)} documents"
    return finding("position ids", trouble, told)


def check_gradients(training: DpTraining, numbers: Sequence[int]) -> tuple[DpFinding, list[float]]:
    """Each document's gradient in a batch against that of the document alone."""
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
        return finding("gradients", _NO_GRADIENTS, ""), norms
    sizes = [max(size, _FAINT * max(alones)) for size in alones]
    errors = [error / size for error, size in zip(errors, sizes, strict=True)]
    ratios = [found / size for found, size in zip(togethers, sizes, strict=True)]
    worst = max(range(len(errors)), key=lambda place: errors[place])
    trouble, told = (
        "",
        (
            f"{len(numbers)} documents' gradients differ from those of each alone by at most "
            f"{errors[worst]:.1e} of their norm, allowed {_TOLERANCE:g}"
        ),
    )
    if not errors[worst] <= _TOLERANCE:
        trouble = (
            f"document {numbers[worst]} has in a batch of {len(numbers)} a gradient of "
            f"{ratios[worst]:.4g} times its norm alone, off by {errors[worst]:.1e} of it, allowed "
            f"{_TOLERANCE:g}: {_reason(ratios, len(numbers), training.private.loss_reduction)}"
        )
    return finding("gradients", trouble, told), norms


def check_clipping(
    training: DpTraining,
    numbers: Sequence[int],
    norms: Sequence[float],
    bound: float,
    see: Callable[[Step], None],
) -> tuple[DpFinding, str]:
    """The clipped sums of twelve steps, weights held still, against documents alone; why not."""
    least = min((norm for norm in norms if norm > _FAINT * max(norms)), default=1.0)
    scales = [max(steep * bound, steep / _STEEP[0]) / least for steep in _STEEP]
    expected = [[torch.zeros_like(p) for p in training.weights] for _ in scales]
    for alone in _alone(training, numbers):
        for scale, totals in zip(scales, expected, strict=True):
            clipped = _clipped(training, alone, scale, bound)
            for total, gradient in zip(totals, clipped, strict=True):
                total += gradient * world_size()  # each process has the same documents here
    error, found, wanted, place_of_it = -1.0, 0.0, 0.0, 0
    for place in range(STEPS):
        regime = place % len(scales)
        training.backward(training.batch(numbers), scales[regime])
        try:
            step, trouble = training.take_step(), NO_STEP
        except (ValueError, RuntimeError) as failure:  # Opacus at gradients that do not fit
            step = None
            trouble = f"cannot be looked at, since the optimizer's step fails: {failure}"
        if step is None:
            return finding("clipping", trouble, ""), trouble
        see(step)
        apart = _norm([a - b for a, b in zip(step.sums, expected[regime], strict=True)])
        if apart > error:
            error, found, wanted = apart, _norm(step.sums), _norm(expected[regime])
            place_of_it = place
    documents, least = len(numbers), _STEEP[place_of_it % len(_STEEP)] * bound
    told = (
        f"the clipped sum of {documents} documents with gradients of norm {least:.3g} and more "
        f"has norm {found:.4g} in step {place_of_it + 1} of {STEPS}; clipping each to {bound:g} "
        f"gives {wanted:.4g}, at most {documents * bound:.4g}; they differ by {error:.1e}"
    )
    wrong = (
        f"{told}: documents are not clipped to {bound:g}, and the noise hides less than is "
        "claimed; look at the optimizer's max_grad_norm and clip_and_accumulate"
    )
    right = error <= _TOLERANCE * documents * bound
    return finding("clipping", "" if right else wrong, told), ""


class NoiseSeen:
    """The noise of steps: sums of squares of each weight, and a choice of its coordinates."""

    def __init__(self, training: DpTraining) -> None:
        weights = training.weights
        self.sizes = np.array([p.numel() for p in weights], dtype=np.int64)
        self._places = [_kept_places(p, max(1, _KEPT // len(weights))) for p in weights]
        self._squares: list[list[float]] = []
        self._kept: list[np.ndarray] = []

    def add(self, step: Step) -> None:
        """The noise of one more step; of none, where no clipped sum was made."""
        if not step.sums:
            return
        noises = [noisy.double() - s for noisy, s in zip(step.noisy, step.sums, strict=True)]
        self._squares.append([float(noise.square().sum()) for noise in noises])
        kept = [n.flatten()[at].cpu() for n, at in zip(noises, self._places, strict=True)]
        self._kept.append(torch.cat(kept).float().numpy())

    def over(self, wanted: float) -> Noise:
        """In units of the claimed standard deviation."""
        weight = np.repeat(np.arange(len(self._places)), [len(at) for at in self._places])
        return Noise(
            squares=np.array(self._squares) / wanted**2,
            sizes=self.sizes,
            kept=np.stack(self._kept).astype(float) / wanted,
            weight=weight,
        )


def _kept_places(weight: Tensor, most: int) -> Tensor:
    """The first rows and the first column of a weight, or all of a small one."""
    width = weight.shape[-1] if weight.ndim > 1 else 1
    most = max(most, 4 * width)
    if weight.numel() <= most:
        return torch.arange(weight.numel(), device=weight.device)
    column = torch.arange(0, min(weight.numel(), width * (most // 2)), width)
    kept = torch.unique(torch.cat([torch.arange(most // 2), column]))
    return torch.as_tensor(kept, device=weight.device)


def check_noise(
    training: DpTraining, seen: NoiseSeen, sigma: float, clip: float, level: float
) -> DpFinding:
    """The noise of all steps: size, distribution, and independence over steps and coordinates."""
    wanted = sigma * clip
    if wanted == 0:
        trouble = "the claim is a noise multiplier of 0: no epsilon is; set one above 0"
        return finding("noise", trouble, "")
    noise = seen.over(wanted)
    each = np.sqrt(noise.squares.sum(1) / noise.sizes.sum())
    found = float(np.sqrt((each**2).mean()))
    told = (
        f"the noise of {len(each)} steps has standard deviation {found * wanted:.4g} in "
        f"{noise.sizes.sum()} coordinates, claimed {wanted:.4g} = {sigma:g} x {clip:g}"
    )
    p = noise_p(noise)
    failed = {name for name, value in p.items() if value < level / len(p)}
    return finding("noise", told + _trouble(training, noise, failed) if failed else "", told)


def _trouble(training: DpTraining, noise: Noise, failed: set[str]) -> str:
    """The first thing that is wrong with noise, in the order in which it explains the others."""
    in_all = float(np.sqrt(noise.squares.sum() / (len(noise.squares) * noise.sizes.sum())))
    if in_all < _NONE:
        return ": no noise is added; the claim is for noise_multiplier x max_grad_norm"
    uneven = _uneven(training, noise, in_all)
    if "pair" in failed and not uneven.endswith(_IS_NONE):
        first, second = most_alike(noise.kept)
        return (
            f", but two steps have the same noise, or noise of the same course ({first + 1} and "
            f"{second + 1}): their difference has none; do not seed the noise generator anew"
        )
    shared = "volume" in failed or ("copies" in failed and copied(noise.kept))
    if shared and not uneven.endswith(_IS_NONE):
        return (
            ", but coordinates share their noise: their difference has none; draw a number of its "
            "own for each coordinate"
        )
    if uneven:
        return f", but {uneven}: every weight needs the same noise in every step"
    if failed & {"all", "step", "weight", "cell"}:
        return (
            f": it is {in_all:.3g} times what is claimed; the claim is for "
            "noise_multiplier x max_grad_norm"
        )
    return ", but it is not normal: epsilon is computed for Gaussian noise, draw it by torch.normal"


def _uneven(training: DpTraining, noise: Noise, in_all: float) -> str:
    """The weight or the step whose noise is another than that of all, if one clearly is."""
    squares, sizes, steps = noise.squares / in_all**2, noise.sizes, len(noise.squares)
    of_weights = size_p(squares.sum(0), steps * sizes)
    of_steps = size_p(squares.sum(1), sizes.sum())
    if min(of_weights.min(), of_steps.min()) > CLEAR:
        return ""
    place, step = int(of_weights.argmin()), int(of_steps.argmin())
    if of_weights[place] <= of_steps[step]:
        where = f"on {training.name(training.weights[place])}"
        share = float(np.sqrt(squares[:, place].sum() / (steps * sizes[place])))
    else:
        where = f"in step {step + 1} of {steps}"
        share = float(np.sqrt(squares[step].sum() / sizes.sum()))
    return f"{where} it is {_IS_NONE if share < _NONE else f'{share:.3g} times that'}"


def check_weights(training: DpTraining, numbers: Sequence[int]) -> DpFinding:
    """Whether every weight that is meant to learn moves in one step."""
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
    if still or outside or trouble:
        trouble = (
            f"{len(still)} of {len(meant)} weights that are to learn did not move in a step"
            f"{trouble}: {_reasons(training, list(still.values()), without, outside)}"
        )
    told = f"all {len(meant)} weights that are to learn moved in a step"
    return finding("weights", trouble, told)


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
    said = [f"{shortened(list(map(training.name, ps)))} {what}" for what, ps in kinds.items() if ps]
    if outside:
        said.append(f"the optimizer holds {len(outside)} weights that are not the model's")
    known = {id(p) for found in (outside, *kinds.values()) for p in found}
    if rest := [p for p in still if id(p) not in known]:
        names = shortened(list(map(training.name, rest)))
        said.append(f"{names} stay where they are; is their learning rate 0?")
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
