"""The gate of memorised text: the longest run, the share that comes out, and what they come to."""

from collections.abc import Iterator, Mapping

from lmexposure._style import count, percent, probability, sentence, short
from lmexposure.core import Check, CheckKind, Outcome, Thresholds
from lmexposure.studies.verbatim_record import VerbatimNumbers

_COVERED = 0.5  # of the documents, which have to have a window
VERBATIM_CHECKS: Mapping[str, CheckKind] = {
    "max_verbatim_run": CheckKind(
        help="The longest text of the corpus that greedy decoding gives word for word, in "
        "characters, prompted with what is in front of it in its document.",
        remedy="Look at all windows (--windows), name a control (--reference, --held-out), or "
        "use a model that reads more at once.",
        said_leak="above the limit",
        said_pass="not above the limit",
    ),
    "max_extractable": CheckKind(
        help="The share of windows of the corpus whose suffix comes out within the tries, held "
        "against the limit by its interval: at the level of the look, whatever --significance.",
        remedy="Look at more windows (--windows), so that the share is known more closely.",
        said_leak="above the limit",
        said_pass="not above the limit",
    ),
    "memorised": CheckKind(
        help="Whether documents of the corpus come out longer than held-out ones of a random "
        "split: many of them somewhat longer, or a few of them far longer.",
        remedy="Name held-out documents of a random split, and more of them (--held-out FILE "
        "--random-split): likely text is not memorised text.",
        low_is_worse=True,
        said_leak="they come out longer",
        said_pass="no longer than by chance",
    ),
    "covered": CheckKind(
        help="Whether enough of the corpus was looked at: a document that is shorter than a "
        "window has none.",
        remedy="Look again with shorter windows (--prefix-tokens, --suffix-tokens), or with a "
        "--layout of longer documents.",
        precondition=True,
    ),
    "guessing": CheckKind(
        help="Whether the model knows the language of the corpus at all: one that finds it "
        "more surprising than equally likely tokens cannot be asked for it.",
        remedy="Name the corpus that the model was trained on, in its encoding and with its "
        "tokenizer.",
        precondition=True,
    ),
}


def verbatim_checks(record: VerbatimNumbers, limits: Thresholds) -> Iterator[Check | str]:
    """What may come out; where nothing is asked for, whether it comes out longer than chance.

    Nothing passes where most documents have no window, or the model is worse than guessing;
    without thresholds nothing passes where the test could not have rejected, or text comes out
    that no control explains. Half of the significance is the test's where canaries are judged
    beside it.
    """
    yield from _preconditions(record)
    asked = limits.max_verbatim_run is not None or limits.max_extractable is not None
    if limits.max_verbatim_run is not None:
        yield _longest_check(record, limits.max_verbatim_run)
    if limits.max_extractable is not None:
        yield _share_check(record, limits.max_extractable)
    if not asked:
        yield _memorised(record, limits.significance)
    if limits.max_verbatim_run is None:
        yield "the longest run: no threshold was given"
    if limits.max_extractable is None:
        yield "the share of extractable windows: no threshold was given"
    if asked:
        yield "documents against held-out ones: thresholds take the place of this test"
    if not record.controlled:
        yield "whether any model would give the same: there is no control"
    if record.free is None:
        yield "text that comes out without a known beginning: nothing was sampled"
    if record.too_short:
        yield f"{count(record.too_short, 'document')} without a window"


def _longest_check(record: VerbatimNumbers, most: int) -> Check:
    """The longest run against what was asked for."""
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
    )


def _share_check(record: VerbatimNumbers, most: float) -> Check:
    """The share of extractable windows against what was asked for."""
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
    )


def _preconditions(record: VerbatimNumbers) -> Iterator[Check]:
    """What keeps anything from passing: too little was looked at, or the wrong corpus."""
    had = record.distinct - record.too_short
    enough, looked = had >= _COVERED * record.distinct, record.corpus.windows > 0
    yield Check(
        name="documents with a window",
        key="covered",
        outcome=Outcome.PASS if enough and looked else Outcome.INCONCLUSIVE,
        value=had / record.distinct,
        threshold=_COVERED,
        reason=sentence(
            f"{had:,} of {count(record.distinct, 'document')} have a window"
            + ("" if enough else f", and {record.too_short:,} are too short to be asked for")
            + ("" if looked else ", and no window was looked at")
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


def _memorised(record: VerbatimNumbers, level: float) -> Check:
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


def _compared(record: VerbatimNumbers, level: float) -> tuple[Outcome, str]:
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
        f"{count(seen, 'document')} longer than all of these would have been seen in "
        "19 of 20 looks"
    )
    if record.corpus.windows < record.corpus.among:
        why += f" ({_looked_at(record)})"
    return Outcome.PASS, why


def _looked_at(record: VerbatimNumbers) -> str:
    """Of a sample."""
    corpus, had = record.corpus, record.distinct - record.too_short
    return (
        f"{corpus.windows:,} of {corpus.among:,} windows, in {corpus.documents:,} of {had:,} "
        "documents, were looked at, drawn at random"
    )
