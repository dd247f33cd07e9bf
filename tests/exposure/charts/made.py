"""Small data for charts, made by hand, and what every chart must keep."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import made_results
import numpy as np
from made_results import bounded_class, exact, quantile

from lmexposure.core.charts import VARIABLES, Chart, RocLine
from lmexposure.statistics import (
    EpsilonBound,
    GoodnessOfFit,
    PrimaryBound,
    Privacy,
)
from lmexposure.studies import Evaluation, ExtractionCount, FormatResult, GuessCount, SkewNormalFit
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
        "method": "sampled",
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


def roc_line(**other: Any) -> RocLine:
    values: dict[str, Any] = {
        "name": "pin, repetitions 8",
        "fpr": np.array([0.0, 0.0, 0.1, 0.1, 1.0]),
        "tpr": np.array([0.0, 0.25, 0.25, 0.75, 1.0]),
        "edge": 1 / 400,
        "positives": 4,
        "area": (0.8, 0.6, 0.9),
        "hull": (np.array([0.0, 0.0, 0.1, 1.0]), np.array([0.0, 0.25, 0.75, 1.0])),
    }
    return RocLine(**values | other)


def bound(value: float, **other: Any) -> EpsilonBound:
    return made_results.bound(value, **{"max_attainable": 3.0, "repetitions": 8} | other)


def privacy(
    *others: EpsilonBound, name: str = "pin", claimed: float | None = 2.0, **primary: Any
) -> Privacy:
    """Two classes; the quoted bound is of the second, smaller one."""
    more = (bound(0.5, method="epsilon_from_exposure"), bound(1.5, validity="asymptotic"))
    first, second = bound(0.1), bound(0.9, **primary)
    classes = (
        bounded_class(name, first, canaries=90, held_out=90),
        bounded_class(name, second, *(others or more), repetitions=8, canaries=9, held_out=9),
    )
    quoted = PrimaryBound(**vars(second), formats=(name,))
    return made_results.privacy(0.9, 3.0, claimed=claimed, primary=quoted, classes=classes)


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
