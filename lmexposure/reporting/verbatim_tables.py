"""Tables of memorised text: what comes out, how easily, where, and against which control."""

from collections import Counter
from collections.abc import Iterator, Sequence

from lmexposure._style import (
    MISSING,
    count,
    interval,
    number,
    percent,
    probability,
    short,
    short_hash,
    whole,
)
from lmexposure._text import visible
from lmexposure.reporting.data import Section
from lmexposure.studies import (
    FreeExtraction,
    GroupTest,
    RunTest,
    VerbatimDocument,
    VerbatimRecord,
    VerbatimWindows,
)

_APART = 0.05  # p of a blind classifier from which on a shift is told
_ROWS = 50  # documents in a table
_FEW = 10  # on a terminal, or beside canaries
_BESIDE = 5  # documents that are listed though the model does not give them back
_REFERENCE, _UNHELD, _SHARE = "reference run", "not held out", "false share"
_SORTS = {
    "memorised": "memorised",
    "reproduced": "reproduced, which no control explains",
    "explained": "that a control explains",
}
_COLUMNS = (
    "document",
    "verdict",
    "longest run",
    "starts at",
    "prompt",
    "copies",
    "greedy windows",
    "tries",
    _REFERENCE,
    _UNHELD,
    _SHARE,
)


def verbatim_sections(record: VerbatimRecord, *, most: int = _ROWS) -> list[Section]:
    """The tables, in the order of a reader's questions."""
    sections = [_groups(record), _documents(record, most), _curve(record)]
    if record.near:
        sections.append(_near(record))
    if record.free is not None:
        sections.append(_free(record.free))
    return sections


def verbatim_on_terminal(record: VerbatimRecord) -> Sequence[Section]:
    """The sections of a terminal: fewer documents."""
    return verbatim_sections(record, most=_FEW)


def memorised_section(record: VerbatimRecord | None) -> Section | None:
    """What a run's report says of memorised text; None where none was looked for."""
    if record is None:
        return None
    documents = _documents(record, _FEW)
    return Section(
        title="Memorised text",
        columns=documents.columns,
        rows=documents.rows,
        words=documents.words,
        notes=(verbatim_finding(record), *documents.notes, *_notes(record)),
    )


def verbatim_finding(record: VerbatimRecord) -> str:
    """What the look says, in a line."""
    given = [row for row in record.rows if row.verdict != "no"]
    looked = count(record.corpus.documents, "document")
    if not given:
        run = record.longest_run
        return (
            f"no window of {looked} comes out; the longest run that greedy decoding gives is "
            f"{count(run, 'character')}"
        )
    worst = max(given, key=_run_length)
    told = (
        f"the model reproduces text of {len(given):,} of {looked}; the longest run is "
        f"{run_words(worst)}"
    )
    if not record.controlled:
        return f"{told}; without a control it is not known whether any model would"
    sorts = Counter[str](row.verdict for row in given)
    parts = [f"{sorts[verdict]:,} {words}" for verdict, words in _SORTS.items() if sorts[verdict]]
    return f"{told}; {', '.join(parts)}"


def verbatim_origin(record: VerbatimRecord) -> str:
    """What was looked at, and when."""
    return (
        f"{visible(record.model.name)}, {whole(record.model.parameters)} parameters; "
        f"{whole(record.documents)} documents of {whole(record.characters)} characters "
        f"({short_hash(record.corpus_sha256)}); lmexposure {record.lmexposure}, {record.measured}"
    )


def _run_length(row: VerbatimDocument) -> int:
    return 0 if row.run is None else row.run.characters


def run_words(row: VerbatimDocument) -> str:
    """How long the run of a document is, and how often the corpus has it."""
    if row.run is None:
        return f"of document {row.number}, without a greedy run"
    copies = f", which the corpus has {row.copies:,} times" if row.copies > 1 else ""
    return f"{count(row.run.characters, 'character')} of document {row.number}{copies}"


def _groups(record: VerbatimRecord) -> Section:
    """The corpus beside its controls."""
    tries = record.rule.tries
    groups = {
        "the corpus": record.corpus,
        "the same, reference model": record.of_reference,
        "held-out documents": record.held_out,
    }
    return Section(
        title="What comes out, and what any model would say",
        columns=(
            "asked for",
            "documents",
            "windows",
            "greedy",
            f"in {short(tries)} tries",
            "interval",
            "longest run",
            "bits a character",
        ),
        rows=tuple(
            _group_row(name, group, tries) for name, group in groups.items() if group is not None
        ),
        notes=tuple(_notes(record)),
    )


def _group_row(name: str, group: VerbatimWindows, tries: int) -> tuple[str, ...]:
    share = next(row for row in group.curve if row.tries == tries)
    return (
        name,
        whole(group.documents),
        f"{group.windows:,} of {group.among:,}",
        percent(group.greedy / max(1, group.windows)),
        percent(share.share),
        f"{percent(share.low)} to {percent(share.high)}" if share.low < share.high else "all",
        whole(group.longest_run),
        number(group.bits_per_character, 2),
    )


def _notes(record: VerbatimRecord) -> Iterator[str]:
    rule = record.rule
    top = "all tokens" if rule.top_k is None else f"the {rule.top_k} likeliest tokens"
    yield (
        f"a window: {rule.prefix_tokens} tokens of a document as the prompt, and the "
        f"{rule.suffix_tokens} that follow; greedy: decoding gives them all"
    )
    yield (
        f"in {short(rule.tries)} tries: at least one gives the whole suffix with chance "
        f"{number(rule.chance, 2)}; sampled at temperature {short(rule.temperature)} from {top}"
    )
    yield (
        "longest run: characters that greedy decoding gives in a row; bits a character under the "
        "model itself, lower = less surprised"
    )
    if record.runs is not None:
        yield _test_words(record.runs)
    if record.group is not None:
        yield _group_words(record.group, record.level)


def _test_words(test: RunTest) -> str:
    if test.p is None:
        return "documents against held-out ones: none is comparable in length"
    return (
        f"documents against held-out ones: p {probability(test.p)} that runs of "
        f"{count(test.documents, 'document')} are longer than those of {test.held_out:,} by chance "
        f"alone (many somewhat longer: {probability(test.p_rank_sum)}, some longer than most: "
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
    apart = ""
    if group.blind_p is not None and group.blind_p <= _APART:
        apart = (
            "; a classifier that never asks the model tells them apart as well (AUC "
            f"{number(group.blind_auc, 2)})"
        )
    return f"{told}; memory only if {group.assumes}{apart}"


def _documents(record: VerbatimRecord, most: int) -> Section:
    """Worst first: all that the model gives back, and some of the rest to compare them with."""
    told = [row for row in record.rows if row.run is not None]
    given = sum(row.verdict != "no" for row in told)
    rows = told[: max(given + _BESIDE, 1)][:most]
    columns: tuple[str, ...] = _COLUMNS
    if record.reference is None:
        columns = tuple(head for head in columns if head != _REFERENCE)
    if record.held_out is None:
        columns = tuple(head for head in columns if head != _UNHELD)
    if record.runs is None:
        columns = tuple(head for head in columns if head != _SHARE)
    notes = [
        "starts at: the first character of the run in its document, from 0; prompt: tokens of the "
        "document that the model was given in front",
        "tries: for the easiest window of the document",
    ]
    if record.held_out is not None:
        notes.append("not held out: characters of a run that no held-out document has as well")
    if record.runs is not None:
        notes.append(
            "false share: of the documents up to this number, at most this share is false on "
            f"average; memorised: at most {percent(record.runs.named_at)}"
        )
    if left := record.corpus.documents - len(rows):
        notes.append(f"{count(left, 'further document')} with shorter runs: see report.csv")
    cells = [dict(zip(_COLUMNS, _document_row(row), strict=True)) for row in rows]
    return Section(
        title="Documents, worst first",
        columns=columns,
        rows=tuple(tuple(row[head] for head in columns) for row in cells),
        words=2,
        notes=tuple(notes),
    )


def _document_row(row: VerbatimDocument) -> tuple[str, ...]:
    run = row.run
    assert run is not None, "only documents with a run are listed"
    return (
        str(row.number),
        row.verdict,
        whole(run.characters) + ("" if run.whole else " or more"),
        whole(run.start),
        whole(run.prompt),
        whole(run.copies or row.copies),
        f"{row.greedy} of {row.windows}",
        MISSING if row.least_tries is None else short(row.least_tries),
        MISSING if run.reference is None else whole(run.reference),
        MISSING if row.unheld is None else whole(row.unheld),
        probability(row.false_share),
    )


def _curve(record: VerbatimRecord) -> Section:
    groups = {
        "the corpus": record.corpus,
        "reference model": record.of_reference,
        "held out": record.held_out,
    }
    there = {name: group for name, group in groups.items() if group is not None}
    return Section(
        title="How many tries it takes",
        columns=("tries", *there),
        rows=tuple(
            (short(row.tries), *(percent(group.curve[k].share) for group in there.values()))
            for k, row in enumerate(record.corpus.curve)
        ),
        words=0,
        notes=("share of the windows whose suffix comes out within this many tries",),
    )


def _near(record: VerbatimRecord) -> Section:
    rule = record.rule
    return Section(
        title=f"Within {count(rule.distance, 'edit')}",
        columns=("document", "starts at", "word for word", "at least", "at most", "known to"),
        rows=tuple(
            (
                str(row.document),
                whole(row.start),
                probability(row.exact),
                probability(row.low),
                probability(row.high),
                number(1 - row.open_mass, 2),
            )
            for row in record.near
        ),
        words=0,
        notes=(
            f"chance that one sample is within {count(rule.distance, 'edit')} of the suffix "
            f"({rule.metric} distance in tokens), at {percent(record.level)}; known to: the "
            "probability whose fate a beam has settled, the rest is sampled",
        ),
    )


def _free(free: FreeExtraction) -> Section:
    return Section(
        title="Found by sampling, without a known beginning",
        columns=("longest match", "document", "starts at", "samples", "copies")
        if free.passages
        else (),
        rows=tuple(
            (
                whole(row.characters),
                str(row.document),
                whole(row.start),
                whole(row.samples),
                whole(row.copies),
            )
            for row in free.passages[:_ROWS]
        ),
        words=0,
        notes=(
            f"{count(free.with_match, 'sample')} of {free.samples:,} hold a passage of at least "
            f"{free.least_match} characters of the corpus; near duplicates count as one",
            *_left(free),
        ),
    )


def _left(free: FreeExtraction) -> Iterator[str]:
    """What sampling has not found yet."""
    if not free.passages:
        yield "nothing was found, so that nothing can be said of what more samples would find"
        return
    yield (
        f"at least {number(free.unseen, 1)} more passages would come out of further samples "
        f"({interval(free.unseen_low, free.unseen_high, 1)}, by Chao's estimate); the next "
        f"sample holds a new one with chance {probability(free.next_new)}: {free.assumes}"
    )
