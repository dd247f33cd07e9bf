"""The bounds under test: what each is given of a run, and the value that it reports.

A run is one trained model (or several) of a mechanism. How coins fall in it is the design: "fair"
and "one in ten" toss one for each candidate, the others fix how many go in.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from coverage_mechanisms import Mechanism
from numpy.typing import NDArray

from lmexposure.errors import InputError
from lmexposure.statistics import (
    Bonferroni,
    FixedThreshold,
    OrderStatistics,
    SplitSample,
    clopper_pearson_epsilon,
    concave_hull,
    epsilon_from_exposure,
    epsilon_from_scores,
    gaussian_dp_epsilon,
    lidp_epsilon,
    one_run_audit,
    one_run_epsilon,
    one_run_fdp_epsilon,
    one_run_gaussian_audit,
    roc_curve,
)
from lmexposure.statistics.bounds.clopper_pearson import log_ratio, rates

__all__ = ["RULES", "Rule", "Run", "bounded", "draw"]

Floats = NDArray[np.float64]
Coins = NDArray[np.bool_]

SIGNIFICANCE = 0.05
# Where the number of guesses is fixed beforehand, this part of the canaries is guessed.
_GUESSED = 0.6
_MODEL_CANARIES = 10


@dataclass(frozen=True, kw_only=True)
class Run:
    """What an auditor sees, and what was fixed beforehand."""

    scores: Floats
    coins: Coins
    coin: float | None
    threshold: float
    delta: float
    seed: int

    @property
    def inside(self) -> Floats:
        return self.scores[self.coins]

    @property
    def outside(self) -> Floats:
        return self.scores[~self.coins]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A bound: its class of validity ("peer" for another library's), its design, its value."""

    name: str
    validity: str
    design: str
    value: Callable[[Run], float]


def draw(
    mechanism: Mechanism, design: str, m: int, epsilon: float, delta: float, seed: list[int]
) -> Run:
    """One run of `m` candidates, or for "64 of 10,064" of so many."""
    generator = np.random.default_rng(seed)
    coin = {"fair": 0.5, "one in ten": 0.1, "64 of 10,064": 64 / 10_064}.get(design)
    if coin is None:
        coins = (
            np.arange(m)
            < {"halves": m // 2, "a tenth": m // 10, "64": 64, "models": m // 2}[design]
        )
    else:
        coins = generator.random(m) < coin
    if design == "models" and mechanism.name == "shared noise":
        scores = _one_number(m, epsilon, generator)
    elif design == "models" and not mechanism.independent:
        models = coins.reshape(-1, _MODEL_CANARIES)
        scores = np.concatenate([mechanism.draw(of, epsilon, delta, generator) for of in models])
    else:
        scores = mechanism.draw(coins, epsilon, delta, generator)
    return Run(
        scores=scores,
        coins=coins,
        coin=coin,
        threshold=mechanism.threshold(epsilon, delta),
        delta=delta,
        # Below 2^32 and another for each repetition; the bounds draw from it for ties and splits.
        seed=seed[-1],
    )


def _one_number(m: int, epsilon: float, generator: np.random.Generator) -> Floats:
    """A model tells how many canaries it holds, less those that all hold: shared by its scores.

    Models behind out-scores hold one canary fewer: a shift of epsilon, with noise of scale 1.
    """
    models = m // _MODEL_CANARIES
    shift = epsilon * (np.arange(models) < models // 2)
    return np.repeat(generator.laplace(size=models) + shift, _MODEL_CANARIES)


def bounded(rule: Rule, run: Run) -> float:
    """The value; 0 where no canary went in, or so few or many that the bound refuses the coins."""
    if not run.coins.any():
        return 0.0
    try:
        return rule.value(run)
    except InputError as error:
        if "coins" not in str(error):
            raise
        return 0.0


def _one_run(run: Run) -> float:
    return one_run_audit(run.scores, run.coins, delta=run.delta, seed=run.seed).value


def _guesses(run: Run) -> dict[str, int]:
    """As many of the highest guessed in as of the lowest guessed out; ties by a seed."""
    ties = np.random.default_rng([run.seed, 1]).random(run.scores.size)
    order, part = np.lexsort((ties, -run.scores)), round(run.scores.size * _GUESSED / 2)
    correct = int(run.coins[order[:part]].sum() + (~run.coins[order[-part:]]).sum())
    return {"canaries": run.scores.size, "guesses": 2 * part, "correct": correct}


def _fixed_guesses(run: Run) -> float:
    return one_run_epsilon(**_guesses(run), delta=run.delta, significance=SIGNIFICANCE).value


def _fixed_guesses_fdp(run: Run) -> float:
    return one_run_fdp_epsilon(**_guesses(run), delta=run.delta, significance=SIGNIFICANCE).value


def _exposure(run: Run) -> float:
    found = epsilon_from_exposure(
        -run.inside, -run.outside, inclusion_probability=run.coin, delta=run.delta
    )
    return found.bound.value


def _from_scores(threshold: Callable[[Run], object]) -> Callable[[Run], float]:
    def value(run: Run) -> float:
        return epsilon_from_scores(
            run.inside, run.outside, delta=run.delta, threshold=threshold(run), seed=run.seed
        ).value

    return value


def _counted(run: Run) -> float:
    above = int((run.inside > run.threshold).sum()), int((run.outside > run.threshold).sum())
    sizes = run.inside.size, run.outside.size
    return clopper_pearson_epsilon(
        above[0], sizes[0], above[1], sizes[1], significance=SIGNIFICANCE, delta=run.delta
    ).value


def _models(run: Run) -> float:
    return lidp_epsilon(
        run.inside.reshape(-1, _MODEL_CANARIES),
        run.outside.reshape(-1, _MODEL_CANARIES),
        threshold=run.threshold,
        delta=run.delta,
    ).value


def _gaussian(run: Run) -> float:
    return gaussian_dp_epsilon(run.inside, run.outside, delta=run.delta).value


def _one_run_gaussian(run: Run) -> float:
    return one_run_gaussian_audit(run.scores, run.coins, delta=run.delta, seed=run.seed).value


def _over_the_hull(run: Run) -> float:
    """Clopper-Pearson at every corner of the ROC hull, the significance shared out among them.

    The rule of jax_privacy 1.x (CanaryScoreAuditor.epsilon_clopper_pearson, its defaults), in our
    own words: one direction, scores at the threshold count as above it.
    """
    hull = concave_hull(roc_curve(run.inside, run.outside))
    tpr, fpr = rates(
        hull.true_positives,
        hull.positives,
        hull.false_positives,
        hull.negatives,
        tail=SIGNIFICANCE / hull.true_positives.size / 2,
    )
    return float(log_ratio(tpr, fpr, run.delta).max())


RULES = {
    rule.name: rule
    for rule in (
        Rule(name="one_run_audit", validity="any-dp", design="fair", value=_one_run),
        Rule(name="one_run_epsilon", validity="any-dp", design="fair", value=_fixed_guesses),
        Rule(name="p-coins", validity="any-dp", design="one in ten", value=_exposure),
        Rule(name="p-coins, 64", validity="any-dp", design="64 of 10,064", value=_exposure),
        Rule(name="lidp_epsilon", validity="any-dp", design="models", value=_models),
        Rule(
            name="OrderStatistics",
            validity="iid-scores",
            design="halves",
            value=_from_scores(lambda run: OrderStatistics()),
        ),
        Rule(
            name="Bonferroni",
            validity="iid-scores",
            design="halves",
            value=_from_scores(lambda run: Bonferroni()),
        ),
        Rule(
            name="SplitSample",
            validity="iid-scores",
            design="halves",
            value=_from_scores(lambda run: SplitSample()),
        ),
        Rule(
            name="FixedThreshold",
            validity="iid-scores",
            design="halves",
            value=_from_scores(lambda run: FixedThreshold(value=run.threshold)),
        ),
        Rule(name="clopper_pearson", validity="iid-scores", design="halves", value=_counted),
        Rule(name="exposure", validity="iid-scores", design="a tenth", value=_exposure),
        Rule(name="exposure, 64", validity="iid-scores", design="64", value=_exposure),
        Rule(name="gaussian_dp", validity="gaussian", design="halves", value=_gaussian),
        Rule(name="one_run_fdp", validity="gaussian", design="fair", value=_fixed_guesses_fdp),
        Rule(name="one_run_gaussian", validity="gaussian", design="fair", value=_one_run_gaussian),
        Rule(name="jax_privacy's", validity="peer", design="halves", value=_over_the_hull),
    )
}
