"""A result: what one measurement found of a model, with what lies next to it; a run's too."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import ClassVar, Self

from lmexposure._quantiles import unseen_share
from lmexposure._record import JsonValue
from lmexposure._style import (
    class_name,
    count,
    listed,
    percent,
    sentence,
    short,
    times,
    validity,
    visible,
)
from lmexposure._validate import of_type
from lmexposure.canaries import Manifest
from lmexposure.core import (
    Check,
    CheckKind,
    Document,
    Number,
    Outcome,
    Provenance,
    Section,
    Study,
    Thresholds,
    Verdict,
    telling_name,
)
from lmexposure.errors import ResultError, SettingsError
from lmexposure.studies.exposure.check_classes import EXPOSURE_CHECKS
from lmexposure.studies.exposure.checks import exposure_checks, qualified, rows_unknown
from lmexposure.studies.exposure.facts import chosen_facts, model_facts
from lmexposure.studies.exposure.files import RunFiles, files_beside, refuse_missing
from lmexposure.studies.exposure.record import HOME, ResultNumbers
from lmexposure.studies.exposure.run_record import SEVERAL

_FILES = "files"


class Result(ResultNumbers):
    """Everything that one measurement found, and what lies next to its file."""

    WHAT: ClassVar[str] = "a run"
    LIMITS: ClassVar[frozenset[str]] = frozenset(
        {
            *("max_exposure", "median_exposure", "quantile_exposure", "max_guesses", "max_epsilon"),
            *("p_value", "significance", "max_verbatim_run", "max_extractable", "min_canaries"),
            *("repetitions", "accept_unseen_training", "accept_quick"),
        }
    )
    CHECKS: ClassVar[Mapping[str, CheckKind]] = EXPOSURE_CHECKS
    TAB: ClassVar[Sequence[str]] = (
        *("canaries", "exposure", "extraction", "formats", "model", "notes", "plot", "privacy"),
        *("save", "scores", "settings", "summary", "to_frame", "when", "with_manifest"),
    )

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a run directory, a measurement's, or a result.json with what lies next to it.

        A file of any other name is read alone: what lies next to it may belong to another result.

        Raises:
            ResultError: no result, or one that is damaged or of another version; or what lies next
                to it is, or is another result's.
            ManifestError: a manifest that cannot be read, or that it was not made from.
        """
        of_type(
            "path", path, (str, Path), "that of a run directory or of a result", error=ResultError
        )
        path = Path(path)
        refuse_missing(path, path / cls.NAME if path.is_dir() else path)
        made = super().read(path)
        if _FILES not in made.__dict__:
            made.__dict__[_FILES] = RunFiles(name=path.stem, result=made)
            del made.__dict__[HOME]
        return made

    def refuse_strange(self, home: Path) -> None:
        """Read what lies next to the file; refused where it is another's."""
        self.__dict__[_FILES] = files_beside(home, self)

    def in_memory(self) -> Self:
        """The same result, with its scores and what lies next to it in memory."""
        _ = self.scores, self.files
        return super().in_memory()

    @cached_property
    def files(self) -> RunFiles:
        """What lies next to it: manifest, run.json, curve of the training, look at its texts."""
        return RunFiles(name="result", result=self)

    def with_manifest(self, manifest: Manifest | str | Path) -> Self:
        """The same with its manifest, where that lies elsewhere.

        Raises:
            ManifestError: one that cannot be read, or is not that of this result.
        """
        known = manifest if isinstance(manifest, Manifest) else Manifest.read(manifest)
        kept = self.model_copy()
        files = self.files.with_manifest(known)
        kept.__dict__ |= {HOME: self.home, _FILES: files}
        return kept

    @property
    def when(self) -> str | None:
        """When the measuring ended, in UTC: run.json has it."""
        return None if self.files.record is None else self.files.record.measured

    @property
    def model_name(self) -> str:
        """Where it lies, or its name on a hub, and what was trained or is of its type."""
        record, path = self.files.record, self.model.path
        trained = None if record is None else record.settings
        own_type = self.model.type.removeprefix("lmexposure_")
        of = own_type if trained is None else telling_name(trained.model)
        own = self.files.whole or (self.home is not None and (self.home / path).is_dir())
        within = self.files.name if own and not PurePosixPath(path).is_absolute() else ""
        return f"{telling_name(path, within)} ({of})"

    def of_data(self) -> Mapping[str, str]:
        """What canaries went into, where that is known; their formats, and how often each was."""
        record, manifest = self.files.record, self.files.manifest
        corpus = "" if record is None or record.corpus is None else record.corpus
        names = [PurePosixPath(name).name for name in corpus.split(SEVERAL)]
        if manifest is not None:
            documents = manifest.corpus.documents
            inserted = sum(entry.inserted for entry in manifest.entries)
            share = percent(inserted / max(1, documents + inserted))
            names = [manifest.corpus.name, count(documents, "document")]
            names.append(f"{inserted:,} inserted ({share} of all)")
        classes = {(row.format, row.repetitions) for row in self.summary if row.role == "canary"}
        which = listed(sorted({visible(name) for name, _ in classes}), _MOST_NAMES)
        often = listed([times(n) for n in sorted({n for _, n in classes})])
        data = f"text like the made-up secrets of {which}, inserted {often}" if classes else ""
        return {"corpus": ", ".join(filter(None, names)), "data": data}

    @property
    def provenance(self) -> Provenance:
        """Which version measured which weights, and when."""
        return Provenance(
            lmexposure=self.lmexposure,
            measured=self.when,
            hashes={"weights_sha256": self.model.weights_sha256},
            model=self.model_name,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings of its record, and of what lies next to it."""
        return self.files.warnings

    def document(self) -> Document:
        """From exposure to the command that measures it again."""
        return self._told()

    def with_secrets(self) -> Document:
        """With each canary's secret, which the manifest holds.

        Raises:
            SettingsError: there is no manifest.
        """
        if self.files.manifest is None:
            where = "in memory" if self.home is None else f"at {self.home / self.NAME}"
            raise SettingsError(
                f"no manifest next to the result {where}, and only a manifest holds the secrets; "
                "give the manifest too, or leave the secrets out"
            )
        return self._told(show_secrets=True)

    def _told(self, *, show_secrets: bool = False) -> Document:
        from lmexposure.studies.exposure.document import document_of  # brings numpy: no check waits

        return document_of(self.files, show_secrets=show_secrets)

    def checks(self, limits: Thresholds) -> Iterator[Check | str]:
        """See `exposure_checks`."""
        yield from exposure_checks(self.files, limits)

    def qualified(self, verdict: Verdict, limits: Thresholds) -> Verdict:
        """What a pass may have missed is said with it."""
        return qualified(self, verdict, limits)

    def short_of(self, verdict: Verdict) -> str:
        """Of a pass the first clause: what it may have missed is among how sure it is."""
        if verdict.outcome is not Outcome.PASS or _is_quick(verdict.checks):
            return ""
        return sentence(verdict.finding.partition("; ")[0].removesuffix("."))

    def sure(self, verdict: Verdict, limits: Thresholds) -> Iterator[str]:
        """How often a clean model is called leaking, and what a low number does not exclude."""
        checks = verdict.checks
        keys = {check.key for check in checks}
        apart = "; bounds on epsilon have their own" if keys & {*_EPSILON} else ""
        yield (
            f"False alarms: at most {percent(limits.significance)} of models that memorised "
            f"nothing are called leaking{apart}."
        )
        leaking = {check.scope for check in checks if check.outcome is Outcome.LEAK}
        sizes = [
            int(check.value)
            for check in checks
            if check.key == "min_canaries" and check.value and check.scope not in leaking
        ]
        if any(
            check.key == "accept_unseen_training" and check.outcome is Outcome.INCONCLUSIVE
            for check in checks
        ):
            yield "Missed leaks: nothing is ruled out; nothing shows that it saw the canaries."
        elif sizes:
            yield sentence(
                f"missed leaks: where none was found, up to {percent(unseen_share(min(sizes)))} of "
                "such secrets may still leak (95 % confidence)"
            )
        if any(check.scope for check in checks):
            yield "A class: secrets of one format, inserted equally often."

    def steps(self, verdict: Verdict) -> Iterator[str]:
        """What to do now, the most urgent first."""
        yield from next_steps(verdict, rows_unknown=rows_unknown(self))

    def numbers(self) -> Iterator[Number]:
        """Medians with their intervals, p-values and secrets found; bounds; how useful it is."""
        from lmexposure.studies.exposure.rows import class_rows

        for form in self.formats:
            for row in class_rows(self, form):
                of = f"{visible(form.name)}, {class_name(row.role, row.repetitions)}"
                yield Number(
                    name=f"median exposure, {of}",
                    value=row.median.value,
                    low=row.median.low,
                    high=row.median.high,
                    unit="bits",
                    worse="high",
                )
                yield Number(
                    name=f"p (chance), {of}", value=row.p_value, worse="low", subtracted=False
                )
                for found in row.tries[-1:]:
                    name = f"found within {found.given:,} guesses, {of}"
                    share = found.found / found.of if found.of else None
                    yield Number(name=name, value=share, worse="high")
        primary = None if self.privacy is None else self.privacy.primary
        if primary is not None:
            kind = f"({validity(primary.validity)}, delta {short(primary.delta)})"
            bound = primary.value
            yield Number(name=f"epsilon at least {kind}", value=bound, unit="nats", worse="high")
            most = None if self.privacy is None else self.privacy.max_attainable
            yield Number(name=f"max attainable {kind}", value=most, unit="nats")
        learned = self.model.validation
        loss = None if learned is None else learned.validation_bits
        yield Number(name="validation loss", value=loss, unit="bits a token")

    def asked(self) -> Mapping[str, JsonValue]:
        """Model and settings, without seeds and dates."""
        facts = (*model_facts(self.files), *chosen_facts(self.files))
        return {fact.name: fact.value for fact in facts}

    def told_beside(self, studies: "Sequence[tuple[str, Study]]") -> str:
        """Which leaks more, and whether chance explains it."""
        from lmexposure.studies.exposure.compare import compared_finding

        return compared_finding(_runs(studies))

    def beside(self, studies: "Sequence[tuple[str, Study]]") -> Iterator[Section]:
        """Each class in each run, canary by canary where they measured one manifest.

        Raises:
            SettingsError: runs with no format in common, or with one that is not the same.
        """
        from lmexposure.studies.exposure.compare import compared_sections

        yield from compared_sections(_runs(studies))

    def __repr__(self) -> str:
        inserted = sum(canary.role == "canary" for canary in self.canaries)
        controls = count(len(self.canaries) - inserted, "control")
        formats = ", ".join(form.name for form in self.formats)
        return (
            f"<Result of {visible(self.model_name)}: {count(inserted, 'canary', 'canaries')} and "
            f"{controls} of {visible(formats)}>"
        )

    __str__ = __repr__


def _runs(studies: "Sequence[tuple[str, Study]]") -> list[tuple[str, RunFiles]]:
    return [(name, study.files) for name, study in studies if isinstance(study, Result)]


_EPSILON = ("max_epsilon", "claimed_epsilon")
_TEXT = ("memorised", "max_verbatim_run", "max_extractable")
_UNKNOWN = (
    "Measure in the rows of the training, which are not known: say what was left of each canary in "
    "them (--left-context), or let lmexposure verify --rows look at them.",
)
_MOST_REASONS = 2  # of what makes a verdict inconclusive; the table of checks has all
_MOST_NAMES = 3


def next_steps(verdict: Verdict, *, rows_unknown: bool = False) -> tuple[str, ...]:
    """What to do now, one sentence or two for each step, the most urgent first."""
    if verdict.outcome is Outcome.LEAK:
        return tuple(_after_a_leak(verdict.checks))
    if verdict.outcome is Outcome.PASS:
        return (*_UNKNOWN[:rows_unknown], *_after_a_pass(verdict.checks))
    doubt, *steps = _undecided(verdict.checks)
    return (doubt, *_UNKNOWN[:rows_unknown], *steps)


def _is_quick(checks: Sequence[Check]) -> bool:
    """Whether the measurement was a first look, accepted or not."""
    return any(check.key == "accept_quick" for check in checks)


def class_of(check: Check) -> tuple[str, int] | None:
    """Format and repetitions of the class that a check is of; None where it is of no class."""
    name, _, repetitions = check.scope.rpartition(", repetitions ")
    return (name, int(repetitions)) if repetitions.isdecimal() and name else None


def _after_a_leak(checks: Sequence[Check]) -> Iterator[str]:
    leaks = [check for check in checks if check.outcome is Outcome.LEAK]
    if any(check.key in _TEXT for check in leaks):
        yield (
            "Do not release this model: it gives back documents of its training text; take them "
            "out, or remove their repeats (deduplicate)."
        )
    if _classes(leaks):
        yield f"Do not release this model: {_gives_away(leaks, checks)}."
        yield _remedy(_classes(leaks), checks)
    elif any(check.key not in _TEXT for check in leaks):
        keys = {check.key for check in leaks}
        yield from (EXPOSURE_CHECKS[key].after_leak for key in reversed(_EPSILON) if key in keys)
        yield "Train with more noise, for fewer epochs or with fewer repeats of a text."
    yield "Then train and measure again, and put both runs side by side (lmexposure compare)."


def _gives_away(leaks: Sequence[Check], checks: Sequence[Check]) -> str:
    """What can be guessed, and what is only known to be remembered."""
    guessed = _classes([check for check in leaks if check.key == "max_guesses"])
    rest = [found for found in _classes(leaks) if found not in guessed]
    several = len({name for name, _ in _classes(checks)}) > 1
    clauses = []
    if guessed:
        clauses.append(f"whoever can query it can guess {_secrets(guessed, several)}")
    if rest:
        clauses.append(f"it remembers {_secrets(rest, several)}")
    return "; ".join(clauses)


def _secrets(classes: Sequence[tuple[str, int]], several: bool) -> str:
    """Which secrets, in words; with their formats where the run has several."""
    inserted = f"inserted {listed([times(n) for n in sorted({n for _, n in classes})])}"
    formats = list(dict.fromkeys(name for name, _ in classes))
    which = listed(formats) if len(formats) <= _MOST_NAMES else f"{len(formats)} formats"
    return f"secrets of {which}, {inserted}" if several else f"secrets {inserted}"


def _remedy(leaking: Sequence[tuple[str, int]], checks: Sequence[Check]) -> str:
    """Against repeats where they are what leaks, else against memorising at all."""
    least = min(n for _, n in leaking)
    if least == 1:
        return (
            "Removing repeats is not enough, since secrets inserted once leak too: take such "
            "secrets out of the training text, or train for fewer epochs or with differential "
            "privacy."
        )
    doubtful = _classes([c for c in checks if c.outcome is Outcome.INCONCLUSIVE])
    unsafe = {n for _, n in [*leaking, *doubtful]}
    below = max((n for _, n in _classes(checks) if n < least and n not in unsafe), default=None)
    safe = "" if below is None else f": secrets inserted {times(below)} were not found to leak"
    return (
        f"Remove repeats from the training text (deduplicate){safe}. If that is not enough, train "
        "for fewer epochs or with differential privacy."
    )


def _undecided(checks: Sequence[Check]) -> Iterator[str]:
    undecided = {check.key for check in checks if check.outcome is Outcome.INCONCLUSIVE}
    if undecided == {"accept_quick"}:
        yield "Do not take this for a pass: a quick look may miss a leak."
        yield "Measure again with --effort normal, and check against the same thresholds."
        return
    yield "Do not take this for a pass: this run can neither show a leak nor rule one out."
    # Of a model that may be another one, a closer look says no more.
    quick = _is_quick(checks) and "accept_unseen_training" not in undecided
    if quick:
        yield "First measure again with --effort normal, which may settle it."
    worthwhile = sorted(undecided - {"accept_quick"}, key=_worth)
    remedies = dict.fromkeys(EXPOSURE_CHECKS[key].remedy for key in worthwhile)
    yield from list(remedies)[: _MOST_REASONS - quick]
    how = " with --effort normal" if _is_quick(checks) else ""
    yield f"Then measure again{how}, and check the result against the same thresholds."


def _worth(key: str) -> tuple[bool, int, int]:
    """Preconditions first, bounds on epsilon last."""
    kinds = tuple(EXPOSURE_CHECKS)
    bound = _EPSILON.index(key) + 1 if key in _EPSILON else 0
    return not EXPOSURE_CHECKS[key].precondition, bound, kinds.index(key)


def _after_a_pass(checks: Sequence[Check]) -> Iterator[str]:
    if _is_quick(checks):
        yield "Measure again with --effort normal before a release: this was a first look."
    yield (
        "No leak found is no proof that there is none: it holds for secrets of the formats and "
        "repetitions inserted here, not for other texts."
    )
    if not any(check.key in _EPSILON for check in checks):
        yield "To test a promise of privacy too, measure with --claimed-epsilon."
    yield "Measure again whenever the model is trained again: it holds for these weights only."


def _classes(checks: Sequence[Check]) -> list[tuple[str, int]]:
    return list(dict.fromkeys(filter(None, map(class_of, checks))))
