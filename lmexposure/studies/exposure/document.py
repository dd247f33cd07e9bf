"""What a result tells, from exposure to the command that measures it again; what its words mean."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lmexposure._style import LABELS, at_least, bits, number, short, times, visible, whole
from lmexposure.core import Column, Document, Place, Section, Table
from lmexposure.studies.exposure.facts import (
    command_of,
    model_facts,
    scored_in,
    setting_facts,
    where_of,
)
from lmexposure.studies.exposure.files import RunFiles
from lmexposure.studies.exposure.rows import (
    CURVES,
    CanaryRow,
    FormatData,
    chosen_rows,
    format_data,
    secrets_of,
)
from lmexposure.studies.exposure.tables import (
    OVERVIEW_TITLE,
    base_table,
    base_title,
    bounds_legend,
    bounds_overview,
    canary_table,
    class_sections,
    class_table,
    class_title,
    conditions,
    controls_table,
    found_tables,
    how_to_read,
    inside_section,
    kinds_section,
    most_memorised,
    overview,
    primary_words,
    promise_section,
    quantile_table,
    tested_table,
    trajectory_table,
)

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart
    from lmexposure.studies.exposure.charts import RunCharts


_PAGE: frozenset[Place] = frozenset({"html"})
_READ: frozenset[Place] = frozenset({"md", "html"})
_TYPED: frozenset[Place] = frozenset({"terminal"})
_SHOWN: frozenset[Place] = frozenset({"terminal", "html"})
_NOTED: frozenset[Place] = frozenset({"md"})
_ONE_SCREEN = 12  # rows; of more, those of the most memorised class of each format are shown
# Of canaries in the page's table: beyond it the page would pass 2 MB, and browsers get slow.
_MOST_ROWS = 3000
_EXPOSURE = (
    "Exposure says by how many bits the model shortens the search for a secret that was hidden in "
    "its training text; higher = more memorised. Each bit halves the guesses. Secrets that a model "
    "never saw have a median of 1 bit, and 95 % of them stay below 4.3 bits, by chance alone. A "
    "canary at the extraction line is likelier to the model than every other possible secret."
)
_MEANING = (
    "Made-up secrets stand for real text of their kind: what is known of them, the model would "
    "know of real ones that were repeated as often. Each bit of exposure halves the guesses that "
    "an attacker needs; guessing alone has 1 bit."
)
_REFERENCES = (
    "References are secrets of the same format that the model never saw. Canaries to the left of "
    "them, at fewer bits, are canaries that the model knows. The curve is a skew-normal fit, and "
    "no exposure shown rests on it: where it fits badly, its numbers mean little, and a good fit "
    "among the references does not vouch for the tail beyond them."
)
_EXTRACTION = (
    "What an attacker finds who has the model and knows the format. Guesses: the likeliest secrets "
    "are tried in a proven order. Known characters: the attacker knows the beginning of the secret "
    "already."
)
_PRIVACY = (
    "Lower bounds on epsilon of one document, in nats; higher = less private. They hold together "
    "at significance {level}: with probability {rest} or more, none lies above the truth, each "
    "under its own conditions. A low bound does not show that a training is private; it may only "
    "show that this attack was weak."
)
_ROC = (
    "Both axes are logarithmic, since the left end is what counts: how many canaries are found "
    "while few other texts are taken for canaries. In the shaded part there are too few texts to "
    "say anything."
)
_TRAINING = (
    "A model that did not learn can leak nothing, so low exposure means something only where the "
    "validation loss came down."
)
_ELSEWHERE = "The training is not on record: the model was trained elsewhere."
_CHECKPOINTS = (
    "The same canaries under each checkpoint of the training; all else here is of the last one."
)
_CONTROLS = (
    "Controls are canaries that were drawn like the others and never inserted. Their exposure "
    "should look like guessing: mean 1.44 bits, median 1 bit. Where it does not, the measurement "
    "is at fault, and no other number here can be trusted."
)
_CANARIES = (
    "Guesses: how many secrets an attacker tries until the right one is found, knowing the format "
    "alone. Revealed: the fewest characters of the secret that must be known for a search to find "
    "the rest. Rank: 1 + the secrets never inserted that are at least as likely."
)


def document_of(run: RunFiles, *, show_secrets: bool = False) -> Document:
    """All that a result and what lies next to it tell; secrets take a manifest."""
    made = _Made(run, show_secrets=show_secrets)
    result = run.result
    return Document(
        title=run.name,
        kind="Leakage report",
        question="Does it leak?",
        finding=made.finding(),
        sections=list(made.sections()),
        main=made.canaries[0],
        meaning=_MEANING,
        warnings=run.warnings,
        sources=SOURCES,
        glossary=GLOSSARY,
        origin=result.provenance.line,
        tested=None if result.kinds or not made.rows else partial(tested_table, made.rows),
    )


class _Made:
    """The sections of one run, in the order of a reader's questions."""

    def __init__(self, run: RunFiles, *, show_secrets: bool) -> None:
        self.run, self.result, self.show_secrets = run, run.result, show_secrets
        self.formats = [format_data(run.result, f, run.manifest) for f in run.result.formats]
        self.rows = [row for form in self.formats for row in form.classes]
        self.level = run.result.settings.level
        secrets = secrets_of(run.manifest) if show_secrets and run.manifest is not None else None
        every = [canary for form in self.formats for canary in form.canaries]
        every += chosen_rows(run.result.kinds)
        self.canaries = canary_table(every, _most_exposed(every), secrets)
        self._charts: RunCharts | None = None

    def drawn(self, name: str, *of: FormatData | int) -> "Callable[[], Chart | None]":
        """A chart that is drawn when it is wanted; all of them share their colours."""

        def draw() -> "Chart | None":
            from lmexposure.studies.exposure.charts import RunCharts  # brings matplotlib

            if self._charts is None:
                self._charts = RunCharts(self.run, self.formats)
            chart: Chart | None = getattr(self._charts, name)(*of)
            return chart

        return draw

    def finding(self) -> str:
        """How much the most exposed class is, in a line."""
        inserted = [row for row in self.rows if row.role == "canary"]
        if not inserted:
            return "no canaries were measured"
        most = max(inserted, key=lambda row: row.median.value)
        median = at_least(most.median.value, most.median_capped)
        return (
            f"the most exposed class is {visible(most.format)}, inserted "
            f"{times(most.repetitions)}: a median of {median} bits of "
            f"{number(most.form.bits, 1)}, where guessing has 1"
        )

    def sections(self) -> Iterator[Section]:
        yield self._exposure()
        if self.formats:
            yield self._references()
            yield self._extraction()
        if self.result.trajectory:
            yield self._trajectory()
        yield from self._privacy()
        learned = self.result.model.validation
        claim = None if learned is None else learned.claim
        if claim is not None:
            yield promise_section(claim)
            inside = inside_section(claim, self.result.privacy)
            if inside is not None:
                yield replace(inside, chart=self.drawn("inside"))
        if self.result.kinds:
            yield kinds_section(self.result.kinds)
        if self.run.look is not None:
            yield replace(self.run.look.beside_canaries(), on=_READ)
        yield self._training()
        yield self._each_canary()
        yield self._settings()

    def _exposure(self) -> Section:
        """An overview for who reads, and every table of every format."""
        of_formats = list(self._of_formats())
        tables = [part.table for part in of_formats if part.table is not None]
        few = len(self.rows) <= _ONE_SCREEN
        table, notes = overview(self.rows if few else most_memorised(self.formats))
        sizes = sorted({data.form.bits for data in self.formats})
        whole_secret = " to ".join(bits(size, 1) for size in {*sizes[:1], *sizes[-1:]})
        parts = []
        if self.rows:
            parts.append(
                Section(
                    id="glance",
                    title="Each class" if few else "Most memorised",
                    caption="Exposure in bits, higher = more memorised; guessing has a median of "
                    f"1 bit, the whole secret has {whole_secret}",
                    table=table,
                    notes=(*how_to_read([table], self.level), *notes),
                    on=_NOTED if few and len(self.formats) < 2 else _READ,
                )
            )
        parts += of_formats
        if not few:
            title, table = f"All {len(self.rows)} classes", overview(self.rows)[0]
            every = Section(id="every-class", title=title, table=table, folded=True, on=_NOTED)
            parts.append(every)
        if tables:
            notes, title = how_to_read(tables, self.level), "How to read these tables"
            parts.append(Section(id="how-to-read", title=title, notes=notes, on=_SHOWN))
        context = self.result.context
        said = [] if context is None else [scored_in(context)]
        said += [] if self.rows else ["No canaries were measured."]
        # Of a single format each canary is the first chart.
        chart = self.drawn("classes") if len(self.formats) > 1 else None
        return Section(
            id="exposure", title="Exposure", text=_EXPOSURE, said=said, chart=chart, parts=parts
        )

    def _of_formats(self) -> Iterator[Section]:
        """The classes of each format, and the same beside the base."""
        for place, data in enumerate(self.formats, 1):
            if data.classes:
                guessing = next(r for r in self.result.summary[::-1] if r.format == data.form.name)
                yield Section(
                    id=f"exposure-{place}",
                    title=class_title(data.form),
                    said=() if data.pattern is None else (data.pattern,),
                    table=class_table(data.classes, guessing.guessing),
                    chart=self.drawn("exposure", data),
                    on=_SHOWN,
                )
            if data.beside_base:
                yield Section(
                    id=f"base-{place}",
                    title=base_title(data.form),
                    table=base_table(data.beside_base),
                    chart=self.drawn("calibrated", data),
                )

    def _references(self) -> Section:
        parts = []
        for place, data in enumerate(self.formats, 1):
            name = data.form.name
            numbers = Section(
                id=f"distribution-{place}",
                title=f"{name}: the distribution in numbers",
                caption=f"Log-perplexity of the references of {name}, in bits; lower = less "
                "surprised",
                table=quantile_table(data.form),
                folded=True,
            )
            chart, own = self.drawn("references", data), f"references-{place}"
            parts.append(Section(id=own, title=name, chart=chart, parts=[numbers]))
        return Section(
            id="references",
            title="References",
            text=_REFERENCES,
            parts=parts,
            folded=True,
            on=_PAGE,
        )

    def _extraction(self) -> Section:
        parts: list[Section] = []
        tables: list[Table] = []
        for place, data in enumerate(self.formats, 1):
            name, chart = data.form.name, self.drawn("extraction", data)
            made = found_tables(data.classes)
            tables += made.values()
            for number_of, (how, table) in enumerate(made.items(), 1):
                parts.append(
                    Section(
                        id=f"extraction-{place}-{number_of}",
                        title=f"Secrets found, {name}, {how}",
                        chart=chart if number_of == 1 else None,
                        table=table,
                    )
                )
            if not made:
                said = [f"Extraction was not tried for {name}, so nothing is said of it."]
                own, title = f"extraction-{place}", f"Secrets found, {name}"
                parts.append(Section(id=own, title=title, said=said, on=_PAGE))
        return Section(
            id="extraction",
            title="Extraction",
            text=_EXTRACTION,
            parts=parts,
            notes=how_to_read(tables, self.level) if tables else (),
            on=_SHOWN,
        )

    def _trajectory(self) -> Section:
        title, table = trajectory_table(self.result.trajectory)
        return Section(
            id="trajectory",
            title="Checkpoints",
            text=_CHECKPOINTS,
            chart=self.drawn("trajectory"),
            parts=[Section(id="trajectory-rows", title=title, table=table, folded=True)],
        )

    def _privacy(self) -> Iterator[Section]:
        """The bound to quote everywhere; every bound for a terminal, and folded on a page."""
        privacy = self.result.privacy
        title, notes = primary_words(privacy)
        if privacy is None:
            roc = list(self._roc())
            yield Section(
                id="privacy", title="Privacy", said=(title,), parts=roc, folded=True, on=_READ
            )
            return
        legend, single = bounds_legend(privacy), list(class_sections(privacy))
        table, reasons = bounds_overview(privacy)
        level, rest = short(privacy.significance), short(1 - privacy.significance)
        parts = [replace(part, on=_TYPED) for part in single]
        parts += [
            Section(
                id="classes",
                title=OVERVIEW_TITLE,
                chart=self.drawn("epsilon"),
                table=table,
                notes=(*legend, *reasons),
                on=_PAGE,
            ),
            *(
                replace(
                    section,
                    id=f"all-{section.id}",
                    notes=(*section.notes, *conditions(part)),
                    folded=True,
                    on=_PAGE,
                )
                for section, part in zip(single, privacy.classes, strict=True)
                if part.bounds is not None
            ),
            Section(id="bounds-legend", title="How to read these bounds", notes=legend, on=_TYPED),
            *self._roc(),
        ]
        text, said = _PRIVACY.format(level=level, rest=rest), [title]
        yield Section(
            id="privacy",
            title="Privacy",
            text=text,
            said=said,
            notes=notes,
            parts=parts,
            folded=True,
        )

    def _roc(self) -> Iterator[Section]:
        """As many charts as the classes take, where their scores are known."""
        if not self.result.has_scores:
            return
        privacy = self.result.privacy
        pooled = privacy is not None and privacy.inclusion_probability is not None
        classes = {
            ("" if pooled else row.format, row.repetitions)
            for row in self.result.summary
            if row.role == "canary"
        }
        for place in range(math.ceil(len(classes) / CURVES)):
            yield Section(
                id=f"roc-{place + 1}",
                title="Telling members from others",
                text=_ROC,
                chart=self.drawn("roc", place),
                on=_PAGE,
            )

    def _training(self) -> Section:
        """Whether it learned, and whether what it never saw looks like chance."""
        learned, curve = self.result.model.validation, self.run.curve
        said = []
        if learned is not None and learned.has_loss:
            loss = number(learned.validation_bits, 3)
            said.append(f"{LABELS['validation_bits']}: {loss} bits per token")
        numbers = Section(
            id="curve",
            title="The curves in numbers",
            caption="Loss in bits per token; lower = better predicted",
            table=Table(curve, _CURVE),
            folded=True,
            on=_PAGE,
        )
        controls = Section(
            id="controls",
            title="Controls against expectation",
            text=_CONTROLS,
            caption="Exposure of the controls in bits",
            table=controls_table(self.formats),
            on=_PAGE,
        )
        parts = [numbers, controls] if curve else [controls]
        for place, data in enumerate(self.formats, 1):
            if any(canary.role == "control" for canary in data.canaries):
                name, chart = data.form.name, self.drawn("controls", data)
                parts.append(Section(id=f"controls-{place}", title=name, chart=chart, on=_PAGE))
        return Section(
            id="training",
            title="Training and controls",
            text=_TRAINING if curve else _ELSEWHERE,
            said=said,
            chart=self.drawn("training"),
            parts=parts,
            folded=True,
            on=_SHOWN if said else _PAGE,
        )

    def _each_canary(self) -> Section:
        every, shown = self.canaries
        left_out = len(every.rows) - len(shown.rows)
        alarm = (
            f"{whole(left_out)} more canaries are not in this table: it holds the "
            f"{whole(len(shown.rows))} that are most exposed or lack an exposure. The CSV file "
            "holds all."
        )
        secrets = "" if self.show_secrets else " Secrets are left out."
        return Section(
            id="canaries",
            title="All canaries",
            text=_CANARIES + secrets,
            said=[alarm] if left_out else [],
            caption="Every canary and control" + ", with its secret" * self.show_secrets,
            table=shown,
            folded=True,
            searched=True,
            on=_READ if self.show_secrets else _PAGE,
        )

    def _settings(self) -> Section:
        """What was measured and chosen, and the command that does it again."""
        model = model_facts(self.run)
        facts = setting_facts(self.run, show_seeds=self.show_secrets)
        titles = {
            "model": (f"The model: {visible(self.result.model_name)}", model),
            "all-settings": (f"All settings, seeds and versions ({len(facts)})", facts),
        }
        parts = [
            Section(id=name, title=title, table=Table(rows, _FACTS), folded=True, on=_PAGE)
            for name, (title, rows) in titles.items()
        ]
        said, code = "The command that gave this result is not on record.", ""
        known = self.result.home is not None
        if known:
            said = f"This command gives the same numbers again. {where_of(self.run)}"
            code = command_of(self.run, show_seeds=self.show_secrets)
        return Section(
            id="settings",
            title="Settings, and how to do it again",
            said=[said],
            code=code,
            parts=parts,
            folded=True,
            on=_READ if known else _PAGE,
        )


_NAMES = {"setting": "name", "value": "value", "meaning": "meaning"}
_FACTS = [Column(head=head, value=name, words=True) for head, name in _NAMES.items()]
_CURVE = (
    Column(head="epoch", value="epoch", shown=number),
    Column(head="step", value="step", shown=whole),
    Column(head="training", value="train_bits", shown=lambda loss: number(loss, 3)),
    Column(head="validation", value="validation_bits", shown=lambda loss: number(loss, 3)),
)


def _most_exposed(rows: Sequence[CanaryRow]) -> list[CanaryRow]:
    """The most exposed first, as many as find room, then those without an exposure."""
    missing = [row for row in rows if row.exposure is None]
    known = [row for row in rows if row.exposure is not None]
    known.sort(key=lambda row: -(row.exposure or 0.0))
    return known[: max(0, _MOST_ROWS - len(missing))] + missing


GLOSSARY = (
    (
        "format",
        "A text with holes, such as “The random number is 9 digits”. Its possible secrets are all "
        "ways to fill them.",
    ),
    (
        "secret, canary",
        "A secret is what goes into the holes, drawn at random. A canary is the format filled with "
        "a secret, put into the training text on purpose: where the model gives it away, it gives "
        "away other text of its kind [1].",
    ),
    ("class", "Canaries of one format that were inserted equally often."),
    ("repetitions", "How often a canary was put into the training text."),
    (
        "control",
        "A canary drawn like the others and never inserted. Controls show what chance alone gives "
        "in this measurement.",
    ),
    ("reference", "A secret of the same format, never inserted, that canaries are compared with."),
    (
        "log-perplexity",
        "−log2 of the probability that the model gives to the whole text, in bits, summed over its "
        "tokens. Lower = less surprised = more memorised [1].",
    ),
    (
        "rank",
        "1 + the number of secrets, never inserted, that the model finds at least as likely as the "
        "canary. Rank 1 is the likeliest.",
    ),
    (
        "exposure",
        "log2 of the number of possible secrets − log2 of the rank, in bits [1]. Higher = more "
        "memorised. A secret that was never seen has 1 bit in the median and 1.44 in the mean [2].",
    ),
    (
        "extraction",
        "Finding the secret from the model alone, given the format and perhaps its first "
        "characters.",
    ),
    (
        "epsilon, delta",
        "The strength of a differential-privacy guarantee, epsilon in nats. Small epsilon: the "
        "model is nearly the same with or without any one document. A lower bound says how much "
        "the training gave away at least [3].",
    ),
    (
        "any private training",
        "A bound that holds for every private training, from one trained model, because a coin of "
        "its own decided whether each canary was inserted [3] [4].",
    ),
    (
        "independent scores",
        "A bound that holds if the scores of canaries are independent and differ only by insertion "
        "[2]. Weaker than one for any private training: the data cannot prove the condition.",
    ),
    (
        "Gaussian noise",
        "A bound that holds only if the training hides a document as Gaussian noise does.",
    ),
    ("a prior", "A credible bound: it rests on a prior, and is no confidence bound [5]."),
    (
        "ROC, AUC, TPR, FPR",
        "How well members are distinguished from others: the true-positive rate (members found) "
        "against the false-positive rate (others taken for members), and the area under that "
        "curve. What counts is the left end, where few others are taken for members [6].",
    ),
)
SOURCES = (
    (
        "Carlini, Liu, Erlingsson, Kos, Song 2019, The Secret Sharer: Evaluating and Testing "
        "Unintended Memorization in Neural Networks",
        "https://arxiv.org/abs/1802.08232",
    ),
    ("Jagielski 2023, A Note On Interpreting Canary Exposure", "https://arxiv.org/abs/2306.00133"),
    (
        "Steinke, Nasr, Jagielski 2023, Privacy Auditing with One (1) Training Run",
        "https://arxiv.org/abs/2305.08846",
    ),
    (
        "Mahloujifar, Melis, Chaudhuri 2024, Auditing f-Differential Privacy in One Run",
        "https://arxiv.org/abs/2410.22235",
    ),
    (
        "Zanella-Béguelin and others 2022, Bayesian Estimation of Differential Privacy",
        "https://arxiv.org/abs/2206.05199",
    ),
    (
        "Carlini, Chien, Nasr, Song, Terzis, Tramèr 2022, Membership Inference Attacks From First "
        "Principles",
        "https://arxiv.org/abs/2112.03570",
    ),
)
