"""verbatim.json: which text of a corpus a model gives back, how easily, and against what control.

No text is in it: places and lengths alone. What came out is in passages.json, for its owner.
"""

from pathlib import Path
from typing import ClassVar, Literal, Self

from lmexposure._files import read_bytes
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
    Utc,
)
from lmexposure.errors import ResultError


class VerbatimRule(Record):
    """How windows were asked for.

    Attributes:
        prefix_tokens: of a prompt.
        suffix_tokens: that are to follow.
        stride: tokens between two windows of a document.
        temperature, top_k, top_p: of sampling; top_k None: all tokens.
        tries: n of "extractable".
        chance: p of it.
        distance: edits of a near match, in tokens.
        metric: how they are counted.
    """

    prefix_tokens: Positive
    suffix_tokens: Positive
    stride: Positive
    temperature: NotNegative
    top_k: Positive | None
    top_p: Share
    tries: Positive
    chance: Rate
    distance: Count
    metric: Literal["levenshtein", "hamming"]


class VerbatimModel(Record):
    """A model that was asked.

    Attributes:
        name: path or hub name.
        weights_sha256: of its weights.
        parameters: how many numbers it has.
    """

    name: str
    weights_sha256: Sha256
    parameters: Positive


class ExtractableShare(Record):
    """Which share of the windows comes out within some tries.

    Attributes:
        tries: n.
        windows: whose suffix at least one of n tries gives with the chance of the rule.
        share: of all that were looked at.
        low, high: interval of that share of all windows there are; equal where all were looked at.
    """

    tries: Positive
    windows: Count
    share: Share
    low: Share
    high: Share


class VerbatimWindows(Record):
    """All windows of a group of documents under one model.

    Attributes:
        windows: that were looked at.
        among: that there are.
        documents: that have one of the windows looked at.
        greedy: windows whose whole suffix greedy decoding gives.
        curve: by tries, ascending.
        bits_per_character: of suffixes under the model itself, mean over documents.
        longest_run: characters of the longest run that greedy decoding gives.
    """

    windows: Count
    among: Count
    documents: Count
    greedy: Count
    curve: Rows[ExtractableShare]
    bits_per_character: NotNegative | None
    longest_run: Count


class VerbatimRun(Record):
    """The longest run of a document that greedy decoding gives behind a prompt from it.

    Attributes:
        characters, tokens: of the run.
        start: its first character, from 0, in the document.
        prompt: tokens of the document in front of it that the model was given.
        whole: it ends where the model departs from the text, or where the document ends; False: at
            the end of the model's context.
        reference: characters of it that the reference model gives behind the same text; None: there
            is none.
        copies: documents that hold the run, itself among them; None: it was not looked up.
    """

    characters: Positive
    tokens: Positive
    start: Count
    prompt: Count
    whole: bool
    reference: Count | None
    copies: Positive | None


class VerbatimDocument(Record):
    """One document.

    Attributes:
        number: from 1, in the order of the corpus; of several copies the first.
        copies: documents of the corpus with this very text.
        characters: of it.
        windows: that were looked at.
        greedy: of these, whose whole suffix greedy decoding gives.
        extractable: of these, within `tries` of the rule.
        least_tries: of the easiest window; None where no window can come out.
        run: the longest; None where not even one token was.
        verdict: "no": no window comes out, and no greedy run is as long as a suffix; "explained":
            one does, and a control gives as much; "memorised": no control does, and the held-out
            documents are enough to name it (see `RunTest.named_at`); "reproduced": the rest.
        why: of the verdict, in words.
        unheld: characters of a run that no held-out document has; None without these.
        p: share of held-out documents with as long a run of their own, this one among them; None
            without a random split, and of a near copy of another document.
        false_share: of documents with at most this number, a share of at most that is named
            falsely, on average; 1 where a control explains it; None where p is None.
    """

    number: Positive
    copies: Positive
    characters: Positive
    windows: Positive
    greedy: Count
    extractable: Count
    least_tries: NotNegative | None
    run: VerbatimRun | None
    verdict: Literal["memorised", "reproduced", "explained", "no"]
    why: str
    unheld: Count | None
    p: Share | None
    false_share: Share | None


class NearWindow(Record):
    """The chance of a text within some edits of a window's suffix.

    Attributes:
        document: its number.
        start: first character of the suffix in it.
        exact: chance of the suffix itself.
        low, high: ends of the chance within the edits.
        open_mass: of which the beam did not know.
        draws: that closed it.
    """

    document: Positive
    start: Count
    exact: Share
    low: Share
    high: Share
    open_mass: Share
    draws: Count


class FoundPassage(Record):
    """A passage of the corpus that came out of free sampling, near duplicates folded into one.

    Attributes:
        samples: that hold it.
        characters: of the longest match.
        document: where it is first.
        start: its first character in that document.
        copies: documents that hold it.
    """

    samples: Positive
    characters: Positive
    document: Positive
    start: Count
    copies: Positive


class FreeExtraction(Record):
    """What sampling without a known beginning brought out.

    Attributes:
        samples: texts.
        tokens: of each.
        characters: of them all.
        least_match: characters of the shortest match that counts.
        with_match: samples that hold one.
        longest: characters.
        passages: longest first.
        unseen: passages that more sampling would find at least, an estimate.
        unseen_low, unseen_high: its interval.
        next_new: chance that one more sample holds a new passage.
        assumes: of the estimate.
    """

    samples: Positive
    tokens: Positive
    characters: Count
    least_match: Positive
    with_match: Count
    longest: Count
    passages: Rows[FoundPassage]
    unseen: NotNegative
    unseen_low: NotNegative | None
    unseen_high: NotNegative | None
    next_new: Share
    assumes: str


class SeenFrom(Record):
    """What a test would have said of some documents that come out longer than all others.

    Attributes:
        documents: how many of the corpus.
        p: that they would give or less, in about 19 of 20 looks.
    """

    documents: Positive
    p: Share


class RunTest(Record):
    """Whether documents of the corpus come out longer than held-out ones, of a random split.

    Attributes:
        p: of three tests together, paid for all; None where nothing can be compared.
        p_rank_sum: of many documents with somewhat longer runs.
        p_tail: of some with longer ones than most.
        p_mean: of a few with far longer ones.
        documents, held_out: of the corpus and of the rest, with a document of about their length on
            the other side.
        units: documents of the corpus that are no near copies.
        near_copies: documents of both groups that count with another one.
        seen: the p of some documents that come out longer than all others, ascending.
        named_at: the most that `VerbatimDocument.false_share` may be of one called memorised.
    """

    p: Share | None
    p_rank_sum: Share | None
    p_tail: Share | None
    p_mean: Share | None
    documents: Count
    held_out: Count
    units: Count
    near_copies: Count
    seen: Rows[SeenFrom]
    named_at: Rate

    def seen_from(self, level: float) -> int | None:
        """Documents from which on the test rejects; None: it cannot.

        Args:
            level: of the test.
        """
        return next((row.documents for row in self.seen if row.p <= level), None)


class GroupTest(Record):
    """Whether the model is less surprised by the corpus than by the held-out documents.

    Attributes:
        p: one-sided, by shuffling; None without a random split.
        members, held_out: documents, near copies left out.
        bits_members, bits_held_out: bits a character, means over documents.
        difference: the first less the second, below 0 = the model knows the corpus better; beside a
            reference model less its own difference.
        low, high: interval of the difference; None of a single document.
        beside_reference: the reference model's difference is taken off.
        assumes: what it takes to read the difference as memory.
        blind_auc, blind_p: of telling the groups apart without the model, and how often shuffling
            them does as well; None where it was not tried.
    """

    p: Share | None
    members: Positive
    held_out: Positive
    bits_members: NotNegative
    bits_held_out: NotNegative
    difference: Number
    low: Number | None
    high: Number | None
    beside_reference: bool
    assumes: str
    blind_auc: Share | None
    blind_p: Share | None


class VerbatimRecord(FileRecord):
    """Which text of a corpus a model gives back.

    Attributes:
        model: that was asked.
        reference: that never saw the corpus, asked for the same text; None: none was given.
        corpus_sha256: of the documents' texts.
        documents: of the corpus.
        distinct: different ones of those that were asked for.
        too_short: of these, that have no window.
        characters: of all documents.
        rule: how windows were asked for.
        level: of intervals.
        corpus: of the model on the corpus.
        of_reference: of the reference model on the same windows.
        held_out: of the model on documents that it did not see.
        rows: the documents, at most 1,000: what comes out by how easily, then by longest runs.
        near: windows within some edits, by their lower ends.
        free: of sampling; None: none was asked for.
        runs: the test of runs; None without held-out documents of a random split.
        group: how surprised the model is; None without held-out documents.
        worse_than_guessing: the model finds the corpus more surprising than equally likely tokens.
        inputs_sha256: of all that decides these numbers.
        measured: when, in UTC.
        lmexposure: the version.
        warnings: what is not as it should be.
    """

    NAME: ClassVar[str] = "verbatim.json"
    FAMILY: ClassVar[str] = "lmexposure.verbatim"
    VERSION: ClassVar[int] = 1
    ERROR = ResultError
    AGAIN: ClassVar[str] = "look again: lmexposure verbatim, with the same flags"

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a verbatim.json, or that of a look's directory.

        Raises:
            ResultError: no such file, or none that a look wrote; it says why.
        """
        path = Path(path)
        path = path / cls.NAME if path.is_dir() else path
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ResultError(f"cannot read {path}: {failure.strerror}; {cls.AGAIN}") from failure
        return cls.parse(content, path)

    model: VerbatimModel
    reference: VerbatimModel | None
    corpus_sha256: Sha256
    documents: Positive
    distinct: Positive
    too_short: Count
    characters: Positive
    rule: VerbatimRule
    level: Rate
    corpus: VerbatimWindows
    of_reference: VerbatimWindows | None
    held_out: VerbatimWindows | None
    rows: Rows[VerbatimDocument]
    near: Rows[NearWindow]
    free: FreeExtraction | None
    runs: RunTest | None
    group: GroupTest | None
    worse_than_guessing: bool
    inputs_sha256: Sha256
    measured: Utc
    lmexposure: str
    warnings: Rows[str]

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
        return next(row for row in self.corpus.curve if row.tries == self.rule.tries)


class Passage(Record):
    """What came out, beside the original: a text for its owner.

    Attributes:
        document: its number.
        prompt: the end of what the model was given.
        output: what it gave by greedy decoding.
        original: what follows in the document, as long as the output.
        matching: characters that are the same from the first on.
    """

    document: Positive
    prompt: str
    output: str
    original: str
    matching: Count


class VerbatimPassages(FileRecord):
    """passages.json: texts of the worst documents; private.

    Attributes:
        passages: worst first.
        found: texts of `FreeExtraction.passages`, in their order.
    """

    NAME: ClassVar[str] = "passages.json"
    FAMILY: ClassVar[str] = "lmexposure.passages"
    VERSION: ClassVar[int] = 1
    ERROR = ResultError
    AGAIN: ClassVar[str] = VerbatimRecord.AGAIN

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a passages.json.

        Raises:
            ResultError: no such file, or none that a look wrote; it says why.
        """
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ResultError(f"cannot read {path}: {failure.strerror}; {cls.AGAIN}") from failure
        return cls.parse(content, path)

    passages: Rows[Passage]
    found: Rows[str]
