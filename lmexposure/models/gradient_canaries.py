"""Canaries in the gradients of a DP-SGD training: what its noise leaves of them, from inside.

Two experiments run along with the training, in the same steps. For the whole training m canaries at
right angles, each in by a fair coin, join a step with the rate of the documents, as a document
would whose gradient is as long as the clip. And in each step a further canary, in a direction of
its own, is in by a coin of that step. All are added to the clipped sum, before the noise.

What is read off the noisy sum along a canary is its score. All that is known of the rest, which is
the records' clipped sum, is taken off: who attacks a promise may know every other document. Weights
are changed no more than by as many documents.

Source: gradient canaries, Andrew et al. 2023 (arXiv 2302.03098), Nasr et al. 2023 (arXiv
2302.07956), Steinke et al. 2023 (arXiv 2305.08846); the bounds in `statistics`.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure._validate import delta_of_dp, fraction, integer, one_of, positive
from lmexposure.canaries import derive_seed
from lmexposure.errors import SettingsError
from lmexposure.models.dp_accounting import epsilon_at_least
from lmexposure.models.dp_training import dp_optimizer, world_size
from lmexposure.statistics import (
    EpsilonBound,
    GaussianEpsilon,
    one_run_audit,
    one_run_gaussian_audit,
    sampled_epsilon,
    step_guesses_epsilon,
)
from lmexposure.studies import WhiteBoxAudit, WhiteBoxBounds

HADAMARD, DIRAC = "hadamard", "dirac"


class Hadamard:
    """Rows of a Hadamard matrix with random signs, spread over all weights, of length 1.

    Of M rows only the lowest log2(M) bits of a weight's number count, so that weights of the same
    number modulo M are summed first, and a transform of M numbers is all that follows: O(d + M log
    M), and nothing but the signs is stored. Rows are at right angles exactly: each residue has as
    many weights as every other, and signs cancel in a product of two rows.

    Source: Ailon and Chazelle 2009, the randomised Hadamard transform; Sylvester 1867 for the
        matrix.
    """

    def __init__(self, dimension: int, count: int, *, seed: int, device: torch.device) -> None:
        self.count, self._dimension = count, dimension
        self._rows = 1 << max(0, count - 1).bit_length()
        if self._rows > dimension:
            raise SettingsError(
                f"{count} directions, rounded up to {self._rows}, are more than the {dimension} "
                f"weights; give at most {1 << max(0, dimension.bit_length() - 1)}"
            )
        self._used = dimension - dimension % self._rows
        self._length = self._used**-0.5
        self._signs = _signs(self._used, seed).to(device).view(-1, self._rows)

    def along(self, vector: torch.Tensor) -> torch.Tensor:
        """Inner products of a vector, shape (d,), with each direction, shape (count,), float64."""
        shaped = vector[: self._used].view(-1, self._rows)
        sums = (shaped.float() * self._signs).sum(0).double()
        found: torch.Tensor = _transformed(sums)[: self.count] * self._length
        return found

    def combined(self, weights: torch.Tensor) -> torch.Tensor:
        """The sum of all directions by their weights, shape (count,); shape (d,)."""
        rows = torch.zeros(self._rows, dtype=torch.float64, device=self._signs.device)
        rows[: self.count] = weights.to(rows)
        each = (_transformed(rows) * self._length).float()
        found = torch.zeros(self._dimension, device=self._signs.device)
        torch.mul(self._signs, each, out=found[: self._used].view(-1, self._rows))
        return found


class Coordinates:
    """Single weights (Dirac), drawn without replacement: directions as `Hadamard` has them."""

    def __init__(self, dimension: int, count: int, *, seed: int, device: torch.device) -> None:
        if count > dimension:
            raise SettingsError(
                f"{count} directions are more than the {dimension} weights; give at most "
                f"{dimension}"
            )
        self.count, self._dimension = count, dimension
        drawn = np.random.default_rng(seed).choice(dimension, count, replace=False, shuffle=False)
        self._places = torch.from_numpy(drawn).to(device)

    def along(self, vector: torch.Tensor) -> torch.Tensor:
        """As `Hadamard.along`."""
        return vector[self._places].double()

    def combined(self, weights: torch.Tensor) -> torch.Tensor:
        """As `Hadamard.combined`."""
        found = torch.zeros(self._dimension, device=self._places.device)
        found[self._places] = weights.to(found)
        return found


Directions = Hadamard | Coordinates
KINDS: dict[str, type[Directions]] = {HADAMARD: Hadamard, DIRAC: Coordinates}


def _signs(count: int, seed: int) -> torch.Tensor:
    """-1 and 1 in float32, shape (count,)."""
    drawn = np.frombuffer(np.random.default_rng(seed).bytes(-(-count // 8)), np.uint8)
    bits = np.unpackbits(drawn, count=count)
    return torch.from_numpy(bits).float().mul_(2).sub_(1)


def _transformed(values: torch.Tensor) -> torch.Tensor:
    """The Walsh-Hadamard transform of a power of two of numbers, in the natural order."""
    half = 1
    while half < len(values):
        pairs = values.view(-1, 2, half)
        values = torch.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1).view(-1)
        half *= 2
    return values


Kind = Literal["hadamard", "dirac"]
_FEWEST = 8  # coins, below which no bound is above 0 at its part of the significance
_MOST = 1_000_000
_GRANTED = (
    "weights follow from the noisy gradients of this optimizer alone",
    "what is known of the records is taken off: the attack knows every other document",
)
_SAMPLER = (
    "composed: units are sampled at the rate that was given, each by a coin of its own, and the "
    "noise is alike in all steps"
)
_NEW = "step: each step has a direction of its own"
_SAME = (
    "step: the direction is the same in all steps; what is known of the records is taken off, so "
    "that their drift does not show"
)
_APART = "step: the noise is independent along directions at right angles"


class GradientCanaries:
    """Canaries in the gradients of a training by Opacus, with what becomes of them.

    Three lines in a training of your own: make this from the optimizer before the first step, train
    as before, and ask for `audit`. Where the training is checked by `dp_check`, do that before: it
    would take canaries for a fault.

    Args:
        optimizer: Opacus' DPOptimizer, or what is around it.
        sample_rate: probability of a document to be in a step, which the canaries have too.
        count: canaries of the whole training; 0: none.
        per_step: canaries of each single step; 0: none. More than 1 take the noise to be
            independent along directions at right angles.
        kind: of the directions: "hadamard", spread over all weights, or "dirac", single weights.
        same_direction: whether the canaries of single steps have the same directions in all steps.
        seed: of coins and directions; None: fresh from the operating system.

    Raises:
        ModelError: not a training by Opacus.
        SettingsError: more canaries than weights, adaptive clipping, no noise, several processes,
            no rate, or a number out of range.
    """

    def __init__(
        self,
        optimizer: Any,
        *,
        sample_rate: float | None = None,
        count: int = 1000,
        per_step: int = 1,
        kind: str = HADAMARD,
        same_direction: bool = False,
        seed: int | None = None,
    ) -> None:
        self._optimizer = dp_optimizer(optimizer)
        _refuse_unfit(self._optimizer)
        if sample_rate is None or not 0 < sample_rate <= 1:
            raise SettingsError(
                f"sample_rate={sample_rate!r} is the probability of a document to be in a step, "
                "without which canaries are no documents; give the loader's sample_rate, above 0 "
                "and at most 1"
            )
        self.sample_rate = float(sample_rate)
        self.count = integer("count", count, low=0, high=_MOST)
        self.per_step = integer("per_step", per_step, low=0, high=_MOST)
        self.kind = one_of("kind", kind, tuple(KINDS))
        self._same = same_direction
        self._seed = secrets.randbits(63) if seed is None else integer("seed", seed, low=0)
        self._weights = list(self._optimizer.params)
        self.dimension = sum(weight.numel() for weight in self._weights)
        self._draw()
        if self.per_step:
            self._of_step(0)  # whether there is room for them
        self.steps = 0
        self._scores = torch.zeros(self.count, dtype=torch.float64)
        self._step_scores: list[float] = []
        self._step_coins: list[int] = []
        self._noises: list[float] = []
        self._original: Any = None
        self.attach()

    def _draw(self) -> None:
        """Directions and coins of the canaries of the whole training."""
        self._directions = self._drawn(self.count, "canaries") if self.count else None
        self.coins = _tossed(self.count, 0.5, self._seed, "coins")

    def attach(self) -> None:
        """Take part in the optimizer's steps from now on."""
        if self._original is None:
            self._original = self._optimizer.add_noise
            self._optimizer.add_noise = self._add_noise

    def detach(self) -> None:
        """Leave the optimizer as it was."""
        if self._original is not None:
            self._optimizer.add_noise = self._original
            if "add_noise" in vars(self._optimizer) and hasattr(self._original, "__self__"):
                del self._optimizer.add_noise
            self._original = None

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Take part in the optimizer's steps within, and in no others."""
        self.attach()
        try:
            yield
        finally:
            self.detach()

    def state(self) -> dict[str, Any]:
        """What `restore` needs, of types that torch loads without code; as secret as the coins."""
        return {
            "seed": self._seed,
            "steps": self.steps,
            "scores": self._scores,
            "step_scores": torch.tensor(self._step_scores, dtype=torch.float64),
            "noises": self._noises,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave; the other settings must be the same."""
        self._seed, self.steps = int(state["seed"]), int(state["steps"])
        self._draw()
        self._scores = state["scores"].double().cpu().clone()
        self._step_scores = state["step_scores"].tolist()
        coins = (self._coins_of_step(step) for step in range(self.steps))
        self._step_coins = [int(coin) for of_step in coins for coin in of_step]
        self._noises = [float(noise) for noise in state["noises"]]

    @property
    def scores(self) -> NDArray[np.float64]:
        """Of each canary of the whole training, in units of the clip; higher = more likely in."""
        return self._scores.numpy().copy()

    @property
    def step_scores(self) -> NDArray[np.float64]:
        """Of each canary of a single step, shape (steps x per_step,): about 1 where it was in."""
        return np.array(self._step_scores)

    @property
    def step_coins(self) -> NDArray[np.bool_]:
        """Whether each of these was in."""
        return np.array(self._step_coins, dtype=bool)

    def audit(
        self, *, delta: float, significance: float = 0.05, claimed_epsilon: float | None = None
    ) -> WhiteBoxAudit:
        """Bound epsilon from below by what the steps so far have shown: a study."""
        delta, level = delta_of_dp("delta", delta), fraction("significance", significance)
        claimed = None if claimed_epsilon is None else positive("claimed_epsilon", claimed_epsilon)
        if not self.steps:
            raise SettingsError("no step was taken; audit after the training")
        tosses = len(self._step_scores)
        of_step = level / 2 if self.count else level
        whole = (level - of_step if tosses else level) / 2
        one_run: EpsilonBound | None = None
        gaussian: EpsilonBound | None = None
        step: GaussianEpsilon | None = None
        perfect: GaussianEpsilon | None = None
        most = []  # that each could have been
        if self.count >= _FEWEST:
            scores, ties = self._scores.numpy(), derive_seed(self._seed, "ties")
            one_run, gaussian = (
                audit(scores, self.coins, delta=delta, significance=whole, seed=ties)
                for audit in (one_run_audit, one_run_gaussian_audit)
            )
            most += [one_run.max_attainable, gaussian.max_attainable]
        if tosses >= _FEWEST:
            step, perfect = (
                step_guesses_epsilon(scores, self._step_coins, significance=of_step, delta=delta)
                for scores in (self._step_scores, self._step_coins)
            )
            most.append(self._composed(perfect, delta))
        bounds = WhiteBoxBounds(
            kind=cast("Kind", self.kind),
            weights=self.dimension,
            canaries=self.count,
            included=int(self.coins.sum()),
            sample_rate=self.sample_rate,
            steps=self.steps,
            tosses=tosses,
            noise_multiplier=min(self._noises),
            delta=delta,
            one_run=one_run,
            one_run_gaussian=gaussian,
            step=step,
            noise_at_most=_noise_at_most(step),
            composed=None if step is None else self._composed(step, delta),
            attainable=max((found for found in most if found is not None), default=0.0),
            noise_attainable=_noise_at_most(perfect),
            significance=level,
            assumptions=(*_GRANTED, *self._more_granted()),
        )
        return WhiteBoxAudit.now(
            bounds=bounds,
            claimed_epsilon=claimed,
            scores=tuple(self._scores.tolist()),
            coins=tuple(self.coins.tolist()),
            step_scores=tuple(self._step_scores),
            step_coins=tuple(map(bool, self._step_coins)),
        )

    def _more_granted(self) -> Iterator[str]:
        if self.per_step:
            yield _SAMPLER
            yield _SAME if self._same else _NEW
        if self.per_step > 1:
            yield _APART
        if len(self._noises) > 1:
            yield (
                f"the noise multiplier went from {self._noises[0]:g} to {self._noises[-1]:g}: the "
                "bound of a step is of the step with the least, and what is composed is that alone"
            )

    def _composed(self, step: GaussianEpsilon, delta: float) -> float:
        """Of all steps; where their noise changed, of the one with the least."""
        if step.mu == 0 or len(self._noises) > 1:
            return sampled_epsilon(mu=step.mu, rate=self.sample_rate, delta=delta)
        return epsilon_at_least([(1 / step.mu, self.sample_rate, self.steps)], delta=delta)

    def _add_noise(self) -> None:
        """In the optimizer's place: add what is in, let it add its noise, and read the scores."""
        clip = float(self._optimizer.max_grad_norm)
        noise = float(self._optimizer.noise_multiplier)
        joining = torch.zeros(0, dtype=torch.float64)
        if self._directions is not None:
            drawn = _tossed(self.count, self.sample_rate, self._seed, "joins", str(self.steps))
            joining = torch.from_numpy(drawn & self.coins).double()
            self._add(self._directions.combined(joining), clip)
        own, coins = self._of_step(self.steps), self._coins_of_step(self.steps)
        if own is not None:
            self._add(own.combined(torch.from_numpy(coins).double()), clip)
        self._original()
        left = torch.cat([(w.grad - w.summed_grad.view_as(w)).flatten() for w in self._weights])
        if self._directions is not None:
            self._scores += self._directions.along(left).cpu() / clip + joining
        if own is not None:
            found = own.along(left).cpu().numpy() / clip + coins
            self._step_scores += found.tolist()
            self._step_coins += coins.astype(int).tolist()
        if noise not in self._noises:
            self._noises.append(noise)
        self.steps += 1

    def _add(self, vector: torch.Tensor, clip: float) -> None:
        """A vector of all weights times the clip, onto the clipped sums."""
        parts = torch.split(vector, [weight.numel() for weight in self._weights])
        for weight, part in zip(self._weights, parts, strict=True):
            weight.summed_grad.add_(part.view_as(weight.summed_grad).to(weight.summed_grad) * clip)

    def _drawn(self, count: int, *purpose: str) -> Directions:
        device = self._weights[0].device
        seed = derive_seed(self._seed, "directions", *purpose)
        return KINDS[self.kind](self.dimension, count, seed=seed, device=device)

    def _of_step(self, step: int) -> Directions | None:
        """The directions of a single step's canaries."""
        if not self.per_step:
            return None
        return self._drawn(self.per_step, "steps", *([] if self._same else [str(step)]))

    def _coins_of_step(self, step: int) -> NDArray[np.bool_]:
        return _tossed(self.per_step, 0.5, self._seed, "step", str(step))


def _tossed(count: int, rate: float, seed: int, *purpose: str) -> NDArray[np.bool_]:
    return np.asarray(np.random.default_rng(derive_seed(seed, *purpose)).random(count) < rate)


def _noise_at_most(step: GaussianEpsilon | None) -> float | None:
    return None if step is None or step.mu == 0 else 1 / step.mu


def _refuse_unfit(optimizer: Any) -> None:
    """A training in which a canary as long as the clip is no document, or nothing hides it."""
    name = type(optimizer).__name__
    if "AdaClip" in name:
        raise SettingsError(
            f"the optimizer is a {name}, whose clip follows the documents: a canary that joins "
            "behind the clipping would not be counted in it; audit a training with a fixed clip"
        )
    if world_size() > 1:
        raise SettingsError(
            f"gradient canaries take one process, and there are {world_size()}: each would add its "
            "own; start one"
        )
    if not optimizer.noise_multiplier > 0:
        raise SettingsError(
            f"noise_multiplier={optimizer.noise_multiplier!r}: without noise every canary is seen, "
            "and there is no claim to hold an audit against; give the optimizer noise"
        )
    if not 0 < float(optimizer.max_grad_norm) < float("inf"):
        raise SettingsError(
            f"max_grad_norm={optimizer.max_grad_norm!r} is no norm that a canary could have; give "
            "one above 0"
        )
