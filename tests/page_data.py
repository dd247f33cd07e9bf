"""Whole reports built by hand, small or large, plain or hostile, for tests of what people read."""

import math

import numpy as np
from numpy.typing import NDArray

from lmexposure.core import Check, Fact, Outcome, Verdict
from lmexposure.gate import CHECK_KINDS
from lmexposure.reporting import (
    ReportData,
)
from lmexposure.reporting.data import (
    CanaryRow,
    ClassRow,
    FormatData,
    Found,
    RocData,
)
from lmexposure.statistics import Claim, privacy_of, score_classes
from lmexposure.studies import (
    Evaluation,
    Privacy,
    Provenance,
    Role,
    SkewNormalFit,
)
from lmexposure.studies.result_formats import Goodness

CLASSES = ((1, 3.0), (4, 14.0), (16, 28.0))  # repetitions, and about how many bits of exposure
BITS = math.log2(1e9)


def page_data(
    *,
    names: tuple[str, ...] = ("random_number",),
    canaries: int = 10,
    controls: int = 32,
    references: int = 1000,
    outcome: Outcome = Outcome.LEAK,
    secrets: bool = False,
    hostile: str = "",  # put into every text that comes from outside
    bounded: bool = True,  # with bounds on epsilon; no record of them holds half a character
) -> ReportData:
    """A report that has everything."""
    rng = np.random.default_rng(0)
    formats = tuple(
        _format(name + hostile, canaries, controls, references, secrets, hostile, rng)
        for name in names
    )
    return ReportData(
        title="demo" + hostile,
        verdict=_verdict(outcome, hostile),
        provenance=Provenance(
            lmexposure="0.1.0",
            measured="2026-11-22T06:30:00Z",
            model="model" + hostile,
            weights_sha256="ab" * 32,
        ),
        model=(
            Fact(name="model", value="model" + hostile),
            Fact(name="parameters", value="685,305"),
            Fact(name="validation loss", value="1.598 bits per token", meaning="6.704 before"),
        ),
        formats=formats,
        privacy=_privacy(formats, hostile) if bounded else None,
        roc=(_roc("random_number, repetitions 16" + hostile, rng),),
        training=tuple(_epoch(n) for n in range(13)),
        settings=tuple(
            Fact(name=f"setting_{n}" + hostile, value=f"value {n}" + hostile, meaning="a number")
            for n in range(12)
        ),
        command=f"lmexposure run corpus.txt --out runs/demo --epochs 12{hostile}",
        warnings=("11 of 62 canaries: more bits than the randomness space has" + hostile,),
        redacted=not secrets,
    )


def _format(
    name: str,
    canaries: int,
    controls: int,
    references: int,
    secrets: bool,
    hostile: str,
    rng: np.random.Generator,
) -> FormatData:
    bits = np.sort(rng.normal(50, 9, references))
    drawn: list[tuple[Role, int, NDArray[np.float64]]] = [
        ("control", 0, -np.log2(rng.random(controls)))
    ]
    drawn += [
        ("canary", repetitions, np.clip(rng.normal(center, 1.5, canaries), 0.1, BITS))
        for repetitions, center in CLASSES
    ]
    rows = [
        _canary(
            f"{name}/{role[:2]}{repetitions}/{n:04}{hostile}", role, repetitions, value, secrets
        )
        for role, repetitions, values in drawn
        for n, value in enumerate(values.tolist())
    ]
    return FormatData(
        name=name,
        pattern="The random number is {digits:9}" + hostile,
        bits=BITS,
        space_size="1000000000",
        references=references,
        exhaustive=False,
        classes=tuple(_class_row(role, repetitions, values) for role, repetitions, values in drawn),
        canaries=tuple(rows),
        reference_bits=bits,
        fit=SkewNormalFit(
            location=41.0,
            scale=12.0,
            shape=1.1,
            goodness=Goodness(
                ks_statistic=0.005,
                ks_p_value=0.74,
                tail_bits=0.1,
                tail_p_value=0.5,
                bootstraps=199,
                warnings=(),
            ),
        ),
        quantiles=tuple(
            np.quantile(bits, (0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)).tolist()
        ),
    )


def _canary(id_: str, role: Role, repetitions: int, value: float, secrets: bool) -> CanaryRow:
    """The tenth of each class lacks what can be missing; exposures above 29 bits are capped."""
    missing, rank = id_.endswith("0009"), max(1, round(2 ** (BITS - value)))
    return CanaryRow(
        id=id_,
        role=role,
        repetitions=repetitions,
        log_perplexity_bits=50 - value,
        exposure=None if missing else value,
        low=None if missing else value - 0.5,
        high=None if missing else min(value + 0.5, BITS),
        capped=value > 29,
        method="importance" if value < 20 else "exact",
        rank=None if missing else str(rank),
        guesses=rank if rank <= 1000 else None,
        guesses_tried=1000,
        revealed=2 if value > 12 else None,
        secret="123456789" if secrets else None,
    )


def _class_row(role: Role, repetitions: int, values: NDArray[np.float64]) -> ClassRow:
    n, median = len(values), float(np.median(values))
    within = [int((values > BITS - math.log2(g) - 0.1).sum()) for g in (1, 10, 100, 1000)]
    return ClassRow(
        role=role,
        repetitions=repetitions,
        n=n,
        mean=float(values.mean()),
        median=median,
        low=median - 0.4,
        high=min(median + 0.6, BITS),
        level=0.95,
        capped=median > 29,
        p_value=0.44 if role == "control" else 0.0001,
        epsilon=None if role == "control" else math.log(2) * (median - 1) / repetitions,
        exact=0 if role == "control" else n,
        guesses=tuple(
            Found(given=g, found=found, of=n, by_chance=n * g / 1e9)
            for g, found in zip((1, 10, 100, 1000), within, strict=True)
        ),
        revealed=tuple(
            Found(given=k, found=n if median > 9 + k else 0, of=n, by_chance=n * 10.0 ** (k - 9))
            for k in range(5)
        ),
    )


def _verdict(outcome: Outcome, hostile: str) -> Verdict:
    check = Check(
        name="p-value against guessing",
        key="p_value",
        scope="random_number, repetitions 16" + hostile,
        outcome=outcome,
        value=0.0001,
        threshold=0.01,
        unit="",
        reason="p = 0.0001 is below 0.01: the model knows these canaries" + hostile,
        asked=False,
    )
    bits = Check(
        name="highest exposure",
        key="max_exposure",
        scope="",
        outcome=Outcome.NOT_TESTED,
        value=None,
        threshold=None,
        unit="bits",
        reason="no threshold was asked for",
        asked=True,
    )
    return Verdict(
        kinds=CHECK_KINDS,
        outcome=outcome,
        sentence="Canaries of random_number inserted 16 times stand out from guessing "
        f"(p = 0.0001, threshold 0.01).{hostile}",
        deciding=check,
        checks=(check, bits),
        tested=("62 canaries and controls of one format" + hostile, "1,000 guesses a canary"),
        untested=("a claimed epsilon: none was given" + hostile, "other formats"),
    )


def _privacy(formats: tuple[FormatData, ...], hostile: str) -> Privacy:
    """Real bounds on these scores."""
    rows = [(f.name, one) for f in formats for one in f.canaries]
    references = [(f.name, bits) for f in formats for bits in f.reference_bits.tolist()]
    section = privacy_of(
        score_classes(
            -np.array([one.log_perplexity_bits for _, one in rows] + [b for _, b in references]),
            [one.role for _, one in rows] + ["reference"] * len(references),
            [one.repetitions for _, one in rows] + [0] * len(references),
            [name for name, _ in rows + references],
            pooled=False,
        ),
        deltas=(1e-5, 0.0),
        claim=Claim(epsilon=1.0, delta=1e-5),
    )
    return Privacy.model_validate(section | {"notes": ["training packs documents" + hostile]})


def _roc(name: str, rng: np.random.Generator) -> RocData:
    fpr = np.sort(np.concatenate([[0.0], rng.random(60) ** 3, [1.0]]))
    tpr = np.sort(np.concatenate([[0.1], rng.random(60) ** 0.3, [1.0]]))
    return RocData(
        name=name,
        repetitions=16,
        fpr=fpr,
        tpr=tpr,
        hull_fpr=np.array([0.0, 0.0, 0.1, 1.0]),
        hull_tpr=np.array([0.0, 0.1, 0.8, 1.0]),
        positives=10,
        negatives=1032,
        area=0.87,
        area_low=0.80,
        area_high=0.93,
    )


def _epoch(n: int) -> Evaluation:
    return Evaluation(
        step=111 * n,
        epoch=float(n),
        train_bits=None if n == 0 else 1.3 + 3 / n,
        validation_bits=1.6 + 5 / (n + 1) + 0.01 * max(0, n - 10),
        tokens=40000 * n,
        seconds=16.0 * n,
    )
