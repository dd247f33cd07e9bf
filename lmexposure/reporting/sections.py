"""A result in words: sections of text cells, which all renderings show as they are.

Each quantity of a class has one way to be written, wherever it is shown.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from lmexposure._style import (
    CHANCE,
    LABELS,
    MISSING,
    at_least,
    bits,
    class_name,
    count,
    found_of,
    interval,
    number,
    percent,
    probability,
    whole,
)
from lmexposure.reporting.beside import white_box_section
from lmexposure.reporting.build import base_data, class_rows
from lmexposure.reporting.data import BaseData, ClassRow, FormatData, Found, Section
from lmexposure.reporting.facts import scored_in
from lmexposure.reporting.kinds import kinds_section
from lmexposure.reporting.privacy import privacy_sections
from lmexposure.reporting.promise import promise_section
from lmexposure.studies import BaseClass, CheckpointClass, FormatResult, GuessingBaseline, Result

DOUBT = "(!)"
_CELLS: dict[str, Callable[[ClassRow], str]] = {
    "repetitions": lambda row: class_name(row.role, row.repetitions),
    "n": lambda row: whole(row.n),
    "mean": lambda row: at_least(row.mean, row.mean_capped),
    "median": lambda row: at_least(row.median, row.capped),
    "interval": lambda row: interval(row.low, row.high, capped=row.high_capped),
    "exact": lambda row: f"{row.exact:,}/{row.n:,}",
    "p_value": lambda row: probability(row.p_value),
    "certificate": lambda row: number(row.certificate),
    "skew_normal": lambda row: number(row.skew_normal) + f" {DOUBT}" * row.skew_normal_doubted,
    "epsilon_point": lambda row: at_least(row.epsilon, row.capped),
    "guesses": lambda row: found_cell(row.guesses[-1] if row.guesses else None),
}
_EXPOSURE = (
    "repetitions",
    "n",
    "median",
    "interval",
    "mean",
    "p_value",
    "exact",
    "certificate",
    "skew_normal",
    "epsilon_point",
)
_BASE_CELLS: dict[str, Callable[[BaseClass], str]] = {
    "repetitions": lambda row: class_name(row.role, row.repetitions),
    "n": lambda row: whole(row.n),
    "calibrated": lambda row: at_least(row.calibrated.value, row.calibrated_capped),
    "interval": lambda row: interval(row.calibrated.low, row.calibrated.high),
    "mean": lambda row: at_least(row.calibrated_mean, row.capped > 0),
    "p_value": lambda row: probability(row.guessing_test.p_value),
    "base": lambda row: number(row.exposure.value),
    "added": lambda row: at_least(row.added, row.added_capped),
    "gained": lambda row: number(row.gained_bits),
    "reference_gained": lambda row: number(row.reference_gained_bits),
}
_BESIDE = tuple(_BASE_CELLS)
# What calibrated exposure is of where the training left nothing, among many references.
_OF_GUESSING = {
    "repetitions": "guessing",
    "calibrated": number(1.0),
    "mean": number(1 / math.log(2)),
    "base": number(1.0),
}
_OVERVIEW = ("repetitions", "n", "median", "interval", "p_value", "guesses")
# What heads of columns mean.
_HEADS = {
    "exact": "ranks counted over all of R; the others come from draws or from references",
    "p_value": "how often chance alone gives such a mean (controls: in either direction)",
    "certificate": "median of the bound proven for each canary: log2|R| - the bits of its secret",
    "skew_normal": "median by extrapolation along a curve through the references",
    "calibrated": "median by ranks of log-perplexity minus the base's: what was likely anyway does "
    "not count (Jagielski 2023)",
    "base": "median exposure before the training, by ranks among the references",
    "added": "median of exposure by such ranks minus that under the base",
    "gained": "bits, median; by so much did the training make a canary likelier",
    "epsilon_point": "an estimate, not a bound: ln 2 (median - 1) / repetitions (Jagielski 2023)",
}
# Signs in heads and cells: how the legend names them, where they are, what they mean.
_SIGNS = (
    ("≥", "≥", "at least this: more draws, references or search could show more"),
    (
        DOUBT,
        re.escape(DOUBT),
        "do not rely on it: a bad fit, not tested (--estimate skew_normal tests it), or beyond the "
        "references, where even a good fit proves nothing",
    ),
    (
        "guesses",
        r"guess(es)?$",
        "tries of the likeliest fills of all of R, in a proven order (best-first search)",
    ),
    ("known", r"known$", "characters of the secret that the search was given (greedy or beam)"),
    ("(n/m)", r"^\(", "guessing alone would find half as many or more"),
    (CHANCE, f"^{CHANCE}$", "probability that guessing without a model finds one secret"),
)


def result_sections(result: Result) -> Iterator[Section]:
    """All that a result holds: exposure and extraction of each format, then privacy."""
    shown = [section for form in result.formats for section in _format(result, form)]
    if result.trajectory:
        shown.append(trajectory_section(result.trajectory))
    yield from shown
    yield legend(shown, percent(result.settings.level))
    if result.privacy is not None:
        yield from privacy_sections(result.privacy)
    if (kinds := kinds_section(result.kinds)) is not None:
        yield kinds
    if result.context is not None:
        yield Section(title=scored_in(result.context).removesuffix("."))
    if (validation := result.model.validation) is not None:
        if (promise := promise_section(validation.claim)) is not None:
            yield promise
        if (inside := white_box_section(validation.claim, result.privacy)) is not None:
            yield inside
        if validation.has_loss:
            loss = number(validation.validation_bits, 3)
            yield Section(title=f"{LABELS['validation_bits']}: {loss} bits per token")


def _format(result: Result, form: FormatResult) -> Iterator[Section]:
    rows = class_rows(result, form)
    base = base_data(result, form.name)
    if rows:
        guessing = next(row.guessing for row in reversed(result.summary) if row.format == form.name)
        section = exposure_section(form, rows)
        yield replace(section, rows=(*section.rows, _guessing(guessing)))
        tables = (base and base_section(form, base), guesses_section(form.name, rows))
        yield from filter(None, (*tables, known_section(form.name, rows)))


def exposure_section(form: FormatResult | FormatData, rows: Sequence[ClassRow]) -> Section:
    """All that is said of the exposure of one format's classes."""
    references = count(form.references, "reference")
    among = f"all {form.references:,} others" if form.exhaustive else references
    return Section(
        title=f"Exposure in bits, {form.name}: |R| = {whole(form.space_size)} "
        f"({bits(form.bits, 1)}), {among}; higher = more memorised",
        columns=class_columns(_EXPOSURE),
        rows=tuple(class_cells(row, _EXPOSURE) for row in rows),
    )


def base_section(form: FormatResult | FormatData, base: BaseData) -> Section:
    """All that is said of one format's classes beside the base."""
    return Section(
        title=f"Calibrated exposure in bits, {form.name}: beside the base, "
        f"{count(form.references, 'reference')}; higher = more memorised",
        columns=class_columns(_BESIDE),
        rows=(
            *(tuple(_BASE_CELLS[name](row) for name in _BESIDE) for row in base.classes),
            tuple(_OF_GUESSING.get(name, "") for name in _BESIDE),
        ),
    )


def _guessing(guessing: GuessingBaseline) -> tuple[str, ...]:
    """What guessing gives, next to what was measured; the rest of the row is empty."""
    known = {
        "repetitions": "guessing",
        "mean": number(guessing.mean),
        "median": number(guessing.median),
    }
    return tuple(known.get(name, "") for name in _EXPOSURE)


def guesses_section(name: str, rows: Sequence[ClassRow]) -> Section | None:
    """Secrets of a format found with ever more guesses; None where no search was made."""
    tried = [(row, row.guesses) for row in rows]
    return _found(f"{name}, by guesses tried", tried, lambda n: count(n, "guess", "guesses"))


def known_section(name: str, rows: Sequence[ClassRow]) -> Section | None:
    """Secrets of a format found with ever more characters known; None without a search."""
    tried = [(row, row.revealed) for row in rows]
    return _found(f"{name}, by characters known", tried, lambda n: f"{n:,} known")


def _found(
    about: str, counts: Sequence[tuple[ClassRow, tuple[Found, ...]]], head: Callable[[int], str]
) -> Section | None:
    tried = [(row, {found.given: found for found in given}) for row, given in counts if given]
    given = sorted({amount for _, found in tried for amount in found})
    if not given:
        return None
    cells = [
        (*class_cells(row, ("repetitions",)), *(found_cell(found.get(n)) for n in given))
        for row, found in tried
    ]
    # The best chance that any class had.
    chances = [
        max((f[n].by_chance / f[n].of for _, f in tried if n in f and f[n].of), default=None)
        for n in given
    ]
    return Section(
        title=f"Secrets found, {about}",
        columns=(LABELS["repetitions"], *map(head, given)),
        rows=(*cells, (CHANCE, *map(probability, chances))),
    )


_TRAJECTORY = ("checkpoint", "step", "format", "repetitions", "n", "median", "interval", "exact")


def trajectory_section(rows: Sequence[CheckpointClass]) -> Section:
    """Exposure of each class under each checkpoint of a training."""
    checkpoints = len({row.checkpoint for row in rows})
    return Section(
        title=f"Exposure in bits, {count(checkpoints, 'checkpoint')}; higher = more memorised",
        columns=class_columns(_TRAJECTORY),
        rows=tuple(
            (
                row.checkpoint,
                whole(row.step),
                row.format,
                class_name("canary" if row.repetitions else "control", row.repetitions),
                whole(row.n),
                number(row.median),
                interval(row.low, row.high),
                f"{row.exact:,}/{row.n:,}",
            )
            for row in rows
        ),
    )


def overview_section(rows: Sequence[tuple[str, ClassRow]]) -> Section:
    """Classes of all formats in one table, with the most that any search was given."""
    guesses = max((found.given for _, row in rows for found in row.guesses), default=0)
    known = max((found.given for _, row in rows for found in row.revealed), default=0)
    return Section(
        title="Exposure and extraction",
        columns=(LABELS["format"], *class_columns(_OVERVIEW), LABELS["revealed"]),
        rows=tuple(
            (
                name,
                *class_cells(row, _OVERVIEW),
                found_cell(next((found for found in row.revealed if found.given == known), None)),
            )
            for name, row in rows
        ),
        notes=(
            *([f"{LABELS['guesses']}: within {guesses:,} of the likeliest fills"] * bool(guesses)),
            *([f"{LABELS['revealed']}: {count(known, 'character')}"] * bool(known)),
        ),
    )


def most_memorised(formats: Sequence[FormatData]) -> list[tuple[str, ClassRow]]:
    """Of each format the class with the highest median; controls only where there is no other."""
    return [
        (form.name, max(form.classes, key=lambda row: (row.role == "canary", row.median)))
        for form in formats
        if form.classes
    ]


def class_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The heads of these quantities of a class."""
    return tuple(LABELS[name] for name in names)


def class_cells(row: ClassRow, names: Sequence[str]) -> tuple[str, ...]:
    """These quantities of a class, as people read them."""
    return tuple(_CELLS[name](row) for name in names)


def found_cell(found: Found | None) -> str:
    """Found of searched for; missing where it was not tried."""
    return MISSING if found is None else found_of(found.found, found.of, found.by_chance)


def legend(sections: Sequence[Section], level: str) -> Section:
    """What heads and signs mean; only those that these sections have."""
    heads = {head for section in sections for head in section.columns}
    shown = [*heads, *(cell for section in sections for row in section.rows for cell in row)]
    meant = {"interval": f"of the median, at {level}"} | _HEADS
    lines = [
        f"{LABELS[name]}: {meaning}" for name, meaning in meant.items() if LABELS[name] in heads
    ]
    lines += [
        f"{sign}: {meaning}"
        for sign, pattern, meaning in _SIGNS
        if any(re.search(pattern, text) for text in shown)
    ]
    return Section(title="How to read these tables", notes=tuple(lines))
