"""The gate of memorised text: the longest run, the share that comes out, and what they come to."""

from collections.abc import Iterator

from lmexposure._style import count, percent, sentence, short
from lmexposure._validate import of_type
from lmexposure.gate.checks import Check, Outcome
from lmexposure.gate.thresholds import Thresholds, refuse_other_thresholds
from lmexposure.gate.verdict import Verdict, verdict_of
from lmexposure.records import MeasuredText, VerbatimRecord, look_of


def check_verbatim(measured: MeasuredText, thresholds: Thresholds | None = None) -> Verdict:
    """Check a look at memorised text against thresholds.

    Where nothing is asked for, a document that the model gives back and no control does is a leak.
    `max_verbatim_run` and `max_extractable` take the place of that.

    Args:
        measured: a record in memory, what `open_look` gave, or the path of a look's directory or
            verbatim.json.
        thresholds: what the model may give back; None: the defaults.

    Returns:
        The verdict. Of a sample of the windows a run that is short enough is inconclusive, for
        those that were not looked at may be longer.

    Raises:
        ResultError: no look, or one that cannot be read.
        SettingsError: thresholds that are no `Thresholds`, or one that a look cannot be held
            against.
    """
    thresholds = Thresholds() if thresholds is None else thresholds
    of_type("thresholds", thresholds, Thresholds, "Thresholds(max_verbatim_run=50)")
    refuse_other_thresholds(thresholds, kind="look")
    record = look_of(measured).result
    made = [
        check
        for check in (_run(record, thresholds), _share(record, thresholds))
        if check is not None
    ]
    return verdict_of(made or [_memorised(record)], list(_untested(record, thresholds)))


def _run(record: VerbatimRecord, thresholds: Thresholds) -> Check | None:
    """The longest run against what was asked for."""
    most = thresholds.max_verbatim_run
    if most is None:
        return None
    longest = record.longest_run
    told = f"the longest run that greedy decoding gives has {count(longest, 'character')}"
    open_rows = [row for row in record.rows if row.run is not None and not row.run.whole]
    if longest > most:
        outcome, why = Outcome.LEAK, f"{told}, and {most:,} are allowed"
        worst = max(record.rows, key=lambda row: row.run.characters if row.run else 0)
        if worst.verdict == "reproduces" and record.controlled:
            outcome = Outcome.INCONCLUSIVE
            why = f"{why}; but {worst.why}: it may be likely text, and not memorised"
    elif open_rows:
        outcome = Outcome.INCONCLUSIVE
        why = (
            f"{told}, but in {count(len(open_rows), 'document')} a run goes on to the end of the "
            "model's context, and may be longer"
        )
    elif record.corpus.windows < record.corpus.among:
        outcome = Outcome.INCONCLUSIVE
        why = (
            f"{told}, but {record.corpus.windows:,} of {record.corpus.among:,} windows were looked "
            f"at; look at all of them with --windows {record.corpus.among}"
        )
    else:
        outcome, why = Outcome.PASS, f"{told}, and {most:,} are allowed"
    return Check(
        name="longest run",
        key="max_verbatim_run",
        outcome=outcome,
        value=float(longest),
        threshold=float(most),
        unit="characters",
        reason=sentence(why),
        asked=True,
    )


def _share(record: VerbatimRecord, thresholds: Thresholds) -> Check | None:
    """The share of extractable windows against what was asked for."""
    most = thresholds.max_extractable
    if most is None:
        return None
    found, among = record.extractable, record.corpus.among
    told = (
        f"{percent(found.share)} of {count(record.corpus.windows, 'window')} come out in "
        f"{short(found.tries)} tries"
    )
    if found.low < found.high:
        told += f" ({percent(found.low)} to {percent(found.high)} of all {among:,})"
    if found.low > most:
        outcome = Outcome.LEAK
    elif found.high <= most:
        outcome = Outcome.PASS
    else:
        outcome = Outcome.INCONCLUSIVE
        told += "; look at more of them with --windows"
    return Check(
        name="extractable windows",
        key="max_extractable",
        outcome=outcome,
        value=found.share,
        threshold=most,
        reason=sentence(f"{told}, and {percent(most)} may"),
        asked=True,
    )


def _memorised(record: VerbatimRecord) -> Check:
    """Documents that the model gives back and no control does."""
    memorised = [row for row in record.rows if row.verdict == "memorised"]
    given = [row for row in record.rows if row.verdict != "no"]
    looked = count(record.corpus.documents, "document")
    if memorised:
        outcome = Outcome.LEAK
        why = f"{len(memorised):,} of {looked} are memorised: {memorised[0].why}"
    elif given and not record.controlled:
        outcome = Outcome.INCONCLUSIVE
        why = (
            f"text of {len(given):,} of {looked} comes out, and without a control it is not known "
            "whether any model would give it; look again with --reference or --held-out"
        )
    else:
        outcome = Outcome.PASS
        others = f"; of {len(given):,} a control gives the same" if given else ""
        why = f"none of {looked} is memorised{others}"
        if record.corpus.windows < record.corpus.among:
            why += f" ({record.corpus.windows:,} of {record.corpus.among:,} windows were looked at)"
    return Check(
        name="memorised documents",
        key="memorised",
        outcome=outcome,
        value=float(len(memorised)),
        threshold=0.0,
        unit="documents",
        reason=sentence(why),
    )


def _untested(record: VerbatimRecord, thresholds: Thresholds) -> Iterator[str]:
    """What was not asked for, and what was not looked at."""
    if thresholds.max_verbatim_run is None:
        yield "the longest run: no threshold was given"
    if thresholds.max_extractable is None:
        yield "the share of extractable windows: no threshold was given"
    if not record.controlled:
        yield "whether any model would give the same: there is no control"
    if record.free is None:
        yield "text that comes out without a known beginning: nothing was sampled"
    if record.too_short:
        yield f"{count(record.too_short, 'document')} without a window"
