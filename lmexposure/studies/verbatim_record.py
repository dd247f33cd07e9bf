"""Parts of verbatim.json, passages.json beside it, and the gate that holds them to thresholds."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from lmexposure._record import (
    Count,
    FileRecord,
    NotNegative,
    Number,
    Positive,
    Rate,
    Record,
    Rows,
    Sha256,
    Share,
)
from lmexposure._style import count, percent, probability, short
from lmexposure.core import (
    LIMIT,
    Check,
    CheckKind,
    Dated,
    Outcome,
    Thresholds,
    interval_outcome,
    met_outcome,
)
from lmexposure.errors import ResultError
from lmexposure.studies.settings import VerbatimSettings

AGAIN = "look again with the same settings"


class VerbatimModel(Record):
    """A model that was asked."""

    name: str  # path or hub name
    weights_sha256: Sha256  # of its weights
    parameters: Positive  # how many numbers it has


class ExtractableShare(Record):
    """Which share of the windows comes out within some tries."""

    tries: Positive  # n
    windows: Count  # whose suffix at least one of n tries gives with the chance of the rule
    share: Share  # of all that were looked at
    # low, high: interval of that share of all windows there are; equal where all were looked at
    low: Share
    high: Share


class VerbatimWindows(Record):
    """All windows of a group of documents under one model."""

    windows: Count  # that were looked at
    among: Count  # that there are
    documents: Count  # that have one of the windows looked at
    greedy: Count  # windows whose whole suffix greedy decoding gives
    curve: Rows[ExtractableShare]  # by tries, ascending
    # of suffixes under the model itself, mean over documents
    bits_per_character: NotNegative | None
    longest_run: Count  # characters of the longest run that greedy decoding gives


class VerbatimRun(Record):
    """The longest run of a document that greedy decoding gives behind a prompt from it."""

    # characters, tokens: of the run
    characters: Positive
    tokens: Positive
    start: Count  # its first character, from 0, in the document
    prompt: Count  # tokens of the document in front of it that the model was given
    # it ends where the model departs from the text, or where the document ends; False: at the end
    # of the model's context
    whole: bool
    # characters of it that the reference model gives behind the same text; None: there is none
    reference: Count | None
    # documents that hold the run, itself among them; None: it was not looked up
    copies: Positive | None


class VerbatimDocument(Record):
    """One document."""

    number: Positive  # from 1, in the order of the corpus; of several copies the first
    copies: Positive  # documents of the corpus with this very text
    characters: Positive  # of it
    windows: Positive  # that were looked at
    greedy: Count  # of these, whose whole suffix greedy decoding gives
    extractable: Count  # of these, within `tries` of the rule
    least_tries: NotNegative | None  # of the easiest window; None where no window can come out
    run: VerbatimRun | None  # the longest; None where not even one token was
    # "no": no window comes out, and no greedy run is as long as a suffix; "explained": one does,
    # and a control gives as much; "memorised": no control does, and the held-out documents are
    # enough to name it (see `RunTest.named_at`); "reproduced": the rest
    verdict: Literal["memorised", "reproduced", "explained", "no"]
    why: str  # of the verdict, in words
    unheld: Count | None  # characters of a run that no held-out document has; None without these
    # share of held-out documents with as long a run of their own, this one among them; None without
    # a random split, and of a near copy of another document
    p: Share | None
    # of documents with at most this number, a share of at most that is named falsely, on average; 1
    # where a control explains it; None where p is None
    false_share: Share | None


class NearWindow(Record):
    """The chance of a text within some edits of a window's suffix."""

    document: Positive  # its number
    start: Count  # first character of the suffix in it
    exact: Share  # chance of the suffix itself
    # low, high: ends of the chance within the edits
    low: Share
    high: Share
    open_mass: Share  # of which the beam did not know
    draws: Count  # that closed it


class FoundPassage(Record):
    """A passage of the corpus that came out of free sampling, near duplicates folded into one."""

    samples: Positive  # that hold it
    characters: Positive  # of the longest match
    document: Positive  # where it is first
    start: Count  # its first character in that document
    copies: Positive  # documents that hold it


class FreeExtraction(Record):
    """What sampling without a known beginning brought out."""

    samples: Positive  # texts
    tokens: Positive  # of each
    characters: Count  # of them all
    least_match: Positive  # characters of the shortest match that counts
    with_match: Count  # samples that hold one
    longest: Count  # characters
    passages: Rows[FoundPassage]  # longest first
    unseen: NotNegative  # passages that more sampling would find at least, an estimate
    # unseen_low, unseen_high: its interval
    unseen_low: NotNegative | None
    unseen_high: NotNegative | None
    next_new: Share  # chance that one more sample holds a new passage
    assumes: str  # of the estimate


class SeenFrom(Record):
    """What a test would have said of some documents that come out longer than all others."""

    documents: Positive  # how many of the corpus
    p: Share  # that they would give or less, in about 19 of 20 looks


class RunTest(Record):
    """Whether documents of the corpus come out longer than held-out ones, of a random split."""

    p: Share | None  # of three tests together, paid for all; None where nothing can be compared
    p_rank_sum: Share | None  # of many documents with somewhat longer runs
    p_tail: Share | None  # of some with longer ones than most
    p_mean: Share | None  # of a few with far longer ones
    # documents, held_out: of the corpus and of the rest, with a document of about their length on
    # the other side
    documents: Count
    held_out: Count
    units: Count  # documents of the corpus that are no near copies
    near_copies: Count  # documents of both groups that count with another one
    seen: Rows[SeenFrom]  # the p of some documents that come out longer than all others, ascending
    named_at: Rate  # the most that `VerbatimDocument.false_share` may be of one called memorised


class GroupTest(Record):
    """Whether the model is less surprised by the corpus than by the held-out documents."""

    p: Share | None  # one-sided, by shuffling; None without a random split
    # members, held_out: documents, near copies left out
    members: Positive
    held_out: Positive
    # bits_members, bits_held_out: bits a character, means over documents
    bits_members: NotNegative
    bits_held_out: NotNegative
    # the first less the second, below 0 = the model knows the corpus better; beside a reference
    # model less its own difference
    difference: Number
    # low, high: interval of the difference; None of a single document
    low: Number | None
    high: Number | None
    beside_reference: bool  # the reference model's difference is taken off
    assumes: str  # what it takes to read the difference as memory
    # blind_auc, blind_p: of telling the groups apart without the model, and how often shuffling
    # them does as well; None where it was not tried
    blind_auc: Share | None
    blind_p: Share | None


def within(group: VerbatimWindows, tries: int) -> ExtractableShare:
    """The share of the windows that comes out within as many tries, which were counted."""
    return next(row for row in group.curve if row.tries == tries)


class VerbatimNumbers(Dated):
    """What a look found: places and lengths, no text; `VerbatimRecord` tells it."""

    model: VerbatimModel  # that was asked
    # that never saw the corpus, asked for the same text; None: none was given
    reference: VerbatimModel | None
    corpus_sha256: Sha256  # of the documents' texts
    passages_sha256: Sha256  # of what passages.json holds
    documents: Positive  # of the corpus
    distinct: Positive  # different ones of those that were asked for
    too_short: Count  # of these, that have no window
    characters: Positive  # of all documents
    settings: VerbatimSettings  # how windows were chosen and asked for
    corpus: VerbatimWindows  # of the model on the corpus
    of_reference: VerbatimWindows | None  # of the reference model on the same windows
    held_out: VerbatimWindows | None  # of the model on documents that it did not see
    # the documents, at most 1,000: what comes out by how easily, then by longest runs
    rows: Rows[VerbatimDocument]
    near: Rows[NearWindow]  # windows within some edits, by their lower ends
    free: FreeExtraction | None  # of sampling; None: none was asked for
    runs: RunTest | None  # the test of runs; None without held-out documents of a random split
    group: GroupTest | None  # how surprised the model is; None without held-out documents
    # the model finds the corpus more surprising than equally likely tokens
    worse_than_guessing: bool
    warnings: Rows[str]  # what is not as it should be

    @property
    def hashes(self) -> dict[str, str]:
        """Of what it was made from, for whoever judges it."""
        return {"corpus_sha256": self.corpus_sha256, "weights_sha256": self.model.weights_sha256}

    @property
    def controlled(self) -> bool:
        """Whether there is a control: without one nothing explains what comes out."""
        return self.reference is not None or self.held_out is not None

    @property
    def longest_run(self) -> int:
        """Characters of the longest run that greedy decoding gives, of all documents looked at."""
        return self.corpus.longest_run

    @property
    def extractable(self) -> ExtractableShare:
        """At the rule's own number of tries."""
        return within(self.corpus, self.settings.tries)


class Passage(Record):
    """What came out, beside the original: a text for its owner."""

    document: Positive  # its number
    prompt: str  # the end of what the model was given
    output: str  # what it gave by greedy decoding
    original: str  # what follows in the document, as long as the output
    matching: Count  # characters that are the same from the first on


class VerbatimPassages(FileRecord):
    """passages.json: texts of the worst documents; private."""

    NAME: ClassVar[str] = "passages.json"
    FAMILY: ClassVar[str] = "lmexposure.passages"
    VERSION: ClassVar[int] = 1
    ERROR = ResultError
    AGAIN: ClassVar[str] = AGAIN

    passages: Rows[Passage]  # worst first
    found: Rows[str]  # texts of `FreeExtraction.passages`, in their order


_COVERED = 0.5  # of the documents, which have to have a window
VERBATIM_CHECKS: Mapping[str, CheckKind] = {
    "max_verbatim_run": replace(
        LIMIT,
        help="The longest text of the corpus that greedy decoding gives word for word, in "
        "characters, prompted with what is in front of it in its document.",
        remedy="Ask for all passages (--windows), name a control (--reference, --held-out), or "
        "use a model that reads more at once.",
    ),
    "max_extractable": replace(
        LIMIT,
        help="The share of passages of the corpus whose suffix the tries reproduce. Its interval "
        "is compared with the limit, at the level of the look, whatever --significance.",
        remedy="Ask for more passages (--windows), so that the share is known more closely.",
    ),
    "memorised": CheckKind(
        help="Whether the model reproduces longer runs of the corpus' documents than of held-out "
        "ones of a random split: of many somewhat longer ones, or of a few far longer ones.",
        remedy="Name held-out documents of a random split, and more of them (--held-out FILE "
        "--random-split): likely text is not memorised text.",
        low_is_worse=True,
        said_leak="longer runs than by chance",
        said_pass="no longer than by chance",
    ),
    "covered": CheckKind(
        help="Whether enough of the corpus was looked at: a document that is shorter than a "
        "passage cannot be asked for.",
        remedy="Look again with shorter passages (--prefix-tokens, --suffix-tokens), or with a "
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

    Nothing passes where most documents have no window, or the model is worse than guessing; without
    thresholds nothing passes where the test could not have rejected, or where no control explains
    what comes out. Beside canaries the test has half of the significance.
    """
    yield from _preconditions(record)
    run, share = limits.max_verbatim_run, limits.max_extractable
    if run is not None:
        yield _longest_check(record, run)
    if share is not None:
        yield _share_check(record, share)
    if run is None and share is None:
        yield _memorised(record, limits.significance)
    asked = run is not None or share is not None
    untested = {
        "the longest run: no threshold was given": run is None,
        "the share of extractable passages: no threshold was given": share is None,
        "documents against held-out ones: thresholds take the place of this test": asked,
        "whether any model would give the same: there is no control": not record.controlled,
        "text that is given without a known beginning: nothing was sampled": record.free is None,
        f"{count(record.too_short, 'document')}: too short": record.too_short > 0,
    }
    yield from (line for line, left_out in untested.items() if left_out)


def _longest_check(record: VerbatimNumbers, most: int) -> Check:
    """The longest run against what was asked for."""
    longest, outcome = record.longest_run, Outcome.INCONCLUSIVE
    told = f"the longest run that greedy decoding gives has {count(longest, 'character')}"
    open_rows = sum(row.run is not None and not row.run.whole for row in record.rows)
    if longest > most:
        worst = max(record.rows, key=lambda row: row.run.characters if row.run else 0)
        told += f", and {most:,} are allowed"
        if worst.verdict == "explained":
            told += f"; but {worst.why}: it may be likely text, and not memorised"
        else:
            outcome = Outcome.LEAK
    elif open_rows:
        told += (
            f", but in {count(open_rows, 'document')} a run goes on to the end of the model's "
            "context, and may be longer"
        )
    elif record.corpus.windows < record.corpus.among:
        told += (
            f", but {_looked_at(record)}; ask for all of them with --windows "
            f"{max(group.among for group in (record.corpus, record.held_out) if group)}"
        )
    else:
        outcome, told = Outcome.PASS, f"{told}, and {most:,} are allowed"
    key, name = "max_verbatim_run", "longest run"
    return Check.of(key, name, outcome, told, longest, most, unit="characters")


def _share_check(record: VerbatimNumbers, most: float) -> Check:
    """The share of extractable windows against what was asked for."""
    found, among = record.extractable, record.corpus.among
    outcome = interval_outcome(found.low, found.high, most)
    told = (
        f"{percent(found.share)} of {count(record.corpus.windows, 'passage')} are reproduced in "
        f"{short(found.tries)} tries"
    )
    if found.low < found.high:
        told += f" ({percent(found.low)} to {percent(found.high)} of all {among:,})"
    told += f", and {percent(most)} may be"
    if outcome is Outcome.INCONCLUSIVE:
        told += "; ask for more of them with --windows"
    return Check.of("max_extractable", "extractable passages", outcome, told, found.share, most)


def _preconditions(record: VerbatimNumbers) -> Iterator[Check]:
    """What keeps anything from passing: too little was looked at, or the wrong corpus."""
    had = record.distinct - record.too_short
    enough, looked = had >= _COVERED * record.distinct, record.corpus.windows > 0
    why = (
        f"{had:,} of {count(record.distinct, 'document')} are long enough to be asked for"
        f"{'' if enough else f', and {record.too_short:,} are too short'}"
        f"{'' if looked else ', and none of them was asked for'}"
    )
    name, met, share = "documents long enough", enough and looked, had / record.distinct
    yield Check.of("covered", name, met_outcome(met), why, share, _COVERED)
    if record.worse_than_guessing:
        why = (
            "the model finds this corpus more surprising than random tokens would be: it is hardly "
            "the corpus that it was trained on"
        )
        yield Check.of("guessing", "better than guessing", Outcome.INCONCLUSIVE, why)


def _memorised(record: VerbatimNumbers, level: float) -> Check:
    """Whether documents come out longer than held-out ones."""
    outcome, why = _compared(record, level)
    memorised = sum(row.verdict == "memorised" for row in record.rows)
    if outcome is Outcome.LEAK and memorised:
        why += f"; {count(memorised, 'document')} can be named (see `false_share` in the report)"
    p = None if record.runs is None else record.runs.p
    return Check.of("memorised", "documents against held-out ones", outcome, why, p, level)


def _compared(record: VerbatimNumbers, level: float) -> tuple[Outcome, str]:
    """The outcome of the test, and why."""
    test, looked = record.runs, count(record.corpus.documents, "document")
    open_rows = sum(row.verdict in ("reproduced", "memorised") for row in record.rows)
    comes_out = f"; it reproduces text of {open_rows:,} of {looked}" if open_rows else ""
    if test is None:
        why = "there is no control, so it is not known what any model would reproduce"
        if record.held_out is not None:
            why = "without a random split the held-out documents do not show what chance gives"
        elif record.controlled:
            why = "a reference model alone does not show what chance gives"
        return Outcome.INCONCLUSIVE, f"{why}{comes_out}"
    if test.p is None:
        return Outcome.INCONCLUSIVE, f"no held-out document is comparable in length{comes_out}"
    told = (
        f"{count(test.documents, 'document')} of the corpus against {test.held_out:,} held-out "
        f"ones: p {probability(test.p)}"
    )
    if test.p <= level:
        return Outcome.LEAK, (
            f"the model reproduces longer runs of the corpus than of held-out documents ({told})"
        )
    seen = next((row.documents for row in test.seen if row.p <= level), None)  # it rejects from
    if seen is None:
        return Outcome.INCONCLUSIVE, (
            f"{told}, and with so few of them not even a corpus that is reproduced whole could "
            f"have p {short(level)}{comes_out}"
        )
    if 2 * test.documents < test.units:
        return Outcome.INCONCLUSIVE, (
            f"only {test.documents:,} of {count(test.units, 'document')} have a held-out document "
            f"of about their length{comes_out}"
        )
    if open_rows:
        return Outcome.INCONCLUSIVE, (
            f"the model reproduces text of {open_rows:,} of {looked} that no held-out document "
            f"explains, too few to tell it from chance ({told})"
        )
    sample = record.corpus.windows < record.corpus.among
    return Outcome.PASS, (
        f"the model reproduces no longer runs of the corpus than of held-out documents ({told}); "
        f"about {count(seen, 'document')} with longer runs than all of these would have been "
        f"noticed in 19 of 20 looks{f' ({_looked_at(record)})' if sample else ''}"
    )


def _looked_at(record: VerbatimNumbers) -> str:
    """Of a sample."""
    corpus, had = record.corpus, record.distinct - record.too_short
    return (
        f"{corpus.windows:,} of {corpus.among:,} passages, in {corpus.documents:,} of {had:,} "
        "documents, were asked for, drawn at random"
    )
