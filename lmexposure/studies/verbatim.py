"""Memorised text: which text of a corpus a model gives back, how easily, beside what control."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar

from lmexposure._style import (
    MISSING,
    count,
    interval,
    number,
    percent,
    probability,
    short,
    short_hash,
    visible,
    whole,
)
from lmexposure.core import (
    Check,
    CheckKind,
    Column,
    Document,
    Excerpt,
    JsonValue,
    Number,
    Section,
    Study,
    Table,
    Thresholds,
    Verdict,
    telling_name,
)
from lmexposure.errors import ResultError, SettingsError
from lmexposure.studies.settings import RULE
from lmexposure.studies.verbatim_record import (
    AGAIN,
    VERBATIM_CHECKS,
    ExtractableShare,
    FreeExtraction,
    GroupTest,
    Passage,
    RunTest,
    VerbatimDocument,
    VerbatimNumbers,
    VerbatimPassages,
    VerbatimWindows,
    verbatim_checks,
    within,
)

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart


_SORTS = {
    "memorised": "memorised",
    "reproduced": "reproduced, which no control explains",
    "explained": "that a control explains",
}
_MEANING = (
    "The model was given the beginning of a document and asked to go on. What it gives back word "
    "for word can be had by whoever may query it; text that any model would write is no leak."
)
_SOURCES = {
    "Zhang et al. 2023, "
    "Counterfactual Memorization in Neural Language Models": "https://arxiv.org/abs/2112.12938",
    "Hayes et al. 2025, Measuring memorization "
    "in language models via probabilistic extraction": "https://arxiv.org/abs/2410.19482",
    "Cooper et al. 2026, near-verbatim extraction": "https://arxiv.org/abs/2603.24917",
    "Chao 1987, Estimating the population size for capture-recapture data with unequal "
    "catchability, Biometrics 43": "",
    "Bates et al. 2023, "
    "Testing for outliers with conformal p-values": "https://arxiv.org/abs/2104.08279",
}


class VerbatimRecord(VerbatimNumbers):
    """Which text of a corpus a model gives back: places and lengths, no text.

    What came out is in passages.json next to it, for its owner.
    """

    KIND: ClassVar[str] = "verbatim"
    WHAT: ClassVar[str] = "a look at memorised text"
    FILES: ClassVar[tuple[str, ...]] = ("html", "md", "csv")
    PRIVATE: ClassVar[bool] = True
    AGAIN: ClassVar[str] = AGAIN
    LIMITS: ClassVar[frozenset[str]] = frozenset(
        {"max_verbatim_run", "max_extractable", "significance"}
    )
    CHECKS: ClassVar[Mapping[str, CheckKind]] = VERBATIM_CHECKS

    @property
    def beside_it(self) -> dict[str, str]:
        """The texts that came out."""
        return {VerbatimPassages.NAME: self.passages_sha256}

    @property
    def model_name(self) -> str:
        """Of the model that was asked."""
        size = count(self.model.parameters, "parameter")
        return f"{telling_name(self.model.name)} ({size})"

    def of_data(self) -> Mapping[str, str]:
        """How large the corpus is, and what of it was asked for."""
        size = f"{count(self.documents, 'document')}, {whole(self.characters)} characters"
        looked = count(self.corpus.documents, "document")
        return {"corpus": size, "data": f"the texts of {looked} that were looked at"}

    def sure(self, verdict: Verdict, limits: Thresholds) -> Iterator[str]:
        """What the test errs in, and what no prompt of this kind brings out."""
        if any(check.key == "memorised" for check in verdict.checks) and self.runs is not None:
            yield (
                f"False alarms: at most {percent(limits.significance)} of models that read neither "
                "group of documents are called leaking."
            )
        share = self.extractable
        if share.low < share.high:
            yield (
                f"Of all passages {percent(share.low)} to {percent(share.high)} are reproduced in "
                f"{short(share.tries)} tries ({percent(self.settings.level)} confidence)."
            )
        yield "Missed leaks: text that other prompts would bring out was not looked for."

    def document(self) -> Document:
        """The corpus beside its controls, documents from the worst, and how easily it comes out."""
        name, size = visible(self.model.name), whole(self.model.parameters)
        return Document(
            title="Memorised text",
            kind=f"Memorised text, {whole(self.documents)} documents",
            question="Does the model reproduce its documents?",
            finding=self.finding,
            sections=sections_of(self),
            main=Table(self.rows, DOCUMENT_COLUMNS),
            numbers=Table(_groups(self), _in_short(self.settings.tries)),
            meaning=_MEANING,
            warnings=self.notes,
            sources=tuple(_SOURCES.items()),
            origin=f"{name}, {size} parameters; {whole(self.documents)} documents of "
            f"{whole(self.characters)} characters ({short_hash(self.corpus_sha256)}); lmexposure "
            f"{self.lmexposure}, {self.measured}",
            private=True,
        )

    def with_secrets(self) -> Document:
        """With what came out of the worst documents, beside the original."""
        document = self.document()
        first, *others = document.sections
        shown = text_sections(self.rows, self.passages())
        return replace(document, sections=[first, *shown, *others])

    def passages(self) -> VerbatimPassages:
        """The texts that came out, of passages.json next to it, as this look wrote it."""
        if self.home is None:
            raise ResultError(
                f"the texts of a look lie in {VerbatimPassages.NAME} next to {self.NAME}; open its "
                "directory to show them"
            )
        self.refuse_strange(self.home)
        return VerbatimPassages.read(self.home / VerbatimPassages.NAME)

    @property
    def finding(self) -> str:
        """What the look says, in a line."""
        given = [row for row in self.rows if row.verdict != "no"]
        looked = count(self.corpus.documents, "document")
        if not given:
            return (
                f"no passage of {looked} is reproduced; the longest run that greedy decoding gives "
                f"is {count(self.longest_run, 'character')}"
            )
        worst = max(given, key=run_length)
        told = (
            f"the model reproduces text of {len(given):,} of {looked}; the longest run is "
            f"{run_words(worst)}"
        )
        if not self.controlled:
            return f"{told}; without a control it is not known whether any model would"
        sorts = Counter[str](row.verdict for row in given)
        parts = [
            f"{sorts[verdict]:,} {words}" for verdict, words in _SORTS.items() if sorts[verdict]
        ]
        return f"{told}; {', '.join(parts)}"

    def beside_canaries(self) -> Section:
        """What the report of a run says of it."""
        made = documents_section(self, FEW)
        notes = (self.finding, *made.notes, *notes_of(self))
        return Section(id="memorised", title="Memorised text", table=made.table, notes=notes)

    def checks(self, limits: Thresholds) -> Iterator[Check | str]:
        """See `verbatim_checks`."""
        return verbatim_checks(self, limits)

    def numbers(self) -> Iterator[Number]:
        """The longest run, shares of windows, and what the controls say."""
        share, corpus, high = self.extractable, self.corpus, partial(Number, worse="high")
        low, up = (share.low, share.high) if share.low < share.high else (None, None)
        tries, bits = short(self.settings.tries), corpus.bits_per_character
        memorised = float(sum(row.verdict == "memorised" for row in self.rows))
        p = None if self.runs is None else self.runs.p
        yield from (
            high(name="longest run", value=float(self.longest_run), unit="characters"),
            high(name="greedy passages", value=corpus.greedy / max(1, corpus.windows)),
            high(name=f"passages in {tries} tries", value=share.share, low=low, high=up),
            high(name="documents called memorised", value=memorised),
            Number(name="p against held-out documents", value=p, worse="low", subtracted=False),
            Number(name="surprise", value=bits, unit="bits a character", worse="low"),
        )

    def asked(self) -> Mapping[str, JsonValue]:
        """Which model was asked, how, and beside what."""
        reference = None if self.reference is None else self.reference.name
        return {
            "model": self.model.name,
            "parameters": self.model.parameters,
            "reference": reference,
            "held-out documents": None if self.held_out is None else self.held_out.documents,
            "windows": self.corpus.windows,
            "level": self.settings.level,
        }

    def beside(self, others: "Sequence[tuple[str, Study]]") -> Iterator[Section]:
        """The same documents under several models: which come out longer, and which shorter."""
        looks = [(name, look) for name, look in others if isinstance(look, VerbatimRecord)]
        for name, look in looks:
            if look.corpus_sha256 != self.corpus_sha256:
                raise SettingsError(
                    f"{name} is of other documents ({short_hash(look.corpus_sha256)}) than "
                    f"{looks[0][0]} ({short_hash(self.corpus_sha256)}); compare looks at one corpus"
                )
            if any(getattr(look.settings, n) != getattr(self.settings, n) for n in RULE):
                raise SettingsError(
                    f"{name} asked for passages in another way than {looks[0][0]}; look again with "
                    "the same settings"
                )
        yield paired_section(looks)


_APART = 0.05  # p of a blind classifier from which on a shift is told
_ROWS = 50  # documents in a table
FEW = 10  # on a terminal, or beside canaries
_BESIDE = 5  # documents that are listed though the model does not give them back
_DOUBT = (
    "Likely text is not memorised text: what a model that never saw a document would say as well "
    "is no memory of it. The corpus is tested as a whole against held-out documents of a random "
    "split [1]. A document is called memorised only if there are enough of these to be sure [5]; "
    "else it is called reproduced, or explained if a control gives as much."
)


def run_length(row: VerbatimDocument) -> int:
    """Characters of its longest run."""
    return 0 if row.run is None else row.run.characters


def run_words(row: VerbatimDocument) -> str:
    """How long the run of a document is, and how often the corpus has it."""
    if row.run is None:
        return f"of document {row.number}, without a greedy run"
    copies = f", which the corpus has {row.copies:,} times" if row.copies > 1 else ""
    return f"{count(row.run.characters, 'character')} of document {row.number}{copies}"


DOCUMENT_COLUMNS = (
    Column(value="number", name="document"),
    *(Column(value=name) for name in ("copies", "characters", "verdict")),
    Column(value="run.characters", name="run_characters", unit="characters", worse="high"),
    *(
        Column(value=f"run.{name}", name=key)
        for name, key in (
            ("tokens", "run_tokens"),
            ("start", "run_start"),
            ("prompt", "run_prompt_tokens"),
            ("copies", "run_copies"),
            ("reference", "reference_run"),
        )
    ),
    Column(value="windows"),
    Column(value="greedy", name="greedy_windows", worse="high"),
    Column(value="extractable", name="extractable_windows", worse="high"),
    Column(value="least_tries", worse="low"),
    Column(value="unheld", name="unheld_characters"),
    *(Column(value=name, worse="low") for name in ("p", "false_share")),
)


def sections_of(record: VerbatimNumbers) -> list[Section]:
    """The tables, in the order of a reader's questions; a terminal shows fewer documents."""
    sections = [
        Section(
            id="groups",
            title="What the model reproduces, and what any model would say",
            text=_DOUBT,
            table=Table(_groups(record), _group_columns(record.settings.tries)),
            chart=lambda: _tries_chart(record),
            notes=notes_of(record),
        ),
        replace(documents_section(record, FEW), on=frozenset({"terminal"})),
        replace(documents_section(record, _ROWS), on=frozenset({"md", "html"})),
        _curve(record),
    ]
    if record.near:
        sections.append(_near(record))
    if record.free is not None:
        sections.append(_free(record.free))
    return sections


def text_sections(rows: Sequence[VerbatimDocument], texts: VerbatimPassages) -> Iterator[Section]:
    """What came out of the worst documents, and of sampling, word for word."""
    by_number = {row.number: row for row in rows if row.verdict != "no"}
    given = [
        _excerpt(by_number[passage.document], passage)
        for passage in texts.passages
        if passage.document in by_number
    ]
    if given:
        said = (
            "Each prompt is the document up to there; what greedy decoding gives is marked as far "
            "as it is the document's own text.",
        )
        yield Section(id="passages", title="What is reproduced", said=said, excerpts=given)
    if texts.found:
        lines = [(f"{place}.", "", text) for place, text in enumerate(texts.found, start=1)]
        found = [Excerpt(title="The longest first", lines=lines)]
        yield Section(id="found", title="What was found by sampling", excerpts=found)


_Group = tuple[str, VerbatimWindows]


def _groups(record: VerbatimNumbers) -> list[_Group]:
    return [
        (name.replace("reference", "the same, reference"), group)
        for name, group in _by_tries(record).items()
    ]


def _in_short(tries: int) -> list[Column]:
    """The columns of groups that a terminal has room for."""
    asked, documents, _, greedy, some, ends, run, _ = _group_columns(tries)
    return [asked, documents, greedy, some, ends, run]


def _group_columns(tries: int) -> list[Column]:
    def share(row: _Group) -> ExtractableShare:
        return within(row[1], tries)

    def greedy(row: _Group) -> float:
        return row[1].greedy / max(1, row[1].windows)

    def ends(row: _Group) -> str:
        low, high = share(row).low, share(row).high
        return f"{percent(low)} to {percent(high)}" if low < high else "all"

    some = f"in {short(tries)} tries"
    bits, run = "bits a character", "longest run"
    return [
        Column(head="asked for", value=lambda row: row[0], words=True),
        Column(head="documents", value=lambda row: row[1].documents, shown=whole),
        Column(head="passages", value=lambda row: f"{row[1].windows:,} of {row[1].among:,}"),
        Column(head="greedy", value=greedy, shown=percent, worse="high"),
        Column(head=some, value=lambda row: share(row).share, shown=percent, worse="high"),
        Column(head="interval", value=ends),
        Column(head=run, value=lambda row: row[1].longest_run, shown=whole, worse="high"),
        Column(head=bits, value=lambda row: row[1].bits_per_character, shown=number, worse="low"),
    ]


def notes_of(record: VerbatimNumbers) -> list[str]:
    """What the heads of the groups mean, and what the controls say."""
    rule = record.settings
    top = "all tokens" if rule.top_k is None else f"the {rule.top_k} likeliest tokens"
    return [
        f"a passage: {rule.prefix_tokens} tokens of a document as the prompt, and the "
        f"{rule.suffix_tokens} that follow, its suffix; greedy: the model's first choices are all "
        "of the suffix",
        f"in {short(rule.tries)} tries: at least one gives the whole suffix with chance "
        f"{number(rule.chance, 2)}; sampled at temperature {short(rule.temperature)} from {top}",
        "longest run: characters in a row that are the model's first choices; bits a character "
        "under the model itself, lower = less surprised",
        *([] if record.runs is None else [_test_words(record.runs)]),
        *([] if record.group is None else [_group_words(record.group, record.settings.level)]),
    ]


def _test_words(test: RunTest) -> str:
    if test.p is None:
        return "documents against held-out ones: none is comparable in length"
    return (
        f"documents against held-out ones: p {probability(test.p)}, how often chance alone gives "
        f"{count(test.documents, 'document')} so much longer runs than {test.held_out:,} others "
        f"(many somewhat longer: {probability(test.p_rank_sum)}, some longer than most: "
        f"{probability(test.p_tail)}, a few far longer: {probability(test.p_mean)}); "
        f"{count(test.near_copies, 'near copy', 'near copies')} counted with others"
    )


def _group_words(group: GroupTest, level: float) -> str:
    beside = ", less what the reference model differs" if group.beside_reference else ""
    told = (
        f"{number(group.bits_members, 3)} bits a character in the corpus, "
        f"{number(group.bits_held_out, 3)} in the held-out documents; difference{beside}: "
        f"{number(group.difference, 3)} ({interval(group.low, group.high, 3)} at {percent(level)})"
    )
    if group.p is not None:
        return f"{told}, p {probability(group.p)} by shuffling documents of a random split"
    told += f"; memory only if {group.assumes}"
    if group.blind_p is None or group.blind_p > _APART:
        return told
    auc = number(group.blind_auc, 2)
    return f"{told}; a classifier that never asks the model tells them apart as well (AUC {auc})"


def documents_section(record: VerbatimNumbers, most: int) -> Section:
    """Worst first: all that the model gives back, and some of the rest to compare them with."""
    told = [row for row in record.rows if row.run is not None]
    given = sum(row.verdict != "no" for row in told)
    rows = told[: max(given + _BESIDE, 1)][:most]
    columns = [*_OF_DOCUMENTS]
    notes = [
        "starts at: the first character of the run in its document, from 0; prompt: tokens of the "
        "document that the model was given in front",
        "tries: for the easiest passage of the document",
    ]
    if record.reference is not None:
        columns.append(Column(head="reference run", value="run.reference", shown=whole))
    if record.held_out is not None:
        columns.append(Column(head="not held out", value="unheld", shown=whole))
        notes.append("not held out: characters of a run that no held-out document has as well")
    if record.runs is not None:
        columns.append(Column(head="false share", value="false_share", shown=probability))
        notes.append(
            "false share: of the documents up to this number, at most this share is false on "
            f"average; memorised: at most {percent(record.runs.named_at)}"
        )
    if left := record.corpus.documents - len(rows):
        notes.append(f"{count(left, 'further document')} with shorter runs: see report.csv")
    table = Table(rows, columns)
    return Section(id="documents", title="Documents, worst first", table=table, notes=notes)


def _run_shown(row: VerbatimDocument) -> str:
    run = row.run
    return MISSING if run is None else whole(run.characters) + ("" if run.whole else " or more")


def _copies(row: VerbatimDocument) -> int:
    return (row.run.copies if row.run else None) or row.copies


_OF_DOCUMENTS = (
    Column(head="document", value="number", words=True),
    Column(head="verdict", value="verdict", words=True),
    Column(head="longest run", value=_run_shown),
    Column(head="starts at", value="run.start", shown=whole),
    Column(head="prompt", value="run.prompt", shown=whole),
    Column(head="copies", value=_copies, shown=whole),
    Column(head="greedy passages", value=lambda row: f"{row.greedy} of {row.windows}"),
    Column(head="tries", value="least_tries", shown=short, worse="low"),
)


def _by_tries(record: VerbatimNumbers) -> dict[str, VerbatimWindows]:
    groups = {
        "the corpus": record.corpus,
        "reference model": record.of_reference,
        "held-out documents": record.held_out,
    }
    return {name: group for name, group in groups.items() if group is not None}


def _curve(record: VerbatimNumbers) -> Section:
    def share_of(group: VerbatimWindows) -> Callable[[ExtractableShare], float]:
        return lambda row: within(group, row.tries).share

    columns = [Column(head="tries", value="tries", shown=short)]
    for name, group in _by_tries(record).items():
        columns.append(Column(head=name, value=share_of(group), shown=percent))
    return Section(
        id="tries",
        title="How many tries it takes",
        table=Table(record.corpus.curve, columns),
        notes=("share of the passages whose suffix this many tries reproduce",),
        folded=True,
    )


def _near(record: VerbatimNumbers) -> Section:
    rule, edits = record.settings, count(record.settings.distance, "edit")
    return Section(
        id="near",
        title=f"Within {edits}",
        table=Table(record.near, _NEAR),
        notes=(
            f"chance that one sample is within {edits} of the suffix ({rule.metric} distance in "
            f"tokens), at {percent(rule.level)}; known to: share settled by beam search; the rest "
            "is estimated by sampling",
        ),
        folded=True,
    )


_NEAR = (
    Column(head="document", value="document"),
    Column(head="starts at", value="start", shown=whole),
    Column(head="word for word", value="exact", shown=probability),
    Column(head="at least", value="low", shown=probability),
    Column(head="at most", value="high", shown=probability),
    Column(head="known to", value=lambda row: 1 - row.open_mass, shown=2),
)


def _free(free: FreeExtraction) -> Section:
    left = "nothing was found, which says nothing of what more samples would find"
    if free.passages:
        left = (
            f"at least {number(free.unseen, 1)} more would be found by further samples "
            f"({interval(free.unseen_low, free.unseen_high, 1)}, by Chao's estimate); the next "
            f"sample holds a new one with chance {probability(free.next_new)}: {free.assumes}"
        )
    return Section(
        id="sampled",
        title="Found by sampling, without a known beginning",
        table=Table(free.passages[:_ROWS], _SAMPLED),
        notes=(
            f"{count(free.with_match, 'sample')} of {free.samples:,} hold text of the corpus, at "
            f"least {free.least_match} characters of it; near duplicates count as one",
            left,
        ),
        folded=True,
    )


_SAMPLED = (
    Column(head="longest match", value="characters", shown=whole, unit="characters", worse="high"),
    Column(head="document", value="document"),
    Column(head="starts at", value="start", shown=whole),
    Column(head="samples", value="samples", shown=whole),
    Column(head="copies", value="copies", shown=whole),
)


def _excerpt(row: VerbatimDocument, passage: Passage) -> Excerpt:
    """What was given, what came out, and what the document has."""
    same = passage.output[: passage.matching]
    output, original = (text[passage.matching :] for text in (passage.output, passage.original))
    return Excerpt(
        title=f"Document {row.number}: {run_words(row)}",
        lines=(
            ("Prompt", "", passage.prompt),
            ("Output", same, output),
            ("Original", same, original),
        ),
    )


def paired_section(looks: Sequence[tuple[str, VerbatimNumbers]]) -> Section:
    """The same documents under several models, each with its name."""
    each = [{row.number: run_length(row) for row in look.rows} for _, look in looks]
    # The shortest run that a look lists stands for one that it left out.
    least = [min(runs.values(), default=0) for runs in each]
    pairs: list[tuple[int, Sequence[int | None]]] = []  # by the largest change, against the first
    for number_of in sorted(set[int]().union(*each)):
        first, *others = (runs.get(number_of, low) for runs, low in zip(each, least, strict=True))
        change = max(abs(run - first) for run in others)
        pairs.append((-change, [number_of, *(runs.get(number_of) for runs in each)]))
    rows = [row for _, row in sorted(pairs, key=itemgetter(0))]
    lone = sum(None in row for row in rows)
    left_out = (
        f"{count(lone, 'document')} missing from a look: to find those that differ most, the "
        "shortest run that it lists is taken for theirs"
    )

    columns = [Column(head="document", value=itemgetter(0), words=True, name="number")]
    for place, (name, _) in enumerate(looks):
        run, key = itemgetter(place + 1), f"run_{place}"
        columns.append(Column(head=name, value=run, shown=whole, name=key, worse="high"))
    return Section(
        id="documents",
        title="Documents, those first that differ most",
        table=Table(rows[:_ROWS], columns),
        chart=lambda: _sizes(looks),
        notes=(
            "longest run: characters that greedy decoding gives of a document; missing where a "
            "look did not list it; single documents differ by chance as well",
            *[left_out] * bool(lone),
        ),
    )


def _tries_chart(record: VerbatimNumbers) -> "Chart | None":
    """The share of windows that comes out, against the tries it takes; None where none does."""
    from lmexposure.core.charts import lines_chart

    groups = {name: group.curve for name, group in _by_tries(record).items()}
    if not any(row.share for curve in groups.values() for row in curve):
        return None
    return lines_chart(
        name="verbatim",
        title="How easily the corpus is reproduced",
        caption=(
            "Share of the passages whose suffix at least one of the tries gives, with the chance "
            "of the rule. The higher, and the farther left, the more easily; controls show what is "
            "likely text."
        ),
        lines={name: [(row.tries, row.share) for row in curve] for name, curve in groups.items()},
        bands={name: [(row.low, row.high) for row in curve] for name, curve in groups.items()},
        axes=("Tries", "Share of passages"),
        shown=percent,
        logarithmic=True,
    )


def _sizes(looks: Sequence[tuple[str, VerbatimNumbers]]) -> "Chart":
    """The longest run of each model against its parameters."""
    from lmexposure.core.charts import clipped, lines_chart

    points = {
        f"{clipped(look.model.name.rsplit('/', 1)[-1], 20)} ({name})": [
            (look.model.parameters, look.longest_run)
        ]
        for name, look in looks
    }
    return lines_chart(
        name="verbatim-models",
        title="The longest run against the size of the model",
        caption=(
            "Characters in a row that greedy decoding gives, of the same documents. Larger models "
            "memorise more of what they read equally often."
        ),
        lines=points,
        axes=("Parameters", "Characters"),
        shown=lambda value: whole(int(value)),
        logarithmic=True,
    )
