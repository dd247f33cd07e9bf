"""Small data for charts, made by hand, and what every chart must keep."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import made_results
import numpy as np
from made_results import exact, quantile

from lmexposure.core.charts import VARIABLES, Chart
from lmexposure.statistics import (
    ClaimCheck,
    EpsilonBound,
    GoodnessOfFit,
    JointBounds,
    PrimaryBound,
    Privacy,
    PrivacyClass,
)
from lmexposure.studies import Evaluation, ExtractionCount, FormatResult, GuessCount, SkewNormalFit
from lmexposure.studies.exposure.charts import RocData
from lmexposure.studies.exposure.rows import CanaryRow, ClassRow, FormatData

HOSTILE = '<script>alert(1)</script> & $x^2$ $\\frac{a}{b}$ "quoted" \x07'

FIT = SkewNormalFit(
    location=24.0,
    scale=3.0,
    shape=0.5,
    goodness=GoodnessOfFit(
        ks_statistic=0.0123,
        ks_p_value=0.4567,
        tail_bits=0.1,
        tail_p_value=0.5,
        bootstraps=39,
        warnings=(),
    ),
)
REFERENCES = np.random.default_rng(0).normal(24, 3, 400)
FORM = made_results.form(
    "pin",
    2**20,
    references=400,
    skew_normal=FIT,
    reference_bits_quantiles=np.quantile(
        REFERENCES, (0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)
    ).tolist(),
)


def canary(exposure: float | None, **other: Any) -> CanaryRow:
    values: dict[str, Any] = {
        "id": "pin/x1/0000",
        "format": "pin",
        "role": "canary",
        "repetitions": 1,
        "log_perplexity_bits": 20.0,
        "exposure": exposure,
        "low": None if exposure is None else exposure - 0.5,
        "high": None if exposure is None else exposure + 0.5,
        "capped": False,
        "method": "sampled",
        "rank": None,
        "guesses": None,
        "revealed": None,
    }
    return CanaryRow(**values | other)


def found(given: int, n: int, of: int = 4, by_chance: float = 0.001) -> ExtractionCount:
    return ExtractionCount(method="greedy", revealed=given, found=n, of=of, by_chance=by_chance)


def class_row(
    median: float,
    *,
    n: int = 4,
    guesses: Sequence[ExtractionCount] = (),
    revealed: Sequence[ExtractionCount] = (),
    **other: Any,
) -> ClassRow:
    capped, repetitions = other.pop("capped", False), other.pop("repetitions", 1)
    ends = {"low": other.pop("low", median - 1), "high": other.pop("high", median + 1)}
    row = made_results.class_row(
        [made_results.canary(0, exact(median), name="pin", repetitions=repetitions)] * n,
        median=replace(quantile([median], 0.5), **ends),
        median_capped=capped,
        guesses=[GuessCount(guesses=g.revealed, found=g.found, of=g.of) for g in guesses],
        extraction=revealed,
        **other,
    )
    return ClassRow(**vars(row), form=FORM)


def format_data(**other: Any) -> FormatData:
    """Four controls, four canaries once and four canaries eight times, |R| = 2^20."""
    control = [canary(e, role="control", repetitions=0) for e in (0.2, 0.8, 1.4, 2.2)]
    once = [canary(e, log_perplexity_bits=15.0 + e) for e in (1.0, 2.0, 3.0, 4.0)]
    often = [
        canary(e, repetitions=8, log_perplexity_bits=5.0, capped=e == 13.0, high=None)
        for e in (10.0, 11.0, 12.0, 13.0)
    ]
    values: dict[str, Any] = {
        "pattern": "My PIN is {digits:6}.",
        "classes": (
            class_row(1.1, repetitions=0, guesses=(found(1, 0), found(1000, 0))),
            class_row(2.5, guesses=(found(1, 0), found(1000, 1)), revealed=(found(2, 2),)),
            class_row(
                11.5,
                repetitions=8,
                capped=True,
                guesses=(found(1, 1), found(1000, 4)),
                revealed=(found(0, 1), found(2, 3)),
            ),
        ),
        "canaries": (*control, *once, *often),
    }
    parts = {name: other.pop(name) for name in set(other) & set(FormatResult.model_fields)}
    return FormatData(**values | other, form=FORM.model_copy(update=parts))


def roc_data(**other: Any) -> RocData:
    values: dict[str, Any] = {
        "name": "pin, repetitions 8",
        "repetitions": 8,
        "fpr": np.array([0.0, 0.0, 0.1, 0.1, 1.0]),
        "tpr": np.array([0.0, 0.25, 0.25, 0.75, 1.0]),
        "hull_fpr": np.array([0.0, 0.0, 0.1, 1.0]),
        "hull_tpr": np.array([0.0, 0.25, 0.75, 1.0]),
        "positives": 4,
        "negatives": 400,
        "area": 0.8,
        "area_low": 0.6,
        "area_high": 0.9,
    }
    return RocData(**values | other)


def bound(value: float, **other: Any) -> EpsilonBound:
    return EpsilonBound(**(_bound_values(value) | other))


def _bound_values(value: float) -> dict[str, Any]:
    return {
        "method": "one_run_audit",
        "value": value,
        "significance": 0.025,
        "delta": 1e-5,
        "validity": "any-dp",
        "counts": {},
        "threshold": None,
        "threshold_choice": "",
        "max_attainable": 3.0,
        "mu": None,
        "repetitions": 8,
        "unit": "nats",
        "adjacency": "add or remove one document",
        "assumptions": (),
        "notes": (),
    }


def bounded_class(
    primary: EpsilonBound,
    *others: EpsilonBound,
    name: str = "pin",
    repetitions: int = 8,
    n: int = 9,
) -> PrivacyClass:
    """A class of which nothing but its bounds is known."""
    return PrivacyClass(
        formats=(name,),
        repetitions=repetitions,
        canaries=n,
        held_out=n,
        references=100,
        bounds=JointBounds(
            primary=primary,
            others=others,
            refused=(),
            significance=0.025,
            inclusion_probability=0.5,
        ),
        membership=None,
        note=None,
    )


def privacy(
    *others: EpsilonBound, name: str = "pin", claimed: float | None = 2.0, **primary: Any
) -> Privacy:
    """Two classes; the quoted bound is of the second, smaller one."""
    more = (bound(0.5, method="epsilon_from_exposure"), bound(1.5, validity="asymptotic"))
    classes = (
        bounded_class(bound(0.1), name=name, repetitions=1, n=90),
        bounded_class(bound(0.9, **primary), *(others or more), name=name),
    )
    values = _bound_values(0.9) | {"significance": 0.05, "formats": (name,)} | primary
    return Privacy(
        inclusion_probability=0.5,
        significance=0.05,
        deltas=(1e-5,),
        primary=PrimaryBound(**values),
        max_attainable=3.0,
        classes=classes,
        claim=None if claimed is None else _claim(claimed, str(values["method"])),
        notes=(),
    )


def _claim(claimed: float, method: str) -> ClaimCheck:
    return ClaimCheck(
        verdict="consistent",
        reason="the bound is not above it",
        claimed_epsilon=claimed,
        claimed_delta=1e-5,
        bound=0.9,
        max_attainable=3.0,
        significance=0.05,
        validity="any-dp",
        method=method,
    )


def training_rows(**exposures: float | None) -> tuple[Evaluation, ...]:
    """Four evaluations; the exposures of the last."""
    losses = ((None, 6.0), (3.0, 2.5), (2.0, 2.0), (1.5, 2.25))
    rows = [evaluation(100 * n, train, valid) for n, (train, valid) in enumerate(losses)]
    return (*rows[:-1], replace(rows[-1], exposures=tuple(exposures.items())))


def evaluation(step: int, train: float | None, valid: float | None) -> Evaluation:
    return Evaluation(step=step, epoch=step / 100, train_bits=train, validation_bits=valid)


def texts(chart: Chart) -> list[str]:
    """All that is written in the picture, without its text alternative."""
    return texts_of(chart.svg())


def texts_of(svg: str) -> list[str]:
    root = ET.fromstring(svg)
    return [str(one.text) for one in root.iter("{http://www.w3.org/2000/svg}text")]


def painted(chart: Chart, variable: str) -> list[ET.Element]:
    """All elements in a colour of the page."""
    name = f"var({variable})"
    root = ET.fromstring(chart.svg())
    return [one for one in root.iter() if name in (one.get("fill"), one.get("stroke"))]


def assert_fit_for_a_page(chart: Chart, svg: str) -> None:
    root = ET.fromstring(svg)
    assert svg.startswith("<svg ")
    assert root.get("viewBox")
    assert root.get("width") is root.get("height") is None
    assert root.get("role") == "img"
    for tag, text in (("desc", chart.description),):
        one = next(root.iter(f"{{http://www.w3.org/2000/svg}}{tag}"))
        assert one.text == text
        assert one.get("id") in str(root.get("aria-labelledby")).split()
    ids = [str(one.get("id")) for one in root.iter() if one.get("id")]
    assert len(ids) == len(set(ids))
    assert all(one.startswith(f"{chart.name}--") for one in ids)
    _assert_references_inside(root, set(ids))
    _assert_no_colors(root)


def _assert_references_inside(root: ET.Element, ids: set[str]) -> None:
    """Nothing outside is pointed to, nothing runs, nothing holds for the page around."""
    tags = {one.tag.rpartition("}")[2] for one in root.iter()}
    allowed = {"svg", "title", "desc", "g", "defs", "path", "use", "text", "clipPath", "rect"}
    assert tags <= allowed
    for one in root.iter():
        assert not {"style", "class", "onload"} & set(one.attrib)
        for key, value in one.attrib.items():
            if key.endswith("href"):
                assert value.removeprefix("#") in ids
            for target in re.findall(r"url\(#?([^)]*)\)", value):
                assert target in ids


def _assert_no_colors(root: ET.Element) -> None:
    ours = {"none", "currentColor", *(f"var({name})" for name in VARIABLES.values())}
    for one in root.iter():
        for key in ("fill", "stroke", "color", "stop-color"):
            assert one.get(key, "none") in ours
