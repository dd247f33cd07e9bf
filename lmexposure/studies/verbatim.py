"""Memorised text: which text of a corpus a model gives back, how easily, beside what control."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from lmexposure._style import count, short, short_hash, visible, whole
from lmexposure.core import (
    Check,
    CheckKind,
    Document,
    JsonValue,
    Number,
    Section,
    Study,
    Table,
    Thresholds,
)
from lmexposure.errors import ResultError, SettingsError
from lmexposure.studies.verbatim_checks import VERBATIM_CHECKS, verbatim_checks
from lmexposure.studies.verbatim_record import AGAIN, VerbatimNumbers, VerbatimPassages
from lmexposure.studies.verbatim_tables import (
    DOCUMENT_COLUMNS,
    FEW,
    documents_section,
    notes_of,
    paired_section,
    run_length,
    run_words,
    sections_of,
    text_sections,
)

_SORTS = {
    "memorised": "memorised",
    "reproduced": "reproduced, which no control explains",
    "explained": "that a control explains",
}
_SOURCES = (
    (
        "Zhang et al. 2023, Counterfactual Memorization in Neural Language Models",
        "https://arxiv.org/abs/2112.12938",
    ),
    (
        "Hayes et al. 2025, Measuring memorization in language models via probabilistic extraction",
        "https://arxiv.org/abs/2410.19482",
    ),
    ("Cooper et al. 2026, near-verbatim extraction", "https://arxiv.org/abs/2603.24917"),
    (
        "Chao 1987, Estimating the population size for capture-recapture data with unequal "
        "catchability, Biometrics 43",
        "",
    ),
    (
        "Bates et al. 2023, Testing for outliers with conformal p-values",
        "https://arxiv.org/abs/2104.08279",
    ),
)


class VerbatimRecord(VerbatimNumbers):
    """Which text of a corpus a model gives back: places and lengths, no text.

    What came out is in passages.json next to it, for its owner.
    """

    KIND: ClassVar[str] = "verbatim"
    WHAT: ClassVar[str] = "a look at memorised text"
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
        return self.model.name

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
            warnings=self.warnings,
            sources=_SOURCES,
            origin=f"{name}, {size} parameters; {whole(self.documents)} documents of "
            f"{whole(self.characters)} characters ({short_hash(self.corpus_sha256)}); lmexposure "
            f"{self.lmexposure}, {self.measured}",
            private=True,
        )

    def with_secrets(self) -> Document:
        """With what came out of the worst documents, beside the original.

        Raises:
            ResultError: the texts are not there, or not those that this look wrote.
        """
        document = self.document()
        first, *others = document.sections
        shown = text_sections(self.rows, self.passages())
        return replace(document, sections=[first, *shown, *others])

    def passages(self) -> VerbatimPassages:
        """The texts that came out, of passages.json next to it.

        Raises:
            ResultError: they are not there, or not those that this look wrote.
        """
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
                f"no window of {looked} comes out; the longest run that greedy decoding gives is "
                f"{count(self.longest_run, 'character')}"
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
        yield from verbatim_checks(self, limits)

    def numbers(self) -> Iterator[Number]:
        """The longest run, shares of windows, and what the controls say."""
        worse, share, corpus = {"worse": "high"}, self.extractable, self.corpus
        run = float(self.longest_run)
        yield Number(name="longest run", value=run, unit="characters", **worse)  # type: ignore[arg-type]
        greedy = corpus.greedy / max(1, corpus.windows)
        yield Number(name="greedy windows", value=greedy, **worse)  # type: ignore[arg-type]
        ends = {"low": share.low, "high": share.high} if share.low < share.high else {}
        name = f"windows in {short(self.rule.tries)} tries"
        yield Number(name=name, value=share.share, **ends, **worse)  # type: ignore[arg-type]
        memorised = float(sum(row.verdict == "memorised" for row in self.rows))
        yield Number(name="documents called memorised", value=memorised, **worse)  # type: ignore[arg-type]
        p = None if self.runs is None else self.runs.p
        yield Number(name="p against held-out documents", value=p, worse="low", subtracted=False)
        bits = corpus.bits_per_character
        yield Number(name="surprise", value=bits, unit="bits a character", worse="low")

    def asked(self) -> Mapping[str, JsonValue]:
        """Which model was asked, how, and beside what."""
        reference = None if self.reference is None else self.reference.name
        return {
            "model": self.model.name,
            "parameters": self.model.parameters,
            "reference": reference,
            "held-out documents": None if self.held_out is None else self.held_out.documents,
            "windows": self.corpus.windows,
            "level": self.level,
        }

    def beside(self, others: "Sequence[tuple[str, Study]]") -> Iterator[Section]:
        """The same documents under several models: which come out longer, and which shorter.

        Raises:
            SettingsError: looks at other documents, or with other windows.
        """
        looks = [(name, look) for name, look in others if isinstance(look, VerbatimRecord)]
        for name, look in looks:
            if look.corpus_sha256 != self.corpus_sha256:
                raise SettingsError(
                    f"{name} is of other documents ({short_hash(look.corpus_sha256)}) than "
                    f"{looks[0][0]} ({short_hash(self.corpus_sha256)}); compare looks at one corpus"
                )
            if look.rule != self.rule:
                raise SettingsError(
                    f"{name} asked for its windows otherwise than {looks[0][0]}; look again with "
                    "the same settings"
                )
        yield paired_section(looks)
