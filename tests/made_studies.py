"""A study of each kind that nobody made: for what must hold of every one of them."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from made_looks import verbatim
from made_results import assumed, context, small_result
from made_sweeps import made_sweep
from tiny_defences import made_record, made_row

from lmexposure.core import Study, register
from lmexposure.statistics import EpsilonBound, one_run_audit
from lmexposure.studies import (
    Canife,
    CanifeRound,
    CanifeSettings,
    DefenceRow,
    Defences,
    DocumentPrivacy,
    FederatedSettings,
    IdentifierSettings,
    NaturalIdentifiers,
    Result,
    SweepResult,
    WhiteBoxAudit,
    WhiteBoxBounds,
)
from lmexposure.studies.identifiers import (
    IdentifierClass,
    IdentifierDifference,
    IdentifierModel,
    IdentifierRank,
    IdentifierRates,
    IdentifierSplit,
)

sys.path.append(str(Path(__file__).parents[1] / "scripts" / "examples"))

from own_study import LossGap, Scored  # type: ignore[import-not-found]


def _when(seed: int) -> dict[str, Any]:
    """By whom it was made, when, and of what."""
    made = {"measured": "2026-11-26T06:30:00Z", "lmexposure": "0.1.0"}
    return {**made, "inputs_sha256": f"{seed:064x}"}


def canife(seed: int = 0) -> Canife:
    """Of one to four attacked rounds, with noise or without, sound or not."""
    rng = np.random.default_rng(seed)
    noise = float(rng.choice([0.0, 0.5, 1.1]))
    rounds = tuple(_round(rng, number, noise) for number in range(1, 2 + int(rng.integers(4))))
    return Canife(
        **_when(seed),
        clients=12,
        aside=8,
        weights=1234,
        training=FederatedSettings(
            rounds=20,
            client_rate=0.25,
            local_batch=None if rng.random() < 0.5 else 8,
            noise_multiplier=noise,
        ),
        attacks=CanifeSettings(frozen=bool(rng.random() < 0.5)),
        attacked=rounds,
        attainable=float(rng.exponential(9)),
        losses=tuple(rng.uniform(2, 4, len(rounds) + 1).tolist()),
    )


def _round(rng: np.random.Generator, number: int, noise: float) -> CanifeRound:
    coins = rng.random(30) < rng.choice([0.5, 0.5, 1.0])
    low, mu = (float(value) for value in rng.exponential(2, 2))
    claimed: dict[str, Any] = {"claimed_round": None, "claimed_so_far": None}
    if noise:
        claimed = {"claimed_round": float(rng.exponential(9)), "claimed_so_far": 9.0 + number}
    return CanifeRound(
        round=number,
        loss=float(rng.uniform(2, 4)),
        health=float(rng.uniform(0.3, 1)),
        norm=float(rng.exponential()),
        scores=tuple((coins + rng.normal(size=30)).tolist()),
        coins=tuple(coins.tolist()),
        noise=None if rng.random() < 0.2 else float(rng.exponential()),
        point=low,
        mu=mu,
        epsilon_round=low,
        attainable_round=low + 1,
        noise_at_most=None if rng.random() < 0.3 else float(rng.exponential(2)),
        epsilon_so_far=low / 2,
        random_noise=None,
        random_epsilon_round=None if rng.random() < 0.5 else 0.25,
        **claimed,
    )


def identifiers(seed: int = 0) -> NaturalIdentifiers:
    """Of one or two formats, beside a base and held-out documents, or not."""
    rng = np.random.default_rng(seed)
    has_base, has_split = rng.random(2) < 0.5
    names = ("api_key", "uuid")[: 1 + int(rng.integers(2))]
    classes = [_class(rng, name, has_base=bool(has_base)) for name in (*names, None)]
    claims: tuple[Any, ...] = ("membership", "distribution or membership", "nothing found")
    ranks = tuple(
        IdentifierRank(
            format=str(rng.choice(names)),
            file=0,
            document=document,
            times=1,
            tested=True,
            rank=int(rng.integers(1, 101)),
            base_rank=int(rng.integers(1, 101)) if has_base else None,
        )
        for document in range(1, 6)
    )
    split = IdentifierSplit(
        files=("apart.txt",),
        documents=40,
        tested=35,
        both=2,
        model=_rates(rng),
        area=float(rng.random()),
        p_value=float(rng.random()) / 10,
    )
    model = IdentifierModel(path="my|model", weights_sha256="1" * 64)
    return NaturalIdentifiers(
        **_when(seed),
        model=model,
        base=model.model_copy(update={"path": "base"}) if has_base else None,
        files=("corpus.txt",),
        documents=160,
        settings=IdentifierSettings(draws=99, seed=seed),
        level=0.95,
        needed=146,
        split=split if has_split else None,
        uniform_source=False,
        foretold=0,
        claim=claims[int(rng.integers(3))],
        reason="as they *say*",
        classes=tuple(classes),
        identifiers=ranks,
        warnings=("a <b>warning</b>",) if rng.random() < 0.5 else (),
    )


def _class(rng: np.random.Generator, name: str | None, *, has_base: bool) -> IdentifierClass:
    found, distinct, repeated, hits = (int(n) for n in rng.integers(0, 200, 4))
    difference = IdentifierDifference(value=float(rng.normal()), low=-1.0, high=1.0, p_value=0.25)
    return IdentifierClass(
        format=name,
        space_size=None if name is None else 10**40,
        found=found,
        distinct=distinct,
        repeated=repeated,
        compared=found,
        compared_hits=hits,
        tested=found + 1,
        model=_rates(rng),
        base=_rates(rng) if has_base else None,
        difference=difference if has_base else None,
    )


def _rates(rng: np.random.Generator) -> IdentifierRates:
    low, tpr, high = (float(rate) for rate in np.sort(rng.random(3)))
    return IdentifierRates(
        hits=int(rng.integers(0, 90)),
        tpr=tpr,
        low=low,
        high=high,
        median_exposure=float(rng.exponential(2)),
        p_value=float(rng.random()) / 10,
        null=bool(rng.random() < 0.5),
    )


def defences(seed: int = 0) -> Defences:
    """Of one to five methods, some of them not at the target, or without an attack or exposure."""
    rng = np.random.default_rng(seed)
    names = ("none", "hamp", "dp-sgd", "selena|x", "goldfish")[: 1 + int(rng.integers(5))]
    return made_record(
        *(_method(rng, name) for name in names),
        failed={"dropout": "too *costly*"} if rng.random() < 0.5 else {},
        warnings=("a <b>warning</b>",) if rng.random() < 0.5 else (),
        inputs_sha256=f"{seed:064x}",
    )


def _method(rng: np.random.Generator, name: str) -> DefenceRow:
    is_first = name == "none"
    ranked = is_first or bool(rng.random() < 0.7)
    row = made_row(
        name,
        None if rng.random() < 0.15 else float(rng.uniform(0.1, 0.9)),
        ranked=ranked,
        why=None if ranked else "less useful than the target by 4.0%",
        bits=float(rng.uniform(1, 3)),
        ratio=1.0 if is_first else float(rng.uniform(0.9, 1.2)),
        above_p=None if rng.random() < 0.5 else float(rng.random()) / 5,
        epsilon=float(rng.exponential(100)) if rng.random() < 0.3 else None,
        delta=1e-5,
        seconds=float(rng.exponential(9)),
    )
    bare = {"exposure": None, "population": None, "population_low": None, "population_high": None}
    return row.model_copy(update=bare) if rng.random() < 0.3 else row


def sweep(seed: int = 0) -> SweepResult:
    """Of few or many models, clean or not, of one format or two, asked of kinds and changes too."""
    rng = np.random.default_rng(seed)
    return made_sweep(
        models=int(rng.choice([8, 16, 64])),
        canaries=int(rng.choice([6, 32])),
        population=int(rng.choice([6, 40])),
        shift=float(rng.choice([0.0, 1.0])),
        leaking=int(rng.integers(2)),
        failed=int(rng.choice([0, 0, 2])),
        coins=str(rng.choice(["independent", "exactly_half"])),
        formats=("pin",) if rng.random() < 0.7 else ("pin", "api_key"),
        power=bool(rng.random() < 0.5),
        changes=bool(rng.random() < 0.5),
        warnings=("a <b>warning</b>",) if rng.random() < 0.5 else (),
        seed=seed,
    )


def white_box(seed: int = 0) -> WhiteBoxAudit:
    """Of canaries of the whole training or of single steps, or of both, beside a claim or none."""
    rng = np.random.default_rng(seed)
    noise = float(rng.uniform(0.2, 2))
    whole, step, composed = (bool(flag) for flag in rng.random(3) < 0.7)
    scores, step_scores = (tuple(rng.normal(size=40).tolist()) for _ in range(2))
    coins, step_coins = (tuple((rng.random(40) < 0.5).tolist()) for _ in range(2))
    bounds = WhiteBoxBounds(
        kind="hadamard" if rng.random() < 0.5 else "dirac",
        weights=1_000,
        canaries=40,
        included=sum(coins),
        sample_rate=0.1,
        steps=int(rng.integers(1, 3000)),
        tosses=40,
        noise_multiplier=noise,
        delta=1e-5,
        one_run=_bound(rng) if whole else None,
        one_run_gaussian=_bound(rng) if whole and rng.random() < 0.5 else None,
        step=_bound(rng) if step else None,
        noise_at_most=None if rng.random() < 0.3 else noise * float(rng.uniform(0.5, 2)),
        composed=float(rng.exponential(3)) if step and composed else None,
        attainable=float(rng.exponential(9)),
        noise_attainable=None if rng.random() < 0.3 else noise * float(rng.uniform(0.5, 2)),
        significance=0.05,
        assumptions=("sampled as *claimed*",),
    )
    return WhiteBoxAudit(
        **_when(seed),
        bounds=bounds,
        claimed_epsilon=None if rng.random() < 0.3 else float(rng.exponential(4)),
        scores=scores,
        coins=coins,
        step_scores=step_scores,
        step_coins=step_coins,
    )


def _bound(rng: np.random.Generator) -> EpsilonBound:
    low, high = (float(value) for value in np.sort(rng.exponential(4, 2)))
    made = one_run_audit(rng.normal(size=40), np.arange(40) % 2, delta=1e-5, seed=1)
    counts = {**made.counts, "correct": int(rng.integers(20, 40))}
    return replace(made, value=low, max_attainable=high, counts=counts)


def dp_report(seed: int = 0) -> DocumentPrivacy:
    """Of documents or users, some of whose names a spreadsheet would run."""
    rng = np.random.default_rng(seed)
    names = ("ada", "=1+1", "bob, the *second*", "zoë", "document 7")[: 1 + int(rng.integers(5))]
    return DocumentPrivacy(
        **_when(seed),
        unit="user" if rng.random() < 0.5 else "document",
        claimed=float(rng.exponential(9)) + 3,
        delta=1e-5,
        moments=int(rng.integers(1, 9)),
        names=names,
        epsilons=tuple(rng.uniform(0, 3, len(names)).tolist()),
    )


def loss_gap(seed: int = 0) -> Study:
    """The example of a kind of a package outside."""
    rng = np.random.default_rng(seed)
    made: Study = LossGap(
        **_when(seed),
        model=f"model-{seed}",
        scored=tuple(
            Scored(number=1 + n // 2, trained=n % 2 == 0, bits=float(rng.exponential(40)))
            for n in range(24)
        ),
    )
    return made


def result(seed: int = 0) -> Result:
    """Of one to three formats, memorised or not, beside a base or not, in known rows or not."""
    rng = np.random.default_rng(seed)
    names = ("random_number", "pin", "tiny")[: 1 + int(rng.integers(3))]
    made = small_result(
        formats=names,
        canaries=int(rng.integers(2, 6)),
        repetitions=(1, 4) if rng.random() < 0.7 else (2,),
        controls=int(rng.integers(0, 6)),
        references=60,
        memorised=((4, float(rng.choice([0.0, 40.0]))),),
        extraction=bool(rng.random() < 0.7),
        inclusion_probability=None if rng.random() < 0.6 else 0.5,
        base=bool(rng.random() < 0.4),
        seed=seed,
    )
    rows = {"context": assumed() if rng.random() < 0.5 else context()}
    known = {"lmexposure": "0.1.0", "inputs_sha256": f"{seed:064x}"}
    warned = {"warnings": ("a <b>warning</b>",)} if rng.random() < 0.5 else {}
    return made.model_copy(update={**known, **warned, **(rows if rng.random() < 0.5 else {})})


register("loss_gap", "own_study:LossGap")  # as its entry point would
MADE: dict[str, Callable[[int], Study]] = {
    "canife": canife,
    "defences": defences,
    "dp_report": dp_report,
    "identifiers": identifiers,
    "loss_gap": loss_gap,
    "result": result,
    "sweep": sweep,
    "verbatim": verbatim,
    "white_box": white_box,
}
