"""The gate of memorised text: the longest run, the share that comes out, and what they come to."""

from collections.abc import Iterator

from lmexposure._style import count, percent, probability, sentence, short
from lmexposure._validate import of_type
from lmexposure.core import Check, Outcome, Thresholds, Verdict, verdict_of
from lmexposure.gate.thresholds import refuse_other_thresholds
from lmexposure.gate.verdict import CHECK_KINDS
from lmexposure.studies import MeasuredText, VerbatimRecord, look_of

_COVERED = 0.5  # of the documents, which have to have a window


def check_verbatim(measured: MeasuredText, thresholds: Thresholds | None = None) -> Verdict:
    """Check a look at memorised text against thresholds.

    Where nothing is asked for, a leak is that documents of the corpus come out longer than held-out
    ones, by a test at the `significance` of the thresholds, of which it has half where canaries
    are judged beside it. `max_verbatim_run` and `max_extractable` take its place. Nothing passes
    where most documents have no window, or the model is worse than guessing; without thresholds
    nothing passes where the test could not have rejected, or text comes out that no control
    explains.
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
    made = made or [_memorised(record, thresholds.significance)]
    return verdict_of(
        [*_preconditions(record), *made], list(_untested(record, thresholds)), CHECK_KINDS
    )


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
        if worst.verdict == "explained":
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
            f"{told}, but {_looked_at(record)}; look at all of them with --windows "
            f"{max(group.among for group in (record.corpus, record.held_out) if group)}"
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


def _preconditions(record: VerbatimRecord) -> Iterator[Check]:
    """What keeps anything from passing: too little was looked at, or the wrong corpus."""
    had = record.distinct - record.too_short
    enough = had >= _COVERED * record.distinct
    yield Check(
        name="documents with a window",
        key="covered",
        outcome=Outcome.PASS if enough else Outcome.INCONCLUSIVE,
        value=had / record.distinct,
        threshold=_COVERED,
        reason=sentence(
            f"{had:,} of {count(record.distinct, 'document')} have a window"
            + ("" if enough else f", and {record.too_short:,} are too short to be asked for")
        ),
    )
    if record.worse_than_guessing:
        yield Check(
            name="better than guessing",
            key="guessing",
            outcome=Outcome.INCONCLUSIVE,
            reason="The model finds this corpus more surprising than guessing would: it is hardly "
            "the corpus of this model.",
        )


def _memorised(record: VerbatimRecord, level: float) -> Check:
    """Whether documents come out longer than held-out ones."""
    test = record.runs
    outcome, why = _compared(record, level)
    memorised = sum(row.verdict == "memorised" for row in record.rows)
    if outcome is Outcome.LEAK and memorised and test is not None:
        why += f"; {count(memorised, 'document')} can be named (see `false_share` in the report)"
    return Check(
        name="documents against held-out ones",
        key="memorised",
        outcome=outcome,
        value=None if test is None else test.p,
        threshold=level,
        reason=sentence(why),
    )


def _compared(record: VerbatimRecord, level: float) -> tuple[Outcome, str]:
    """The outcome of the test, and why."""
    test, looked = record.runs, count(record.corpus.documents, "document")
    open_rows = sum(row.verdict in ("reproduced", "memorised") for row in record.rows)
    comes_out = f"; text of {open_rows:,} of {looked} comes out" if open_rows else ""
    if test is None:
        why = "no control says what any model would give"
        if record.held_out is not None:
            why = "the held-out documents are of no random split, so that chance cannot be told"
        elif record.controlled:
            why = "a reference model alone says nothing of chance"
        return Outcome.INCONCLUSIVE, f"{why}{comes_out}"
    if test.p is None:
        return Outcome.INCONCLUSIVE, f"no held-out document is comparable in length{comes_out}"
    told = (
        f"{count(test.documents, 'document')} of the corpus against {test.held_out:,} held-out "
        f"ones: p {probability(test.p)}"
    )
    if test.p <= level:
        return Outcome.LEAK, f"documents of the corpus come out longer than held-out ones ({told})"
    seen = test.seen_from(level)
    if seen is None:
        return Outcome.INCONCLUSIVE, (
            f"{told}, and with so few of them not even a corpus that comes out whole could have "
            f"p {short(level)}{comes_out}"
        )
    if 2 * test.documents < test.units:
        return Outcome.INCONCLUSIVE, (
            f"only {test.documents:,} of {count(test.units, 'document')} have a held-out document "
            f"of about their length{comes_out}"
        )
    if open_rows:
        return Outcome.INCONCLUSIVE, (
            f"text of {open_rows:,} of {looked} comes out that no held-out document explains, and "
            f"too few of them to tell it from chance ({told})"
        )
    why = (
        f"documents of the corpus do not come out longer than held-out ones ({told}); about "
        f"{count(seen, 'document')} longer than all of these would have been seen"
    )
    if record.corpus.windows < record.corpus.among:
        why += f" ({_looked_at(record)})"
    return Outcome.PASS, why


def _looked_at(record: VerbatimRecord) -> str:
    """Of a sample."""
    corpus, had = record.corpus, record.distinct - record.too_short
    return (
        f"{corpus.windows:,} of {corpus.among:,} windows, in {corpus.documents:,} of {had:,} "
        "documents, were looked at, drawn at random"
    )


def _untested(record: VerbatimRecord, thresholds: Thresholds) -> Iterator[str]:
    """What was not asked for, and what was not looked at."""
    if thresholds.max_verbatim_run is None:
        yield "the longest run: no threshold was given"
    if thresholds.max_extractable is None:
        yield "the share of extractable windows: no threshold was given"
    if thresholds.max_verbatim_run is not None or thresholds.max_extractable is not None:
        yield "documents against held-out ones: thresholds take the place of this test"
    if not record.controlled:
        yield "whether any model would give the same: there is no control"
    if record.free is None:
        yield "text that comes out without a known beginning: nothing was sampled"
    if record.too_short:
        yield f"{count(record.too_short, 'document')} without a window"
