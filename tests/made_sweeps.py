"""Results of sweeps for the tests of whoever reads them: gate, report, browser, commands.

Nothing is trained: scores are drawn from a bell curve, and what is memorised scores higher in the
models that had it. Rates, p-values and the primary bound are those of the statistics.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.statistics import (
    CellRate,
    CounterfactualMemorisation,
    EpsilonBound,
    canary_rates,
    counterfactual_memorisation,
    influence_test,
    memorisation_by_halves,
    memorisation_test,
    one_run_audit,
    roc_curve,
)
from lmexposure.studies import (
    CounterfactualGroup,
    CounterfactualText,
    FailedModel,
    InfluentialPair,
    KindComparison,
    KindPower,
    MeansApart,
    ShareUtility,
    SweepBound,
    SweepCounterfactual,
    SweepCurve,
    SweepEpsilon,
    SweepInfluence,
    SweepPower,
    SweepResult,
    SweepScore,
    SweepSettings,
    SweepText,
    Utility,
    WorstText,
)

Floats = NDArray[np.float64]
Coins = NDArray[np.bool_]

SIGNIFICANCE = 0.05
GROUPS = ("canaries", "population")
EXACTLY_HALF = (
    "coins=exactly_half: each coin of a canary follows from its others, so no bound holds"
)


@cache
def made_sweep(
    *,
    models: int = 64,  # with scores
    canaries: int = 32,  # with coins, in all formats together
    population: int = 40,  # ordinary documents with coins
    shift: float = 0.0,  # by which every canary scores higher where it was in, in sd
    leaking: int = 0,  # canaries that every model with them gives away
    documents_leaking: int = 0,  # the same of the population
    failed: int = 0,  # models without scores, more than `models`
    learned: int | None = None,  # models whose loss fell; None: all
    coins: str = "independent",  # or "exactly_half"
    formats: tuple[str, ...] = ("pin",),  # of the canaries, in turn
    seed: int = 0,
    power: bool = False,  # whether three kinds are compared, with half of the canaries and none
    changes: bool = False,  # whether it says what single texts change
    warnings: tuple[str, ...] = (),
) -> SweepResult:
    """A collected sweep; at no signal unless it is asked for."""
    rng = np.random.default_rng(seed)
    included = rng.random((models, canaries + population)) < 0.5
    scores = rng.normal(size=included.shape)
    scores[:, :canaries] += shift * included[:, :canaries]
    for first, most in ((0, leaking), (canaries, documents_leaking)):
        scores[:, first : first + most] += 20 * included[:, first : first + most]
    settings = SweepSettings(models=models + failed, population=population, coins=coins).override(
        {"formats": formats, "canaries": max(canaries, 1)}
    )
    own, others = ((scores[:, s], included[:, s]) for s in _sides(canaries))
    names = [f"{formats[n % len(formats)]}/x1/{n:04d}" for n in range(canaries)]
    ordinary = [f"document/{7 * n:04d}" for n in range(population)]
    return SweepResult(
        inputs_sha256=f"{seed:064x}",
        plan_sha256="ab" * 32,
        manifest_sha256="cd" * 32,
        matrices_sha256="ef" * 32,
        settings=settings.resolved(),
        models=models,
        failed=tuple(
            FailedModel(number=n, reason="the loss became NaN at step 12") for n in range(failed)
        ),
        canaries=canaries,
        population=population,
        validation=12,
        documents=10 * max(population, 1),
        utility=Utility(
            mean=1.92,
            sd=0.03,
            initial=4.81,
            learned=models if learned is None else learned,
            tokens=120_000.0,
            seconds=4.5,
        ),
        scores=_scores(scores, included, canaries, formats),
        texts=_texts(*own, names),
        worst=_worst(*own, names, coins),
        worst_of_population=_worst(*others, ordinary, coins),
        epsilon=_epsilon(*own, coins),
        counterfactual=_changes(scores, included, (names, ordinary)) if changes else None,
        power=made_power() if power else None,
        measured="2026-11-22T06:30:00Z",
        lmexposure="0.1.0",
        warnings=warnings,
    )


def _sides(canaries: int) -> tuple[slice, slice]:
    """Of all texts the canaries, and the population."""
    return slice(0, canaries), slice(canaries, None)


def _changes(
    scores: Floats, included: Coins, names: tuple[Sequence[str], Sequence[str]]
) -> SweepCounterfactual:
    """As if each text had four tokens; the first document changes one that none learned."""
    canaries, rng = len(names[0]), np.random.default_rng(3)
    others = rng.normal(size=(len(scores), 1)) + 3 * included[:, [canaries]]
    pair = counterfactual_memorisation(others, included[:, [canaries]])
    test = influence_test(others, included[:, [canaries]], permutations=99, seed=0)
    return SweepCounterfactual(
        models=len(scores),
        level=0.95,
        significance=SIGNIFICANCE,
        permutations=99,
        splits=5,
        groups=tuple(
            _changed(group, scores[:, side], included[:, side], texts)
            for group, side, texts in zip(GROUPS, _sides(canaries), names, strict=True)
        ),
        influence=SweepInfluence(
            documents=len(names[1]),
            held_out=12,
            found=1,
            pairs=(
                InfluentialPair(
                    id=names[1][0],
                    held_out="document/9999",
                    models_in=int(pair.models_in[0]),
                    models_out=int(pair.models_out[0]),
                    change=_apart(pair, 0),
                    p=float(test.p[0, 0]),
                ),
            ),
        ),
        notes=("coins were few",),
    )


RATES_APART = MeansApart(mean_in=0.5, mean_out=0.125, difference=0.375, low=0.1, high=0.6)


def _changed(group: Any, scores: Floats, included: Coins, names: Sequence[str]) -> Any:
    found = counterfactual_memorisation(scores - 5, included, lengths=4)
    test = memorisation_test(scores, included, permutations=99, seed=0)
    halves = memorisation_by_halves(scores, included, splits=5, seed=0)
    of_canaries = group == "canaries"
    return CounterfactualGroup(
        group=group,
        texts=tuple(
            CounterfactualText(
                id=names[n],
                kind=names[n].rpartition("/")[0] if of_canaries else "population",
                models_in=int(found.models_in[n]),
                models_out=int(found.models_out[n]),
                memorised=_apart(found, n),
                log_ratio=float(found.log_ratio[n]),
                p=float(test.p[n]),
                epsilon=0.25,
                reproduced=RATES_APART if of_canaries else None,
            )
            for n in np.argsort(-found.value).tolist()
        ),
        by_halves=tuple(halves.tolist()),
        spread=float(np.median(found.spread)),
    )


def _apart(found: CounterfactualMemorisation, n: int) -> MeansApart:
    columns = (found.mean_in, found.mean_out, found.value, found.low, found.high)
    values = (float(column[n]) for column in columns)
    return MeansApart(**dict(zip(MeansApart.model_fields, values, strict=True)))


def made_power(**parts: Any) -> SweepPower:
    """A new token, which shows much, beside a uniform fill and texts of a file, by hand."""
    values: dict[str, Any] = {
        "fpr": 0.01,
        "level": 0.95,
        "rows": tuple(
            _kind_power(group, kind, share, tpr)
            for share in (1.0, 0.5)
            for group, kind, tpr in (
                ("pin/x1", "uniform", 0.1),
                ("new_token/x1", "new_token", 0.8 if share == 1 else 0.7),
                ("texts/x1", "texts", None),
            )
        ),
        "comparisons": (
            _beside("new_token/x1", (0.7, 0.5, 0.85), "stronger"),
            _beside("texts/x1", (None, None, None), "open"),
        ),
        "strongest": "new_token/x1",
        "strongest_low": 0.6,
        "utility": (
            _utility(1.0, 48.0, (0.02, 0.01, 0.03)),
            _utility(0.5, 24.0, (0.01, -0.01, 0.02)),
            _utility(0.0, 0.0, (None, None, None)),
        ),
        "notes": (),
    }
    return SweepPower(**(values | parts))


def _kind_power(group: str, kind: str, share: float, tpr: float | None) -> KindPower:
    area: dict[str, Any] = dict.fromkeys(("area", "area_low", "area_high"))
    rate = CellRate(fpr=0.01, value=None, low=None, high=None, note="it takes more models")
    if tpr is not None:
        area = {"area": 0.9, "area_low": 0.85, "area_high": 0.95}
        rate = CellRate(fpr=0.01, value=tpr, low=tpr - 0.05, high=tpr + 0.05, note=None)
    return KindPower(
        group=group,
        kind=kind,
        share=share,
        canaries=round(32 * share),
        models=64,
        rate=rate,
        separated=3,
        **area,
    )


def _beside(group: str, ends: tuple[float | None, float | None, float | None], verdict: Any) -> Any:
    difference, low, high = ends
    return KindComparison(
        group=group, against="pin/x1", difference=difference, low=low, high=high, verdict=verdict
    )


def _utility(share: float, inserted: float, cost: tuple[float | None, ...]) -> ShareUtility:
    value, low, high = cost
    return ShareUtility(
        share=share,
        models=64 if share else 16,
        inserted=inserted,
        bits=1.9 + (value or 0.0),
        sd=0.03,
        cost=value,
        cost_low=low,
        cost_high=high,
    )


def written_sweep(home: Path, **parts: Any) -> Path:
    """A directory with a sweep.json in it."""
    home.mkdir(parents=True, exist_ok=True)
    made_sweep(**parts).write(home / SweepResult.NAME)
    return home


def sweep_with(result: SweepResult, **parts: Any) -> SweepResult:
    """The same with other parts, checked as a file is."""
    values = {name: getattr(result, name) for name in type(result).model_fields} | parts
    return SweepResult(**values)


def bound_of(value: float, most: float | None, **parts: Any) -> EpsilonBound:
    """A bound on epsilon by hand."""
    values: dict[str, Any] = {
        "method": "one_run_audit",
        "significance": SIGNIFICANCE,
        "delta": 0.0,
        "validity": "any-dp",
        "counts": {"canaries": 2048, "both_guesses": 1024, "both_correct": 512},
        "threshold": None,
        "threshold_choice": "fixed beforehand",
        "mu": None,
        "repetitions": 1,
        "unit": "nats",
        "adjacency": "add or remove one document",
        "assumptions": (),
        "notes": (),
    }
    return EpsilonBound(value=value, max_attainable=most, **(values | parts))


def _epsilon(scores: Floats, included: Coins, coins: str) -> SweepEpsilon:
    if coins == "exactly_half" or not scores.size:
        return SweepEpsilon(
            primary=None, significance=SIGNIFICANCE, bounds=(), refused=(EXACTLY_HALF,)
        )
    models, canaries = scores.shape
    asked: tuple[tuple[Any, int, Floats, Coins], ...] = (
        ("together", 1, scores.ravel(), included.ravel()),
        ("per_model", models, scores[0], included[0]),
        ("per_canary", canaries, scores[:, 0], included[:, 0]),
    )
    bounds = tuple(
        SweepBound(
            question=name, repetitions=1, chosen_from=most, bound=one_run_audit(*cells, seed=1)
        )
        for name, most, *cells in asked
    )
    return SweepEpsilon(primary=bounds[0], significance=SIGNIFICANCE, bounds=bounds, refused=())


def _texts(scores: Floats, included: Coins, names: Sequence[str]) -> tuple[SweepText, ...]:
    if not names:
        return ()
    found = canary_rates(scores, included, significance=SIGNIFICANCE)
    rows = []
    for n, name in enumerate(names):
        inside, outside = scores[included[:, n], n], scores[~included[:, n], n]
        both = bool(inside.size and outside.size)
        rows.append(
            SweepText(
                id=name,
                kind=name.rpartition("/")[0],
                models_in=inside.size,
                models_out=outside.size,
                tpr=float(found.tpr[n]) if both else None,
                p=float(found.p[n]) if both else None,
                advantage_low=float(found.low[n]),
                separated=both and bool(inside.min() > outside.max()),
                difference=float(inside.mean() - outside.mean()) if both else None,
                epsilon=0.0,
            )
        )
    return tuple(rows)


def _worst(scores: Floats, included: Coins, names: Sequence[str], coins: str) -> WorstText | None:
    rows = [row for row in _texts(scores, included, names) if row.p is not None]
    if not rows:
        return None
    row = min(rows, key=lambda text: text.p or 0.0)
    n = list(names).index(row.id)
    among = len(names)
    assert row.p is not None
    return WorstText(
        id=row.id,
        among=among,
        tpr=row.tpr,
        p=min(1.0, among * row.p),
        advantage_low=row.advantage_low,
        separated=row.separated,
        bound=None if coins == "exactly_half" else bound_of(0.0, 2.1),
        scores_in=tuple(np.sort(scores[included[:, n], n]).tolist()),
        scores_out=tuple(np.sort(scores[~included[:, n], n]).tolist()),
    )


def _scores(
    scores: Floats, included: Coins, canaries: int, formats: Sequence[str]
) -> tuple[SweepScore, ...]:
    rows = []
    for name, place in zip(GROUPS, _sides(canaries), strict=True):
        if not scores[:, place].size:
            continue
        for score, attack in (("secret_tokens", "lira"), ("log_perplexity", "plain")):
            first = attack == "lira"
            rows.append(_score(name, score, attack, scores[:, place], included[:, place], first))
    if len(formats) > 1:
        for n, form in enumerate(formats):
            place = slice(n, canaries, len(formats))
            kind = f"{form}/x1"
            cells = scores[:, place], included[:, place]
            rows.append(_score(kind, "secret_tokens", "lira", *cells, True))
    return tuple(rows)


def _score(
    group: str, score: str, attack: str, scores: Floats, included: Coins, primary: bool
) -> SweepScore:
    inside, outside = scores[included], scores[~included]
    curve = roc_curve(inside, outside)
    fpr, tpr = curve.fpr[::-1], curve.tpr[::-1]
    wide = 0.06
    return SweepScore(
        group=group,
        score=score,
        attack=attack,
        primary=primary,
        area=curve.area,
        area_low=max(0.0, curve.area - wide),
        area_high=min(1.0, curve.area + wide),
        rates=tuple(_rate(f, fpr, tpr, outside.size) for f in (0.001, 0.01)),
        cells_in=inside.size,
        cells_out=outside.size,
        cells_missing=0,
        curve=_curve(fpr, tpr) if primary else None,
        notes=(),
    )


def _rate(at: float, fpr: Floats, tpr: Floats, negatives: int) -> CellRate:
    if at * negatives < 3:
        note = f"{negatives} cells cannot resolve it; it takes 1,000 models"
        return CellRate(fpr=at, value=None, low=None, high=None, note=note)
    value = float(tpr[fpr <= at].max(initial=0.0))
    return CellRate(
        fpr=at, value=value, low=max(0.0, value - 0.05), high=min(1.0, value + 0.05), note=None
    )


def _curve(fpr: Floats, tpr: Floats) -> SweepCurve:
    kept = np.unique(np.linspace(0, fpr.size - 1, min(200, fpr.size)).astype(int))
    x, y = fpr[kept], tpr[kept]
    return SweepCurve(
        fpr=tuple(x.tolist()),
        tpr=tuple(y.tolist()),
        low=tuple(np.maximum(0, y - 0.05).tolist()),
        high=tuple(np.minimum(1, y + 0.05).tolist()),
    )
