"""Whether weights follow the noisy gradient alone: some turns of a loop, each taken once more.

What is released is a function of the state before and of the noisy gradients, or noise does not
hide it. So each turn's update is replayed by the same optimizer on copies of the state before,
given the noisy gradient and nothing else. And turns of two different batches from one state and
with one and the same noisy sum tell whether anything follows the batch.

Two batches that differ in one document, and whether a noisy gradient tells them apart.

The gradients of both are clipped and summed once, by the training's own optimizer. Then its noise
is drawn again and again, on the one sum or the other by a fair coin each time, and read along the
difference. What is tested is how much a real document, clipped as the training clips it, shifts the
sum, and how much noise hides that; not the sampling, nor the composition of steps.
"""

import copy
import secrets
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmexposure._validate import delta_of_dp, fraction, integer
from lmexposure.canaries import derive_seed
from lmexposure.errors import NumericalError, SettingsError
from lmexposure.models.dp_training import (
    DpFinding,
    DpTraining,
    Step,
    dp_optimizer,
    finding,
    shortened,
)
from lmexposure.models.weights import instead
from lmexposure.statistics import GaussianEpsilon, step_guesses_epsilon

Turn = Callable[[Any], Any]
Guard = Callable[[], AbstractContextManager[None]]

TURNS = 12
_SAME = 1e-6  # relative: rounding
_CLEARLY = 3.0  # times as far apart as two turns of one batch are
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_NOT_COPIED = {"state", "param_groups", "step", *_HOOKS}


@dataclass(kw_only=True)
class Turns:
    """What some turns of a loop did."""

    batches: list[int] = field(default_factory=list)  # documents in each
    held: list[list[int]] = field(default_factory=list)  # of each turn, documents in its steps
    divisors: list[float] = field(default_factory=list)
    odd: set[str] = field(default_factory=set)  # not what the optimizer makes of noisy gradients
    changed: set[str] = field(default_factory=set)  # buffers and options that are not as before
    last: list[Tensor] = field(default_factory=list)  # a noisy sum
    failure: str = ""  # at which the loop ended
    outside: list[str] = field(default_factory=list)  # weights that the DP optimizer does not clear
    unseen: str = ""  # why the optimizer could not be replayed


def plain_turn(training: DpTraining) -> Turn:
    """What a loop does at least, for a training that gives none."""

    def turn(batch: Any) -> None:
        training.backward(batch)
        training.optimizer.step()

    return turn


def take_turns(
    training: DpTraining, numbers: Sequence[int], turn: Turn, see: Callable[[Step], None]
) -> Turns:
    """Take turns of half of the documents and of all of them by turns, weights moving."""
    turns, sizes = Turns(), (max(1, len(numbers) // 2), len(numbers))
    training.forget()
    for place in range(TURNS):
        size = sizes[place % 2]
        state = _State(training)
        gradients: list[list[Tensor]] = []
        steps: list[Any] = []

        def look(step: Step, steps: Any = steps, gradients: Any = gradients) -> None:
            see(step)
            steps.append((step.documents, step.divisor))
            gradients.append([gradient.clone() for gradient in step.gradients])
            turns.last = step.noisy

        try:
            with training.watched(look, moving=True):
                turn(training.batch(numbers[:size]))
        except Exception as failure:  # whatever a loop that others wrote meets
            turns.failure = f"at batch {place + 1}: {type(failure).__name__}: {failure}"
            known = {id(p) for p in training.weights}
            turns.outside = [
                training.name(p)
                for p in training.model.parameters()
                if id(p) not in known and getattr(p, "grad_sample", None) is not None
            ]
            break
        turns.batches.append(size)
        turns.held.append([documents for documents, _ in steps])
        turns.divisors += [divisor for _, divisor in steps]
        _compare(training, state, gradients, turns)
    return turns


def check_update(
    training: DpTraining, numbers: Sequence[int], turn: Turn, turns: Turns, guard: Guard
) -> DpFinding:
    """Whether what turns changed follows from the noisy gradients, their divisor from nothing."""
    divisors = sorted(set(turns.divisors))
    follows, unclear = set[str](), set[str]()
    if turns.last:  # always: a replay by what an optimizer keeps elsewhere would show nothing
        follows, unclear = _followers(training, numbers, turn, turns, guard)
    kind = type(training.innermost).__name__
    trouble, seen = "", True
    if len(divisors) > 1:
        trouble = (
            f"the noisy sum is divided by {divisors[0]:g} in one step and by {divisors[-1]:g} in "
            "another: a divisor that follows the batch gives its size away, and scales the noise; "
            "divide by documents x sample_rate, as expected_batch_size has it"
        )
    elif follows:
        trouble = (
            f"documents get past the noise into {shortened(sorted(follows))}: with one and the "
            "same noisy gradient another batch leaves something else there. Take out of the loop "
            "what keeps anything of clean gradients, losses or inputs"
        )
    elif turns.unseen or turns.odd or unclear & turns.changed:
        seen, trouble = False, _unexplained(turns, unclear, kind)
    elif not turns.batches:
        seen, trouble = False, "no turn of the loop came to its end"
    told = (
        f"in {len(turns.batches)} turns all weights moved as {kind} moves them by the noisy "
        "gradient, and nothing else followed the batch"
    )
    return finding("update", trouble, told, seen=seen)


def _unexplained(turns: Turns, unclear: set[str], kind: str) -> str:
    if turns.unseen:
        return f"{kind} cannot be replayed on the noisy gradient: {turns.unseen}"
    if turns.odd:
        return (
            f"{shortened(sorted(turns.odd))} moved otherwise than {kind} moves them by the noisy "
            "gradient, though not by what is in a batch; what else the loop does to them was not "
            "seen"
        )
    return (
        f"{shortened(sorted(unclear & turns.changed))} change from turn to turn, by a schedule or "
        "by what is in the batch; leave a schedule out of step="
    )


class _State:
    """Copies of what a training releases or goes on from."""

    def __init__(self, training: DpTraining) -> None:
        self.weights = {id(p): p.detach().clone() for p in _all_weights(training)}
        self.buffers = {name: b.detach().clone() for name, b in _buffers(training.model)}
        optimizer = training.innermost
        self.options = [_options(group) for group in optimizer.param_groups]
        self.state = {id(p): _copied(of_weight) for p, of_weight in optimizer.state.items()}
        own = {key: value for key, value in vars(optimizer).items() if key not in _NOT_COPIED}
        self.attributes = _deep(own, {id(p): p for p in _all_weights(training)})


def _compare(
    training: DpTraining, state: _State, gradients: list[list[Tensor]], turns: Turns
) -> None:
    """Add to `turns` what a turn changed from `state` otherwise than by these noisy gradients."""
    turns.changed |= {
        f"the buffer {name}"
        for name, buffer in _buffers(training.model)
        if name not in state.buffers or not _same(buffer, state.buffers[name])
    }
    now = dict(_named([_options(group) for group in training.innermost.param_groups]))
    turns.changed |= {name for name, value in _named(state.options) if now.get(name) != value}
    try:
        weights, states = _replayed(training, state, gradients)
    except Exception as failure:  # of an optimizer that needs more than gradients
        turns.unseen = turns.unseen or f"{type(failure).__name__}: {failure}"
        return
    for p in _all_weights(training):
        if not _same(p.detach(), weights[id(p)]):
            turns.odd.add(training.name(p))
        found, wanted = training.innermost.state.get(p, {}), states.get(id(p), {})
        pairs = ((found[key], wanted[key]) for key in found)
        same = (_same(a, b) if torch.is_tensor(a) else a == b for a, b in pairs)
        if found.keys() != wanted.keys() or not all(same):
            turns.odd.add(f"the optimizer's state of {training.name(p)}")


def _replayed(
    training: DpTraining, state: _State, gradients: list[list[Tensor]]
) -> tuple[dict[int, Tensor], dict[int, Any]]:
    """Weights and the optimizer's state after steps by these gradients, from copies of `state`."""
    optimizer, kind = training.innermost, type(training.innermost)
    copies = {key: nn.Parameter(value.clone()) for key, value in state.weights.items()}
    twin = object.__new__(kind)
    vars(twin).update(_deep(state.attributes, copies))
    for hooks in _HOOKS:
        vars(twin)[hooks] = OrderedDict()
    twin.param_groups = [
        {**options, "params": [copies[id(p)] for p in group["params"]]}
        for options, group in zip(state.options, optimizer.param_groups, strict=True)
    ]
    twin.state = defaultdict(dict)
    for key, of_weight in state.state.items():
        twin.state[copies[key]] = _copied(of_weight)
    for gradient in gradients:
        for p, value in zip(training.weights, gradient, strict=True):
            copies[id(p)].grad = value.clone()
        kind.step(twin)
    states = {key: twin.state.get(weight, {}) for key, weight in copies.items()}
    return {key: weight.detach() for key, weight in copies.items()}, states


def _followers(
    training: DpTraining, numbers: Sequence[int], turn: Turn, turns: Turns, guard: Guard
) -> tuple[set[str], set[str]]:
    """What differs between turns of two batches, all else the same; and what does of one batch."""
    outcomes = []
    # A schedule goes on from turn to turn, so that the third is farther from the first than the
    # second is; what follows the batch is the same in the first and the third.
    for some in (numbers, numbers[: max(1, len(numbers) // 2)], numbers):
        with guard():
            outcomes.append(_outcome(training, some, turn, turns.last))
    if not (all(outcomes) or turns.failure):
        turns.unseen = turns.unseen or "a turn of the loop fails after the first twelve"
    first, other, again = outcomes
    follows, unclear = set(), set()
    for name in first.keys() & other.keys() & again.keys():
        same, apart = _distance(first[name], again[name]), _distance(first[name], other[name])
        back = _distance(again[name], other[name])
        if min(apart, back) > _SAME and min(apart, back) > _CLEARLY * same:
            follows.add(name)
        elif max(same, apart) > _SAME:
            unclear.add(name)
    return follows, unclear


def _outcome(
    training: DpTraining, numbers: Sequence[int], turn: Turn, noisy: list[Tensor]
) -> dict[str, Tensor]:
    """All that a turn leaves, where another noisy sum takes the place of its own."""
    add, move, put, changes = training.private.add_noise, training.innermost.step, [False], {}
    before = {name: value.clone() for name, value in _released(training)}

    def put_this_one() -> None:
        for p, value in zip(training.weights, noisy, strict=True):
            p.grad = value.clone()
        put[0] = True

    def add_this_one() -> None:  # here, for what comes later may add to it
        add()
        put_this_one()

    def move_by_this_one(*arguments: Any, **named: Any) -> Any:
        if not put[0]:  # where noise is added elsewhere, as weight by weight of several processes
            put_this_one()
        return move(*arguments, **named)

    with (
        instead(training.private, "add_noise", add_this_one),
        instead(training.innermost, "step", move_by_this_one),
    ):
        try:
            turn(training.batch(numbers))
        except Exception:  # whatever a loop that others wrote meets
            return {}
    for name, value in _released(training):
        start = before.get(name, torch.zeros_like(value))
        changes[name] = (value - start if start.shape == value.shape else value).clone()
    return changes


def _released(training: DpTraining) -> Iterator[tuple[str, Tensor]]:
    """Weights, buffers, and options that are numbers, by what they are called."""
    for p in _all_weights(training):
        yield training.name(p), p.detach().double()
        for key, value in training.innermost.state.get(p, {}).items():
            if torch.is_tensor(value):
                yield f"the optimizer's state {key} of {training.name(p)}", value.double()
    for name, buffer in _buffers(training.model):
        yield f"the buffer {name}", buffer.detach().double()
    for name, option in _named([_options(group) for group in training.innermost.param_groups]):
        if torch.is_tensor(option) or isinstance(option, int | float):
            yield name, torch.as_tensor(option).double()


def _buffers(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Those that are kept with the weights."""
    kept = model.state_dict(keep_vars=True)
    found = ((name, buffer) for name, buffer in model.named_buffers() if name in kept)
    return [(name.removeprefix("_module."), buffer) for name, buffer in found]


def _all_weights(training: DpTraining) -> list[nn.Parameter]:
    held = (p for group in training.innermost.param_groups for p in group["params"])
    return list({id(p): p for p in (*training.model.parameters(), *held)}.values())


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {key: copy.deepcopy(value) for key, value in group.items() if key != "params"}


def _named(groups: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    for place, options in enumerate(groups):
        of_group = f" of group {place + 1}" if len(groups) > 1 else ""
        for key, value in options.items():
            yield f"the optimizer's {key}{of_group}", value


def _deep(attributes: dict[str, Any], weights: dict[int, Any]) -> dict[str, Any]:
    """Copies of an optimizer's own attributes, in which weights are replaced by those given."""
    copied = {}
    for key, value in attributes.items():
        try:
            copied[key] = copy.deepcopy(value, dict(weights))
        except Exception:  # of what cannot be copied, such as a tensor with a history
            copied[key] = value
    return copied


def _copied(of_weight: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value.detach().clone() if torch.is_tensor(value) else copy.deepcopy(value)
        for key, value in of_weight.items()
    }


def _same(first: Tensor, second: Tensor) -> bool:
    """The same but for rounding of the last digits."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if not first.is_floating_point():
        return torch.equal(first, second)
    digits = 8 * torch.finfo(first.dtype).eps
    return torch.allclose(first, second, rtol=digits, atol=0, equal_nan=True)


def _distance(first: Tensor, second: Tensor) -> float:
    """Relative to the larger one; of changes, shape and all."""
    if first.shape != second.shape:
        return 1.0
    largest = max(float(first.norm()), float(second.norm()))
    return float((first - second).norm()) / largest if largest else 0.0


@dataclass(frozen=True, kw_only=True)
class TwoBatches:
    """What one document changes in a step, and what is seen of it through the noise."""

    # norm of the difference of the clipped sums over the clip: 1 where the document's gradient is
    # clipped, and never more where clipping works
    shift: float
    bound: GaussianEpsilon  # of this document in a step, from the draws
    claimed_mu: float  # what the optimizer's noise promises of a document as long as the clip

    @property
    def broken(self) -> bool:
        """Whether a step gives more away than its noise allows."""
        return self.shift > 1 + 1e-4 or self.bound.mu > self.claimed_mu


def two_batches(
    optimizer: Any,
    without: Callable[[], None],
    with_document: Callable[[], None],
    *,
    delta: float,
    draws: int = 10_000,
    significance: float = 0.05,
    seed: int | None = None,
) -> TwoBatches:
    """Audit a step by two batches that differ in one document; weights are not changed.

    Args:
        optimizer: Opacus' DPOptimizer, or what is around it.
        without: leaves each document's gradient of the one batch in the weights, as a forward and
            a backward pass do.
        with_document: the same of that batch with one document more.
        delta: at which the epsilon of a step is read off, in (0, 1).
        draws: of the noise, at least 100.
        significance: how often, at most, the bound lies above the truth.
        seed: of the coins; None: fresh from the operating system.

    Raises:
        ModelError: not a training by Opacus.
        SettingsError: a document that changes nothing, or a number out of range.
        NumericalError: gradients that are not finite.

    Source: Nasr et al. 2021 (arXiv 2101.04535), section 4, the gradient-level attack; the bound is
        that of `step_guesses_epsilon`.
    """
    private = dp_optimizer(optimizer)
    delta, level = delta_of_dp("delta", delta), fraction("significance", significance)
    count = integer("draws", draws, low=100)
    coins_seed = secrets.randbits(63) if seed is None else integer("seed", seed, low=0)
    weights = list(private.params)
    sums = [_clipped(private, weights, made) for made in (without, with_document)]
    change = [many - few for few, many in zip(*sums, strict=True)]
    square = float(sum((part.double() ** 2).sum() for part in change))
    clip = float(private.max_grad_norm)
    if not np.isfinite(square):
        raise NumericalError(
            "the clipped sums of the two batches are not finite; look at the model's loss on them"
        )
    if square == 0:
        raise SettingsError(
            "both batches have the same clipped sum, so that there is nothing to tell; give a "
            "second batch with a document more, and with a gradient"
        )
    coins = np.random.default_rng(derive_seed(coins_seed, "two batches")).random(count) < 0.5
    scores = []
    for sum_of_now in (sums[int(coin)] for coin in coins):
        for weight, part in zip(weights, sum_of_now, strict=True):
            weight.summed_grad = part.clone()
        private.add_noise()
        along = (  # the change, the sum without the document taken off
            ((weight.grad - few.view_as(weight)) * part.view_as(weight)).sum().double()
            for weight, few, part in zip(weights, sums[0], change, strict=True)
        )
        scores.append(float(sum(along)) / square)
    _forget(private)
    noise = float(private.noise_multiplier)
    return TwoBatches(
        shift=square**0.5 / clip,
        bound=step_guesses_epsilon(scores, coins, significance=level, delta=delta),
        claimed_mu=1 / noise if noise else float("inf"),
    )


def _clipped(optimizer: Any, weights: list[Any], made: Callable[[], None]) -> list[torch.Tensor]:
    """The clipped sum of a batch, a tensor a weight."""
    _forget(optimizer)
    made()
    optimizer.clip_and_accumulate()
    return [weight.summed_grad.detach().clone() for weight in weights]


def _forget(optimizer: Any) -> None:
    optimizer._is_last_step_skipped = False
    optimizer.zero_grad(set_to_none=True)
