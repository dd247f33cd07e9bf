"""Exposure beyond the references, read off a skew-normal curve fitted to them.

Two tests examine the fit where they are asked for: as a whole, and in the low tail that is used.
Beyond the references nothing vouches for it: at a true 30 bits, 10,000 or 1,000 references and six
distributions whose fit looked good in up to 4 of 5 samples, it was wrong by 3 to 20 bits and more.
What was counted or drawn goes before it, and every value beyond the references is flagged. The
log-cdf is right far in the tail.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lmexposure._quantiles import fewest_refits
from lmexposure._validate import bits_array, fraction, integer
from lmexposure.errors import InputError
from lmexposure.statistics.arrays import Flags, Floats, column, finite_or_none
from lmexposure.statistics.results import Estimate, GoodnessOfFit

_LOG_SQRT_TAU = 0.5 * math.log(2 * math.pi)
_B2 = 2 / math.pi  # squared mean of |Z|, Z standard normal
_LARGEST_SHAPE = 1e4  # a half-normal; scipy's search runs on without an end
_FEWEST = 20
_TAIL = 1e-6  # below this, cancellation in Owen's formula costs more digits than quadrature
_DROP = 40.0  # nats by which the integrand has fallen where quadrature stops: e^-40 = 4e-18
_Parameters = tuple[float, float, float]  # shape, location, scale: scipy's order
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_ASSUMPTIONS = (
    "log-perplexities of secrets never inserted follow a skew-normal curve, also far beyond the "
    "references: no test on the references can show this",
    "the interval is the curve's sampling error only (parametric bootstrap), given that family",
    "references are drawn uniformly from the secrets never inserted, scored like the canary",
)
# Past this shape the curve is a half-normal: nothing lies below its location.
_SHARP = 100.0
_NO_VOUCHER = "; a good fit among the references does not vouch for the tail"
_NOT_TESTED = (
    "DO NOT RELY ON THIS: the curve is not tested and has no interval, which need refits; "
    "ask for the skew_normal estimate"
)
_BEYOND_SPACE = (
    "more bits than the format has: no exposure can be so high; the curve's tail is too thin for "
    "these references"
)


@dataclass(frozen=True, kw_only=True)
class SkewNormal:
    """The density 2 phi(z) Phi(shape z) / scale with z = (x - location) / scale, x in bits."""

    location: float
    scale: float
    shape: float

    def log_cdf(self, x: ArrayLike) -> Floats:
        """Natural logarithm of P(X <= x), shape of x."""
        z = (np.asarray(x, np.float64) - self.location) / self.scale
        return skew_normal_log_cdf(z, self.shape)

    def exposure(self, x: ArrayLike) -> Floats:
        """-log2 P(X <= x) in bits, shape of x; higher = further into the low tail."""
        return np.maximum(-self.log_cdf(x) / math.log(2), 0.0)

    def sample(self, n: int, generator: np.random.Generator) -> Floats:
        """Draw n independent numbers, shape (n,).

        Source: Henze 1986, A probabilistic representation of the skew-normal distribution.
        """
        delta = self.shape / math.hypot(1, self.shape)
        half, whole = np.abs(generator.standard_normal(n)), generator.standard_normal(n)
        return self.location + self.scale * (delta * half + math.sqrt(1 - delta**2) * whole)


def skew_normal_log_cdf(z: ArrayLike, shape: float) -> Floats:
    """Logarithm of P(Z <= z) of the standard skew-normal, to about 1e-9 however far to the left.

    Owen's formula, F = Phi(z) - 2 T(z, shape), loses all digits to cancellation in the left tail;
    there the density is integrated relative to its value at z, so that nothing underflows.

    Source: Azzalini 1985, A class of distributions which includes the normal ones, section 2.

    >>> float(skew_normal_log_cdf(-40.0, 0.0).round(4))
    -804.6084
    """
    if not math.isfinite(shape):
        raise InputError(f"shape={shape} must be a finite number; fit the curve again")
    z = np.asarray(z, np.float64)
    direct = special.ndtr(z) - 2 * special.owens_t(z, shape)
    far = (direct < _TAIL) & (_slope(z, shape) > 1)
    result = np.empty(z.shape)
    result[far] = _tail_log_cdf(z[far], shape)
    result[~far] = np.log(np.minimum(direct[~far], 1.0))
    return result


def _log_density(z: Floats, shape: float) -> Floats:
    return np.asarray(math.log(2) - _LOG_SQRT_TAU - z**2 / 2 + special.log_ndtr(shape * z))


def _slope(z: Floats, shape: float) -> Floats:
    """Derivative of the log-density at z; positive to the left of the mode."""
    with np.errstate(over="ignore"):  # erfcx is infinite far to the right, where its share is 0
        mills = math.sqrt(2 / math.pi) / special.erfcx(-shape * z / math.sqrt(2))
    return np.asarray(-z + shape * mills)


def _tail_log_cdf(z: Floats, shape: float) -> Floats:
    """Gauss-Legendre over [z - length, z], shape (n,); beyond it lies a share below e^-40.

    The log-density is concave with curvature -1 at most, so that u to the left of z it has
    fallen by slope u + u^2 / 2 at least; `length` solves this for a fall of 40 nats.
    """
    slope = _slope(z, shape)
    length = 2 * _DROP / (slope + np.sqrt(slope**2 + 2 * _DROP))  # (n,)
    u = length[:, None] * (_NODES + 1) / 2  # (n, nodes)
    at_z = _log_density(z, shape)
    relative = np.exp(_log_density(z[:, None] - u, shape) - at_z[:, None])
    return at_z + np.log(length / 2 * (relative @ _WEIGHTS))


def fit_skew_normal(bits: ArrayLike) -> SkewNormal:
    """The skew-normal curve of the largest likelihood, of five searches by scipy.

    From scipy's own start the search ends at a lesser summit in one of ten small samples, for at
    shape 0 the likelihood is stationary whatever the data.

    Source: Azzalini 1985, A class of distributions which includes the normal ones.
    """
    x = bits_array("reference_bits", bits)
    if x.size < _FEWEST:
        raise InputError(
            f"reference_bits holds {x.size} numbers; a curve needs at least {_FEWEST}: "
            "score more references, where the format has as many secrets"
        )
    mean, deviation = float(x.mean()), float(x.std())
    if not deviation > 1e-9 * max(1.0, abs(mean)):
        raise InputError(
            f"reference_bits are all {mean:g}: there is no curve to fit; use sampled_exposure"
        )
    from scipy import stats  # brings most of scipy: only for a fit

    z = (x - mean) / deviation
    fits = [_search(z), *(_search(z, start) for start in _starts(z))]
    return _in_bits(min(fits, key=lambda fit: float(stats.skewnorm.nnlf(fit, z))), mean, deviation)


def refit(bits: Floats) -> SkewNormal:
    """The likeliest curve of a sample that follows one: there the moments' start suffices."""
    mean, deviation = float(bits.mean()), float(bits.std())
    return _in_bits(_search((bits - mean) / deviation), mean, deviation)


def _search(z: Floats, start: _Parameters | None = None) -> _Parameters:
    """What scipy's search finds from `start`, or from the sample's moments."""
    from scipy import stats

    begun = {} if start is None else {"loc": start[1], "scale": start[2]}
    shape, location, scale = stats.skewnorm.fit(z, *(start or ())[:1], **begun, optimizer=_simplex)
    if abs(shape) > _LARGEST_SHAPE:
        fixed = math.copysign(_LARGEST_SHAPE, shape)
        shape, location, scale = stats.skewnorm.fit(z, fa=fixed, loc=location, scale=scale)
    return float(shape), float(location), float(scale)


def _simplex(_scipys: object, start: Floats, *, args: tuple[Floats], disp: int) -> Floats:
    """The search that scipy makes, step for step, with a likelihood in a third of the time."""
    from scipy import optimize

    return np.asarray(optimize.fmin(_minus_log_likelihood, start, args=args, disp=disp))


def _minus_log_likelihood(parameters: Floats, x: Floats) -> float:
    """As scipy's, without its checks and penalties at each of hundreds of steps."""
    shape, location, scale = parameters
    if not (scale > 0 and math.isfinite(shape)):
        return math.inf
    total = _log_density((x - location) / scale, shape).sum()
    return float(x.size * math.log(scale) - total)


def _starts(z: Floats) -> Iterator[_Parameters]:
    """For mean 0 and deviation 1, to either side: nearly symmetric, and nearly a half-normal."""
    for shape, end in ((1.5, float(z.min())), (-1.5, float(z.max()))):
        delta = shape / math.hypot(1, shape)
        scale = 1 / math.sqrt(1 - _B2 * delta**2)
        yield shape, -scale * delta * math.sqrt(_B2), scale
        yield math.copysign(50, shape), end, math.sqrt(float(np.mean((z - end) ** 2)))


def _in_bits(fit: _Parameters, mean: float, deviation: float) -> SkewNormal:
    """The fit to standardised numbers, back in bits."""
    shape, location, scale = fit
    return SkewNormal(location=mean + deviation * location, scale=deviation * scale, shape=shape)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A curve with both statistics of the sample that it was fitted to."""

    curve: SkewNormal
    ks_statistic: float
    tail_bits: float


def fit_statistics(ordered: Floats, curve: SkewNormal) -> Fit:
    """Both statistics of a curve; `ordered` are the references, ascending, shape (n,)."""
    n = ordered.size
    cdf, steps = np.exp(curve.log_cdf(ordered)), np.arange(n + 1) / n
    tail = max(10, math.ceil(n / 100))
    expected = -np.log2((np.arange(tail) + 0.5) / n)  # (tail,) bits of the plotting positions
    return Fit(
        curve=curve,
        ks_statistic=float(np.maximum(steps[1:] - cdf, cdf - steps[:-1]).max()),
        tail_bits=float(np.mean(curve.exposure(ordered[:tail]) - expected)),
    )


def bootstrap_fits(curve: SkewNormal, n: int, *, bootstraps: int, seed: int) -> list[Fit]:
    """Fits to samples of n that follow the curve, each fitted anew."""
    generator = np.random.default_rng(seed)
    fits = []
    for _ in range(bootstraps):
        ordered = np.sort(curve.sample(n, generator))
        # By the fitted curve as if it were the true one, a p-value is wrong (Lilliefors 1967).
        fits.append(fit_statistics(ordered, refit(ordered)))
    return fits


def goodness_of_fit(observed: Fit, bootstrapped: list[Fit]) -> GoodnessOfFit:
    """The p-values of both statistics among those of samples that do follow the curve.

    Source: Stute, Gonzalez Manteiga, Presedo Quindimil 1993, Bootstrap based goodness-of-fit
    tests; p = (1 + as large) / (1 + bootstraps), Davison and Hinkley 1997, chapter 4.
    """
    most = 1 + len(bootstrapped)
    distant = sum(fit.ks_statistic >= observed.ks_statistic for fit in bootstrapped)
    tilted = sum(abs(fit.tail_bits) >= abs(observed.tail_bits) for fit in bootstrapped)
    return GoodnessOfFit(
        ks_statistic=observed.ks_statistic,
        ks_p_value=(1 + distant) / most,
        tail_bits=observed.tail_bits,
        tail_p_value=(1 + tilted) / most,
        bootstraps=len(bootstrapped),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class SkewNormalExposure:
    """Extrapolated exposures in bits; higher = more memorised; columns of shape (n,), as given."""

    value: Floats
    # low, high: NaN where no refits were made
    low: Floats
    high: Floats
    extrapolated_bits: Floats  # of `value` beyond log2(references), the most that these can show
    exceeds_space: Flags  # above log2 of the space's size, which no exposure can be
    below_all: Flags
    references: int
    level: float
    seed: int
    curve: SkewNormal
    goodness: GoodnessOfFit | None  # None where no refits were made, and no interval with them
    # never to be dropped: a curve has been seen to say 90 or 15 bits where the truth was 30
    warnings: tuple[str, ...]

    @property
    def flagged(self) -> Flags:
        """Which values are not to be relied on, shape (n,)."""
        # A good fit among the references does not vouch for the tail: within 3 bits of them, values
        # were seen that were wrong by 15 and not found out by the fit.
        misfit = bool(_about_the_curve(self.curve, self.goodness))
        return misfit | (self.extrapolated_bits > 0) | self.below_all | self.exceeds_space

    def canary(self, i: int) -> Estimate:
        """The i-th canary alone, with the warnings that concern it."""
        warnings = list(_about_the_curve(self.curve, self.goodness))
        if self.extrapolated_bits[i] > 0:
            beyond = float(self.extrapolated_bits[i])
            warnings.append(_beyond_sample(beyond, self.references) + _NO_VOUCHER)
        elif self.below_all[i]:
            warnings.append(_below(self.references) + _NO_VOUCHER)
        if self.exceeds_space[i]:
            warnings.append(_BEYOND_SPACE)
        return Estimate(
            method="skew_normal",
            value=finite_or_none(self.value[i]),
            low=finite_or_none(self.low[i]),
            high=finite_or_none(self.high[i]),
            level=self.level,
            rank=None,
            capped=False,
            assumptions=_ASSUMPTIONS,
            warnings=tuple(warnings),
        )


def skew_normal_exposure(
    canary_bits: ArrayLike,
    reference_bits: ArrayLike,
    *,
    space_size: int | None = None,
    level: float = 0.95,
    bootstraps: int | None = 199,
    seed: int = 0,
) -> SkewNormalExposure:
    """Exposure of each canary as -log2 of a fitted skew-normal curve's probability below it.

    Source: Carlini et al. 2019, The Secret Sharer, section 4 (approximation by distribution
    modelling); percentile interval, Davison and Hinkley 1997, section 5.3.
    """
    canaries = bits_array("canary_bits", canary_bits)
    references = np.sort(bits_array("reference_bits", reference_bits))
    level = fraction("level", level)
    seed = integer("seed", seed, low=0)
    if bootstraps is not None:
        bootstraps = integer("bootstraps", bootstraps, low=fewest_refits(level))
    space_bits = (
        math.inf if space_size is None else math.log2(integer("space_size", space_size, low=2))
    )
    curve, goodness = fit_skew_normal(references), None
    value = curve.exposure(canaries)
    low = high = np.full(value.shape, math.nan)
    if bootstraps is not None:
        fits = bootstrap_fits(curve, references.size, bootstraps=bootstraps, seed=seed)
        goodness = goodness_of_fit(fit_statistics(references, curve), fits)
        # The percentile interval over the bootstrap curves, widened to hold the value.
        exposures = np.stack([fit.curve.exposure(canaries) for fit in fits])  # (bootstraps, n)
        ends = [(1 - level) / 2, (1 + level) / 2]
        low, high = np.quantile(exposures, ends, axis=0, method="weibull")
        low, high = np.minimum(low, value), np.maximum(high, value)
    beyond = np.maximum(value - math.log2(references.size), 0.0)
    exceeds, below = value > space_bits, canaries < references[0]
    return SkewNormalExposure(
        value=column(value, np.float64),
        low=column(low, np.float64),
        high=column(high, np.float64),
        extrapolated_bits=column(beyond, np.float64),
        exceeds_space=column(exceeds, np.bool_),
        below_all=column(below, np.bool_),
        references=references.size,
        level=level,
        seed=seed,
        curve=curve,
        goodness=goodness,
        warnings=_about_the_curve(curve, goodness)
        + _warnings(beyond, below, exceeds, references.size),
    )


def _about_the_curve(curve: SkewNormal, goodness: GoodnessOfFit | None) -> tuple[str, ...]:
    """What concerns every number that is read off this curve."""
    lines = (_NOT_TESTED,) if goodness is None else goodness.warnings
    if curve.shape < _SHARP:
        return lines
    return (
        *lines,
        f"DO NOT RELY ON THIS: the likeliest curve (shape {curve.shape:.3g}) has no low tail, so "
        "that anything below the references gets an absurd exposure; use the sampled exposure",
    )


def _beyond_sample(beyond: float, references: int) -> str:
    return (
        f"DO NOT RELY ON THIS: extrapolated {beyond:.1f} bits beyond the "
        f"{math.log2(references):.1f} bits that {references} references can show"
    )


def _below(references: int) -> str:
    return f"DO NOT RELY ON THIS: read off the curve below all {references} references"


def _warnings(beyond: Floats, below: Flags, exceeds: Flags, references: int) -> tuple[str, ...]:
    """What concerns some of the canaries, with their number."""
    lines = []
    if (beyond > 0).any():
        count = int((beyond > 0).sum())
        most = _beyond_sample(float(beyond.max()), references)
        lines.append(f"{count} of {beyond.size} canaries, the largest: {most}{_NO_VOUCHER}")
    inside = below & (beyond <= 0)
    if inside.any():
        line = f"{_below(references)}{_NO_VOUCHER}"
        lines.append(f"{int(inside.sum())} of {inside.size} canaries: {line}")
    if exceeds.any():
        lines.append(f"{int(exceeds.sum())} of {exceeds.size} canaries: {_BEYOND_SPACE}")
    return tuple(lines)
