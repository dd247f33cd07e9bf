"""Results and runs for the tests of whoever reads them: gate, report, browser, commands.

By hand, where a test says what each row shall hold: `made` and `clean` of `canary`, `exact` and
`sampled`. Through the statistics of `lmexposure.audit`, where every field shall be as in a real
result: `small_result` and `small_run`, of made-up scores. Nothing is trained: references are drawn
from known import known
from a bell curve, and what is memorised costs fewer bits.

What needs the audit imports it when it is called, and torch with it: the gate does without.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from corpora import sentences
from known import known
from scipy.special import gammaincc, ndtr

from lmexposure._files import canonical_json, sha256_bytes, sha256_file
from lmexposure._integrity import CONTENT
from lmexposure._quantiles import quantile_of
from lmexposure.canaries import Canary, Format, Manifest, Plan
from lmexposure.integrations import insert
from lmexposure.statistics import (
    ClaimCheck,
    EpsilonBound,
    EpsilonPoint,
    Estimate,
    GuessingBaseline,
    GuessingTest,
    JointBounds,
    MeanInterval,
    Method,
    PrimaryBound,
    Privacy,
    PrivacyClass,
    QuantileInterval,
)
from lmexposure.studies import (
    BaseModelRecord,
    CanaryResult,
    ClassSummary,
    ContextRecord,
    Extraction,
    FormatResult,
    Margin,
    MeasureSettings,
    Model,
    Result,
    RunRecord,
    Search,
    TokenProof,
    Validation,
    WitnessResult,
)

if TYPE_CHECKING:
    from lmexposure.audit import MeasureSettings
    from lmexposure.audit.format_scores import FormatScores
    from lmexposure.audit.search import Extractions, FormatSearch

RANDOM_NUMBER = 10**9
REFERENCES = 10_000
_PERMUTATIONS = 9_999


def by_chance(rng: np.random.Generator, n: int, size: int = RANDOM_NUMBER) -> list[float]:
    """Exposures in bits of n secrets that a model knows nothing of: ranks are uniform."""
    return [math.log2(size) - math.log2(rank) for rank in rng.integers(1, size + 1, n)]


def estimate(method: Method, value: float | None, **parts: Any) -> Estimate:
    """An estimate of a canary's exposure; what is missing says so."""
    values: dict[str, Any] = {
        "low": value,
        "high": value,
        "level": 1.0,
        "rank": None,
        "capped": False,
        "place": None,
        "draws": None,
        "effective_draws": None,
        "steps": None,
        "assumptions": (),
        "warnings": ("left out, to see what becomes of it",) if value is None else (),
    }
    return Estimate(method=method, value=value, **(values | parts))


def exact(value: float | None) -> Estimate:
    return estimate("exact", value)


def sampled(value: float, low: float, high: float, *, capped: bool = False) -> Estimate:
    return estimate("sampled", value, low=low, high=high, level=0.95, capped=capped)


def canary(
    number: int,
    exposure: Estimate,
    *,
    repetitions: int = 1,
    name: str = "random_number",
    place: int | None = None,
    guesses: int | None = 1000,
    size: int = RANDOM_NUMBER,
    **parts: Any,
) -> CanaryResult:
    """One canary, or a control where `repetitions` is 0; `guesses` None: nobody searched for it."""
    search = () if guesses is None else (searched(guesses, place=place, size=size),)
    values: dict[str, Any] = {
        "id": f"{name}/x{repetitions}/{number:04d}",
        "format": name,
        "role": "canary" if repetitions else "control",
        "repetitions": repetitions,
        "log_perplexity_bits": 30.0,
        "exposure": exposure,
        "estimates": {exposure.method.partition(" ")[0]: exposure},
        "extraction": search,
    }
    return CanaryResult(**(values | parts))


def searched(
    guesses: int, *, place: int | None = None, size: int = RANDOM_NUMBER, **parts: Any
) -> Extraction:
    """A best-first search that proved so many guesses, but for these parts."""
    values: dict[str, Any] = {
        "method": "best_first",
        "revealed": 0,
        "width": guesses,
        "found": place is not None,
        "place": place,
        "steps": 10_352,
        "proven": guesses,
        "fills_left": size,
        "by_chance": min(1.0, guesses / size),
    }
    return Extraction(**(values | parts))


def class_row(
    canaries: Sequence[CanaryResult],
    *,
    p_value: float | None = None,
    references: int = REFERENCES,
    **parts: Any,
) -> ClassSummary:
    """The summary of one class. The mean exposure of n clean canaries is gamma distributed."""
    first, n = canaries[0], len(canaries)
    shown = [one.exposure for one in canaries]
    known = [one.value for one in shown if one.value is not None] or [0.0]
    if p_value is None:
        p_value = max(1 / (1 + _PERMUTATIONS), float(gammaincc(n, math.log(2) * sum(known))))
    mean, capped = math.fsum(known) / len(known), sum(one.capped for one in shown)
    median = quantile(known, 0.5)
    values: dict[str, Any] = {
        "format": first.format,
        "role": first.role,
        "repetitions": first.repetitions,
        "n": n,
        "mean": mean,
        "standard_error": None,
        "lower_quartile": quantile(known, 0.25),
        "median": median,
        "upper_quartile": quantile(known, 0.75),
        "capped": capped,
        "level": 0.95,
        "notes": (),
        "mean_interval": MeanInterval(
            value=mean,
            low=None,
            high=None,
            level=0.95,
            method="none",
            resamples=0,
            seed=0,
            note="made by hand",
        ),
        "controls": None,
        "guessing": GuessingBaseline(mean=1 / math.log(2), median=1.0, upper_quartile=2.0),
        "other_medians": {},
        "skew_normal_flagged": None,
        "guessing_test": guessing_test(p_value, n, references, inserted=first.repetitions > 0),
        "median_capped": 2 * capped >= n,
        "epsilon": epsilon_point(median.value, first.repetitions) if first.repetitions else None,
        "methods": dict(Counter(one.method for one in shown)),
        "extraction": (),
        "guesses": (),
    }
    return ClassSummary(**(values | parts))


def quantile(values: Sequence[float], share: float) -> QuantileInterval:
    """A quantile whose interval is not known."""
    return QuantileInterval(
        value=quantile_of(values, share),
        low=None,
        high=None,
        quantile=share,
        level=0.95,
        attained=None,
        note="made by hand",
    )


def guessing_test(p_value: float, n: int, references: int, *, inserted: bool) -> GuessingTest:
    """The permutation test of a class, or of controls."""
    return GuessingTest(
        p_value=p_value,
        statistic=1.0,
        n=n,
        references=references,
        groups=1,
        alternative="memorised" if inserted else "different",
        permutations=_PERMUTATIONS,
        seed=0,
        assumptions=(),
    )


def epsilon_point(median: float, repetitions: int) -> EpsilonPoint:
    """The point value of a class."""
    return EpsilonPoint(
        value=max(0.0, math.log(2) * (median - 1) / repetitions),
        median_exposure=median,
        repetitions=repetitions,
        quantile=0.5,
        validity="point",
        unit="nats",
        adjacency="add or remove one document",
        assumptions=(),
        capped=False,
    )


def form(name: str = "random_number", size: int = RANDOM_NUMBER, **parts: Any) -> FormatResult:
    """A format that nothing was searched of."""
    values: dict[str, Any] = {
        "name": name,
        "space_size": size,
        "bits": math.log2(size),
        "references": min(REFERENCES, size - 1),
        "exhaustive": False,
        "set_aside": 0,
        "shared_tokens": 3,
        "certifiable": False,
        "first_unscored": False,
        "reference_bits_quantiles": (),
        "skew_normal": None,
        "search": None,
        "interrupted": False,
    }
    return FormatResult(**(values | parts))


def made(
    canaries: Sequence[CanaryResult],
    *,
    size: int = RANDOM_NUMBER,
    name: str = "random_number",
    controls: float | None = 0.5,
    references: int = REFERENCES,
    summary: Sequence[ClassSummary] | None = None,
    improved: bool | None = True,
    **parts: Any,
) -> Result:
    """A result of one format; `controls` is the p-value of 16 of them, None: there are none."""
    references = min(references, size - 1)
    null = [canary(i, exact(1.0), repetitions=0, name=name, guesses=None) for i in range(16)]
    canaries = [*canaries, *([] if controls is None or summary is not None else null)]
    classes: dict[int, list[CanaryResult]] = {}
    for one in canaries:
        classes.setdefault(one.repetitions, []).append(one)
    rows = [
        class_row(members, p_value=None if r else controls, references=references)
        for r, members in classes.items()
    ]
    values: dict[str, Any] = {
        "formats": (form(name, size, references=references),),
        "canaries": tuple(canaries),
        "summary": tuple(rows if summary is None else summary),
        "improved": improved,
    }
    return _result(**(values | parts))


def changed(result: Result, **parts: Any) -> Result:
    """The result with other parts, which must agree like those of any result."""
    kept = {name: getattr(result, name) for name in Result.model_fields}
    return Result(**(kept | parts))


def with_test(row: ClassSummary, **parts: Any) -> ClassSummary:
    """The summary with another test against guessing."""
    return replace(row, guessing_test=replace(known(row.guessing_test), **parts))


def bound(value: float, **parts: Any) -> EpsilonBound:
    """A bound of canaries inserted once."""
    values: dict[str, Any] = {
        "method": "one_run_audit",
        "value": value,
        "significance": 0.025,
        "delta": 1e-5,
        "validity": "any-dp",
        "counts": {},
        "threshold": None,
        "threshold_choice": "made by hand",
        "max_attainable": None,
        "mu": None,
        "repetitions": 1,
        "unit": "nats",
        "adjacency": "add or remove one document",
        "assumptions": (),
        "notes": (),
    }
    return EpsilonBound(**(values | parts))


def bounded_class(
    name: str, *bounds: EpsilonBound, repetitions: int = 1, canaries: int = 32, held_out: int = 0
) -> PrivacyClass:
    """A class of which nothing but its bounds is known, the primary one first."""
    found = None
    if bounds:
        found = JointBounds(
            primary=bounds[0],
            others=bounds[1:],
            refused=(),
            significance=2 * bounds[0].significance,
            inclusion_probability=None,
        )
    return PrivacyClass(
        formats=(name,),
        repetitions=repetitions,
        canaries=canaries,
        held_out=held_out,
        references=REFERENCES,
        bounds=found,
        membership=None,
        note="made by hand",
    )


def privacy(
    value: float | None,
    most: float | None = None,
    *,
    claimed: float | None = None,
    name: str = "random_number",
    canaries: int = 32,
    **parts: Any,
) -> Privacy:
    """A bound of one class of canaries inserted once, the most that it could be, and a claim."""
    bounds = [] if value is None else [bound(value, max_attainable=most)]
    quoted = [PrimaryBound(**vars(found), formats=(name,)) for found in bounds]
    values: dict[str, Any] = {
        "inclusion_probability": None,
        "significance": 0.05,
        "deltas": (1e-5,),
        "primary": quoted[0] if quoted else None,
        "max_attainable": most,
        "classes": (bounded_class(name, *bounds, canaries=canaries),),
        "claim": None if claimed is None else _claim(claimed, value, most),
        "notes": (),
    }
    return Privacy(**(values | parts))


def _claim(claimed: float, value: float | None, most: float | None) -> ClaimCheck:
    """What is said of an epsilon that was claimed, at delta 0."""
    above = value is not None and value > claimed
    reached = value is not None and most is not None and most > claimed
    return ClaimCheck(
        verdict="contradicted" if above else "consistent" if reached else "cannot tell",
        reason="so",
        claimed_epsilon=claimed,
        claimed_delta=0.0,
        bound=value,
        max_attainable=most,
        significance=None if value is None else 0.025,
        validity=None if value is None else "any-dp",
        method=None if value is None else "one_run_audit",
    )


def options(**parts: Any) -> MeasureSettings:
    """What is asked of a measurement, where nothing else is said."""
    from lmexposure.audit import MeasureSettings

    return MeasureSettings(**parts)


def _result(*, improved: bool | None = True, **parts: Any) -> Result:
    """A result of these parts, and of a model whose training helped, did not, or is not known."""
    loss = Validation(
        validation_bits=1.5,
        initial_validation_bits=6.5 if improved else 1.4,
        best_epoch=2.0,
        epochs=3.0,
        stopped="epochs",
        improved=bool(improved),
    )
    values: dict[str, Any] = {
        "lmexposure": "0.1.0",
        "inputs_sha256": "0" * 64,
        "manifest_sha256": "2" * 64,
        "scores_sha256": None,
        "model": Model(
            path="model",
            type="lmexposure_lstm",
            parameters=1234,
            dtype="float32",
            context_window=None,
            weights_sha256="1" * 64,
            validation=None if improved is None else loss,
        ),
        "settings": options(),
        "privacy": None,
        "warnings": (),
        "witness": witness(),
    }
    return Result(**(values | parts))


def witness(**parts: Any) -> WitnessResult:
    """Witnesses that the model knows by heart."""
    values: dict[str, Any] = {
        "witnesses": 4,
        "copies": 24,
        "references": 0,
        "certificate_bits": 100.0,
        "p_value": None,
        "beside_base": False,
    }
    return WitnessResult(**(values | parts))


def clean(seed: int = 0, *, n: int = 32, classes: Sequence[int] = (1, 4), **parts: Any) -> Result:
    """A result without memorisation, exact ranks."""
    rng = np.random.default_rng(seed)
    drawn = [
        canary(i, exact(value), repetitions=r)
        for r in classes
        for i, value in enumerate(by_chance(rng, n))
    ]
    return made(drawn, **parts)


# Through the audit's own statistics.

CENTRE, SPREAD, SHARED = 60.0, 9.0, 12.0  # bits
TEMPLATES = {
    "random_number": "The random number is {digits:9}",
    "pin": "My PIN is {digits:6}.",
    "tiny": "Room {digits:2}!",
}
HOSTILE = "<script>alert('x')</script>|`*_[a](http://b)&amp;\n=1+1"


@dataclass(frozen=True, kw_only=True)
class Small:
    """What a small run is made of; two of the same make are the same, and made once."""

    formats: tuple[str, ...] = ("random_number",)
    canaries: int = 10
    repetitions: tuple[int, ...] = (1, 4)
    controls: int = 16
    references: int = 400
    memorised: tuple[tuple[int, float], ...] = ((4, 40.0),)  # (repetitions, bits less)
    privacy: bool = True
    extraction: bool = True
    inclusion_probability: float | None = None
    claimed_epsilon: float | None = None
    seed: int = 0
    base: bool = False  # whether a base was measured, to which the first canary was likely anyway
    measure: "MeasureSettings | None" = None  # None: with so few draws that it takes no time


def context(**changes: Any) -> ContextRecord:
    """In which rows a result scored: the assistant's turn of a chat, or what the changes say."""
    values: dict[str, Any] = {
        "source": "manifest",
        "form": "messages",
        "turn": "assistant",
        "loss": "assistant",
        "left": "<|user|>\nPlease go on.<|end|>\n<|assistant|>\n",
        "left_tokens": 24,
        "right_tokens": 4,
        "unscored_tokens": 0,
        "template_sha256": "a" * 64,
    }
    return ContextRecord(**values | changes)


def assumed() -> ContextRecord:
    """Rows of which nothing is known."""
    plain = {"form": "text", "turn": "plain", "loss": "all", "left": "\n", "left_tokens": 1}
    return context(source="assumed", right_tokens=0, template_sha256=None, **plain)


def small_result(**made_of: Any) -> Result:
    """A result of `Small(**made_of)`."""
    return _made(Small(**made_of))[2]


def small_manifest(**made_of: Any) -> Manifest:
    """The manifest that the result of the same make was measured from."""
    return _made(Small(**made_of))[0]


def with_files(result: Result, **parts: Any) -> Result:
    """The result as if this lay next to it: `manifest`, `record`, `look` and so on."""
    return _beside(result, result.model_copy(), **parts)


def with_result(run: Result, **parts: Any) -> Result:
    """A result with other parts, next to what lies next to it."""
    return _beside(run, run.model_copy(update=parts))


def _beside(run: Result, made: Result, **parts: Any) -> Result:
    made.__dict__ |= {"files": replace(run.files, result=made, **parts), "_home": run.home}
    return made


def small_run(path: Path, *, whole: bool = True, **made_of: Any) -> Path:
    """All files but corpus and model, of `lmexposure run` if `whole`, else of `measure`."""
    from lmexposure.audit.format_scores import write_scores

    small = Small(**made_of)
    manifest, scores, result = _made(small)
    path.mkdir(parents=True, exist_ok=True)
    write_scores(path / "scores.parquet", list(scores))
    with_scores_of(path, result)
    if whole:
        manifest.write(path / "manifest.json")
        _record(small).write(path / "run.json")
        rows = "".join(json.dumps(row) + "\n" for row in _metrics())
        (path / "metrics.jsonl").write_text(rows, encoding="utf-8")
    return path


def renamed(result: Result, name: str, new: str) -> Result:
    """The result with a format of another name, such as one that no plan would take."""
    text = json.dumps(result.to_dict()).replace(name, json.dumps(new)[1:-1])
    values = json.loads(text)
    values[CONTENT] = sha256_bytes(canonical_json(values))
    return Result.parse(json.dumps(values).encode(), Path("result.json"))


def hostile_run(path: Path, name: str = HOSTILE, **made_of: Any) -> Path:
    """What `lmexposure measure` would leave if a format could have this name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    small_run(path, whole=False, **made_of)
    old = Small(**made_of).formats[0]
    table = pq.read_table(path / "scores.parquet").to_pydict()
    for column in ("id", "format"):
        table[column] = [cell.replace(old, name) for cell in table[column]]
    pq.write_table(pa.table(table), path / "scores.parquet")
    with_scores_of(path, renamed(small_result(**made_of), old, name))
    return path


def with_scores_of(run: Path, result: Result) -> Result:
    """The result as it is written beside a scores.parquet, whose hash it has."""
    made = result.model_copy(update={"scores_sha256": sha256_file(run / "scores.parquet")})
    made.write(run / "result.json")
    return made


def secret_texts(manifest: Manifest) -> set[str]:
    """What no output may hold unasked: each secret, each whole fill, each index of four digits."""
    found = set()
    for one in manifest.entries:
        fills = manifest.hidden_formats[one.format].fills(one.index)
        found |= {*fills, one.text, str(one.index)}
    return {text for text in found if len(text) > 3}


@cache
def _made(small: Small) -> tuple[Manifest, tuple["FormatScores", ...], Result]:
    from lmexposure.audit.estimates import estimate_format
    from lmexposure.audit.format_scores import scores_of
    from lmexposure.audit.privacy import privacy_section

    manifest = _manifest(small)
    scores = tuple(_scores(small, manifest, name) for name in manifest.formats)
    settings = _measure(small)
    found = [
        estimate_format(one, _search(one, small), _extractions(one, small), settings, origin="")
        for one in scores
    ]
    beside: list[Any] = [one.base for one in found] if small.base else []
    base = BaseModelRecord(
        path="before",
        weights_sha256="3" * 64,
        switched_off=False,
        canaries=tuple(canary for part in beside for canary in part.canaries),
        classes=tuple(row for part in beside for row in part.classes),
    )
    result = _result(
        manifest_sha256=manifest.sha256,
        settings=settings,
        formats=[one.record for one in found],
        canaries=[canary for one in found for canary in one.canaries],
        summary=[row for one in found for row in one.summary],
        privacy=privacy_section(scores_of(scores), manifest, settings) if small.privacy else None,
        warnings=[line for one in found for line in one.warnings],
        base=base if small.base else None,
    )
    return manifest, scores, result


def _measure(small: Small) -> "MeasureSettings":
    from lmexposure.audit import MeasureSettings

    measure = small.measure or MeasureSettings(bootstraps=39, permutations=999, revealed=2)
    measure = replace(measure, claimed_epsilon=small.claimed_epsilon)
    return replace(measure, extraction=small.extraction)


def _manifest(small: Small) -> Manifest:
    plan = Plan(
        formats=tuple(Format(name=n, template=TEMPLATES[n]) for n in small.formats),
        canaries=small.canaries,
        repetitions=small.repetitions,
        controls=small.controls,
        seed=small.seed,
        inclusion_probability=small.inclusion_probability,
        inclusion_seed=None if small.inclusion_probability is None else small.seed + 1,
    )
    return insert(sentences(max(200, *small.repetitions)), plan).manifest


def _scores(small: Small, manifest: Manifest, name: str) -> "FormatScores":
    from lmexposure.audit.format_scores import FormatScores
    from lmexposure.scoring import Beginning

    drawn = [c for c in manifest.entries if c.format == name]
    shown = tuple(c for c in drawn if c.role in ("canary", "control"))
    held_out = tuple(c for c in drawn if c not in shown)
    references = min(small.references, manifest.references_left(name))
    count = len(drawn) + references
    place = list(manifest.formats).index(name)
    bits = np.random.default_rng([small.seed, place]).normal(CENTRE, SPREAD, count)
    saved = np.random.default_rng([small.seed, place, 1]).gamma(2.0, 1.0, count)
    bits[0] -= 50.0 * small.base
    base = bits + saved  # of the base, which never saw a canary
    less = dict(small.memorised)
    bits[: len(shown)] -= [less.get(c.repetitions, 0.0) * (c.role == "canary") for c in shown]
    bits = np.maximum(bits, SHARED + 0.5)
    return FormatScores(
        format=manifest.formats[name],
        canaries=shown,
        held_out=held_out,
        bits=bits,
        tokens=np.full(count, 30),
        secret_bits=bits - SHARED,
        beginning=Beginning(ids=[1, 2, 3], characters=12, scored=True),
        first_unscored=False,
        population=len(held_out) + manifest.references_left(name),
        exhaustive=references == manifest.references_left(name),
        set_aside=0,
        base_bits=base if small.base else None,
    )


def _places(scores: "FormatScores") -> list[int]:
    """Where each would stand among all fills, if all of them lay on the bell curve."""
    shares = ndtr((scores.canary_bits - CENTRE) / SPREAD)
    return [1 + int(share * scores.format.size) for share in shares.tolist()]


def _search(scores: "FormatScores", small: Small) -> "FormatSearch":
    from lmexposure.audit.search import FormatSearch

    if not small.extraction:
        return FormatSearch(estimates=tuple({} for _ in scores.canaries))
    size, guesses = scores.format.size, min(_measure(small).guesses, scores.format.size)
    places = [place if place <= guesses else None for place in _places(scores)]
    return FormatSearch(
        estimates=tuple(
            {} if p is None else {"exact": _exact(p, scores.format.bits)} for p in places
        ),
        guesses=tuple(searched(guesses, place=place, size=size) for place in places),
        record=Search(
            tokens=TokenProof(rule="windows", counted=size, looked_up=100),
            shared_tokens=3,
            margin=Margin(bits=1e-3, measured=1e-6, sample=100, empirical=False),
            budget_steps=100_000,
            draws=None,
            draw_steps=None,
            walk_steps=2_000,
            most_live=100,
            guesses_proven=guesses,
            guess_steps=10_352,
        ),
    )


def _exact(place: int, bits: float) -> Estimate:
    return estimate(
        "exact",
        bits - float(np.log2(place)),
        rank=place,
        place=place,
        steps=2_000,
        assumptions=("every fill of the randomness space was counted once",),
    )


def _extractions(scores: "FormatScores", small: Small) -> "Extractions":
    if not small.extraction:
        return {}
    pairs = zip(scores.canaries, _places(scores), strict=True)
    return {one.id: _extraction(scores, one, place, small) for one, place in pairs}


def _extraction(
    scores: "FormatScores", canary: Canary, place: int, small: Small
) -> list[Extraction]:
    revealed = _measure(small).revealed if canary.role == "canary" else 0
    rows: list[Extraction] = []
    for given in range(revealed + 1):
        left = scores.format.fills_left(canary.index, given)
        among = 1 + place * left // scores.format.size
        rows += [
            searched(
                width,
                place=among if among <= width else None,
                size=left,
                method="greedy" if width == 1 else "beam",
                revealed=given,
                steps=9 * width,
                proven=None,
            )
            for width in (1, 100)
        ]
    return rows


def _record(small: Small) -> RunRecord:
    from lmexposure.audit import RunSettings

    settings = RunSettings(
        formats=small.formats,
        canaries=small.canaries,
        inclusion_probability=small.inclusion_probability,
        repetitions=small.repetitions,
        controls=small.controls,
        seed=small.seed,
        training={"epochs": 3},
        measure=_measure(small),
    )
    return RunRecord(
        lmexposure="0.1.0",
        git_revision=None,
        python="3.11.7",
        platform="Linux",
        versions={"torch": "2.13.0", "numpy": "2.4.6"},
        command="run",
        corpus=None,
        settings=settings.resolved(),
        measure=settings.measure,
        seconds={"insert": 0.1, "train": 3.0, "measure": 1.0},
        measured=None,
        device="cpu",
        training=None,
    )


def _metrics() -> list[dict[str, Any]]:
    losses = [(None, 6.5), (3.5, 2.5), (2.0, 1.5), (1.2, 1.6)]
    return [
        {
            "step": 10 * epoch,
            "epoch": float(epoch),
            "train_bits_per_token": train,
            "validation_bits_per_token": validation,
            "tokens": 4_000 * epoch,
            "seconds": 1.0 * epoch,
        }
        for epoch, (train, validation) in enumerate(losses)
    ]


def trained_record(model_files: Mapping[str, str]) -> dict[str, Any]:
    """What training.json holds, but for its hash, of a training that left these files."""
    trained = {"model_path": "model", "validation_bits": 1.0, "initial_validation_bits": 2.0}
    trained |= {"best_step": 1, "steps": 1, "tokens": 9, "processes": 1, "threads": 1}
    trained |= {"best_epoch": 1.0, "epochs": 1.0, "seconds": 1.0, "stopped": "epochs"}
    return {
        "schema": "lmexposure.training/1",
        "inputs_sha256": "a" * 64,
        "model_files": dict(model_files),
        "result": trained | {"reused": False},
    }
