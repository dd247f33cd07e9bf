"""A comparison of defences in words: the table at one utility, and what is not in it."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from lmexposure._files import PRIVATE
from lmexposure._style import (
    LABELS,
    MISSING,
    count,
    in_words,
    interval,
    number,
    percent,
    probability,
    sentence,
    short,
    short_hash,
    whole,
)
from lmexposure._text import printable, visible
from lmexposure.core import bullets, inline, write_files
from lmexposure.records import DefenceAttack, DefenceExposure, DefenceRow, DefencesRecord
from lmexposure.reporting.data import Section
from lmexposure.reporting.markdown import section_table
from lmexposure.reporting.write import known_in

_UNDEFENDED = "none"
_SCORES = {
    "log_perplexity": "log-perplexity",
    "secret_tokens": "tokens of the secret",
    "label_only": "greedy matches",
    "kept_tokens": "secret tokens with loss",
}
_SEARCHES = {"best_first": "in 10 guesses", "beam": "by beam search", "greedy": "greedily"}
# What of language models has no counterpart among the defences of the paper.
NO_COUNTERPART = (
    "self-supervised learning (SimCLR and MoCo in the paper) has no counterpart here: it learns "
    "features without labels, and a language model's labels are its text"
)


def defences_sections(record: DefencesRecord) -> list[Section]:
    """The table of methods at the target, those that are not, and how settings were found."""
    sections = [_table(record, ranked(record), "Defences at one utility", tuple(_notes(record)))]
    apart = [row for row in record.rows if not row.ranked]
    if apart:
        why = tuple(f"{visible(row.name)}: {row.why}" for row in apart)
        sections.append(_table(record, apart, "Not at the target, and so not ranked", why))
    if record.failed:
        sections.append(
            Section(
                title="Left out: no models were trained",
                columns=("method", "why"),
                rows=tuple((visible(name), visible(why)) for name, why in record.failed.items()),
                words=2,
            )
        )
    return [*sections, _beside(record), _attacks(record), _searches(record), _promises(record)]


def ranked(record: DefencesRecord) -> list[DefenceRow]:
    """The methods at their targets: the undefended training, then who shows least first."""
    rows = [row for row in record.rows if row.ranked and row.name != _UNDEFENDED]
    first = [row for row in record.rows if row.name == _UNDEFENDED]
    return [*first, *sorted(rows, key=lambda row: _tpr(row.strongest))]


def defences_finding(record: DefencesRecord) -> str:
    """What the comparison says, in a line: a winner only where it is told from all others."""
    undefended, *others = ranked(record)
    if not others:
        return "no defence is at the target: nothing is ranked"
    best, head = others[0], f"TPR at FPR {percent(record.fpr)}"
    if best.strongest is None or undefended.strongest is None:
        return "no attack has a number at this FPR: nothing is ranked"
    beside = f"without a defence {number(_tpr(undefended.strongest), 3)}"
    if len(alike := alike_to(best, [*others, undefended], level=record.level)) == 1:
        return (
            f"of the canaries {visible(best.name)} shows least: {head} "
            f"{number(_tpr(best.strongest), 3)}, {beside}; it is told from every other method and "
            "from none"
        )
    *names, last = [visible(row.name) for row in alike]
    shown = " and ".join(number(_tpr(row.strongest), 3) for row in (alike[0], alike[-1]))
    if undefended in alike:
        return (
            f"{', '.join(names)} and {last} cannot be told apart: no defence is shown to show "
            f"least ({head} {number(_tpr(best.strongest), 3)}, {beside})"
        )
    return (
        f"{', '.join(names)} and {last} cannot be told apart, and none of them is shown to show "
        f"least ({head} between {shown}, {beside})"
    )


def alike_to(best: DefenceRow, rows: Sequence[DefenceRow], *, level: float) -> list[DefenceRow]:
    """The method with the lowest rate, and those that are not told from it.

    A method is told from it where their intervals do not overlap, or where chance alone seldom puts
    the lowest so far below it (`DefenceRow.above_p`). At most a share of 1 - level of comparisons
    leaves out the method W that truly shows least, or names one of several that do. For that an
    interval of the lowest must end too low, or one of W begin too high; each does with half of what
    is paid for it, which with three attacks or more makes (1 - level) / 2 in all. Or the p of a
    pair must be small that is truly in the other order, or equal; of N defences that may come out
    lowest each has one such pair, paid for N times and with the other half.
    """
    end = 1.0 if best.strongest is None or best.strongest.high is None else best.strongest.high
    return [
        row
        for row in rows
        if row is best
        or not (_low(row.strongest) > end or (row.above_p is not None and row.above_p <= 1 - level))
    ]


def defences_markdown(record: DefencesRecord) -> str:
    """A comparison as Markdown, every value escaped."""
    parts = [
        "# Defences at one utility",
        f"**{inline(sentence(defences_finding(record)))}**",
        inline(defences_origin(record)),
    ]
    for section in defences_sections(record):
        parts += [f"## {inline(section.title)}", section_table(section)]
        parts += [bullets(section.notes)] if section.notes else []
    if record.warnings:
        parts += ["## Warnings", bullets(record.warnings)]
    return printable("\n\n".join(parts) + "\n")


def defences_origin(record: DefencesRecord) -> str:
    """What was compared on what, and when."""
    return (
        f"{whole(record.canaries)} canaries, {whole(record.documents)} documents of "
        f"{whole(record.characters)} characters ({short_hash(record.corpus_sha256)}); lmexposure "
        f"{record.lmexposure}, {record.measured}"
    )


def defences_csv(record: DefencesRecord) -> str:
    """A row a method (RFC 4180); numbers in full, missing ones empty."""
    stream = io.StringIO()
    rows = [_flat(row) for row in record.rows]
    table = csv.DictWriter(stream, list(rows[0]), lineterminator="\r\n")
    table.writeheader()
    table.writerows(rows)
    return stream.getvalue()


def write_defences(record: DefencesRecord, out: str | Path) -> list[Path]:
    """Write report.html, report.md and report.csv into a directory, each whole or not at all."""
    from lmexposure.reporting.defences_page import render_defences

    of = known_in(Path(out), DefencesRecord.NAME, None, record.corpus_sha256)
    files = {
        "report.html": render_defences(record).encode(),
        "report.md": defences_markdown(record).encode(),
        "report.csv": defences_csv(record).encode(),
    }
    return write_files(Path(out), files, mode=PRIVATE, of=of)


def _tpr(attack: DefenceAttack | None) -> float:
    return 1.0 if attack is None or attack.tpr is None else attack.tpr


def _low(attack: DefenceAttack | None) -> float:
    return 0.0 if attack is None or attack.low is None else attack.low


def _table(
    record: DefencesRecord, rows: Sequence[DefenceRow], title: str, notes: Sequence[str]
) -> Section:
    fpr = percent(record.fpr)
    return Section(
        title=title,
        columns=(
            "method",
            "validation loss",
            "× none",
            f"TPR at FPR {fpr}, documents",
            LABELS["interval"],
            f"TPR at FPR {fpr}, canaries",
            LABELS["interval"],
            "p, more than the lowest",
            "p, worst canary",
        ),
        rows=tuple(_cells(row) for row in rows),
        notes=tuple(notes),
    )


def _cells(row: DefenceRow) -> tuple[str, ...]:
    best = row.strongest
    return (
        visible(row.name),
        number(row.bits, 3),
        number(row.ratio, 3),
        number(row.population, 3),
        interval(row.population_low, row.population_high, 3),
        number(None if best is None else best.tpr, 3),
        MISSING if best is None else interval(best.low, best.high, 3),
        probability(row.above_p),
        probability(row.worst_p),
    )


def _beside(record: DefencesRecord) -> Section:
    """By which attack, what repeated canaries show, what is promised, and what it costs."""
    rows = [*ranked(record), *(row for row in record.rows if not row.ranked)]
    undefended = next((row.seconds for row in rows if row.name == _UNDEFENDED), 0.0)
    return Section(
        title="Strongest attack, repeated canaries, cost",
        columns=(
            "method",
            "strongest attack on canaries",
            "found",
            "exposure of repeated",
            "epsilon claimed",
            "seconds a model",
            "× none",
        ),
        rows=tuple(
            (
                visible(row.name),
                MISSING if row.strongest is None else _attack_name(row.strongest),
                MISSING if row.exposure is None else _found(row.exposure),
                number(None if row.exposure is None else row.exposure.median, 1),
                MISSING if row.epsilon is None else number(row.epsilon, 1),
                number(row.seconds, 1),
                number(row.seconds / undefended if undefended else None, 1),
            )
            for row in rows
        ),
        words=3,
        notes=tuple(_notes_beside(record)),
    )


def _attack_name(attack: DefenceAttack) -> str:
    score = _SCORES.get(attack.score, attack.score)
    return f"{visible(attack.kind)}, {score}"


def _found(exposure: DefenceExposure) -> str:
    if exposure.by is None:
        return MISSING
    return f"{exposure.found} of {exposure.canaries} {_SEARCHES[exposure.by]}"


def _notes(record: DefencesRecord) -> Iterator[str]:
    among = max((a.among for row in record.rows for a in row.attacks), default=1)
    level = percent(record.level)
    yield (
        "validation loss in bits a token, lower = more useful; × none: as a multiple of the "
        f"models without a defence; ranked are methods within {percent(record.tolerance)} of "
        "their target"
    )
    yield (
        f"canaries: the strongest of {count(among, 'attack')} on all their kinds, each by LiRA; "
        f"the intervals of all methods hold together at {level}, with models as units"
    )
    yield (
        "p, more than the lowest: how often chance alone puts the defence with the lowest TPR so "
        "far below this method, model by model on the same canaries, paid for all attacks and "
        f"defences; the two are told apart where it is at most {short(1 - record.level)}, or their "
        "intervals do not overlap; no other order is a finding"
    )
    yield (
        f"documents: ordinary ones, by LiRA on log-perplexity, at {level}: the average that hides "
        "what the canaries show"
    )


def _notes_beside(record: DefencesRecord) -> Iterator[str]:
    repeated = next((row.exposure for row in record.rows if row.exposure is not None), None)
    if repeated is not None:
        yield (
            f"exposure of repeated: median in bits of canaries that one more model has "
            f"{repeated.repetitions} times; found: without any of their characters"
        )
    if any(row.epsilon is not None for row in record.rows):
        yield (
            "epsilon claimed: at the delta of the training; where it is large it promises nothing, "
            "and the method is a defence by experience alone, as the others are"
        )


def _attacks(record: DefencesRecord) -> Section:
    """Every attack on every kind, so that the choice of the strongest can be judged."""
    return Section(
        title="All attacks on canaries",
        columns=("method", "canaries", "reads", f"TPR at FPR {percent(record.fpr)}", "interval"),
        rows=tuple(
            (
                visible(row.name),
                visible(attack.kind),
                _SCORES.get(attack.score, attack.score),
                number(attack.tpr, 3),
                interval(attack.low, attack.high, 3),
            )
            for row in record.rows
            for attack in row.attacks
        ),
        words=3,
        notes=(
            "greedy matches in several contexts answer to outputs that hide confidences, near "
            "copies to methods that protect a row by its neighbours, secret tokens with loss to "
            "masks that follow from a known hash",
        ),
    )


def _searches(record: DefencesRecord) -> Section:
    return Section(
        title="How the settings were found",
        columns=("method", "searched", "settings", "chosen", "target", "trainings", "time"),
        rows=tuple(
            (
                visible(row.name),
                row.search.knob or MISSING,
                _settings(row),
                MISSING if row.search.value is None else short(row.search.value),
                number(row.target, 3),
                "; ".join(
                    f"{MISSING if t.value is None else short(t.value)}: {number(t.ratio, 3)}"
                    for t in row.search.tries
                ),
                in_words(sum(t.seconds for t in row.search.tries)),
            )
            for row in record.rows
        ),
        words=3,
        notes=(
            "on other canaries, coins and seeds than the table has; trainings: value and loss as a "
            "multiple of that without a defence",
        ),
    )


def _settings(row: DefenceRow) -> str:
    own = (f"{n}={v}" for n, v in row.training.items() if n != row.search.knob)
    return visible(", ".join(own)) or MISSING


def _promises(record: DefencesRecord) -> Section:
    return Section(
        title="What each does, and what it does not hide",
        columns=("method", "does", "does not hide"),
        rows=tuple(
            (visible(row.name), visible(row.meaning), visible(row.promises_not))
            for row in record.rows
        ),
        words=3,
        notes=(NO_COUNTERPART,),
    )


def _flat(row: DefenceRow) -> dict[str, object]:
    best, exposure = row.strongest, row.exposure
    return {
        "method": visible(row.name),
        "ranked": row.ranked,
        "validation_bits": row.bits,
        "validation_sd": row.sd,
        "ratio": row.ratio,
        "target": row.target,
        "models": row.models,
        "population_tpr": row.population,
        "population_low": row.population_low,
        "population_high": row.population_high,
        "canary_kind": None if best is None else visible(best.kind),
        "canary_score": None if best is None else best.score,
        "canary_tpr": None if best is None else best.tpr,
        "canary_low": None if best is None else best.low,
        "canary_high": None if best is None else best.high,
        "above_p": row.above_p,
        "worst_canary": None if row.worst is None else visible(row.worst),
        "worst_p": row.worst_p,
        "exposure_bits": None if exposure is None else exposure.median,
        "found": None if exposure is None else exposure.found,
        "epsilon": row.epsilon,
        "delta": row.delta,
        "seconds": row.seconds,
    }
