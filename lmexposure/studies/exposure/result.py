"""A result: what one measurement found of a model, with what lies next to it; a run's too."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

from lmexposure._record import JsonValue
from lmexposure._style import class_name, short, visible
from lmexposure._validate import of_type
from lmexposure.canaries import Manifest
from lmexposure.core import (
    Check,
    CheckKind,
    Document,
    Fact,
    Number,
    Provenance,
    Section,
    Study,
    Thresholds,
    Verdict,
)
from lmexposure.errors import ResultError, SettingsError
from lmexposure.studies.exposure.answers import how_sure, next_steps, short_finding, since
from lmexposure.studies.exposure.checks import (
    EXPOSURE_CHECKS,
    exposure_checks,
    qualified,
    rows_unknown,
)
from lmexposure.studies.exposure.facts import chosen_facts, model_facts
from lmexposure.studies.exposure.files import RunFiles, files_beside, refuse_missing
from lmexposure.studies.exposure.record import HOME, ResultNumbers
from lmexposure.studies.exposure.views import title_of

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

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a run directory, a measurement's, or a result.json with what lies next to it.

        A file of any other name is read alone: what lies next to it may belong to another result.

        Raises:
            ResultError: no result, or one that is damaged or of another version; or see
                `files_beside`.
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
        """Its path, or its name on a hub."""
        return self.model.path

    @property
    def provenance(self) -> Provenance:
        """Which version measured which weights, and when."""
        return Provenance(
            lmexposure=self.lmexposure,
            measured=self.when,
            hashes={"weights_sha256": self.model.weights_sha256},
            model=self.model_name,
        )

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
        """Of a pass the first clause."""
        return short_finding(verdict)

    def since(self) -> Iterator[Fact]:
        """When which version measured which weights."""
        yield from since(self.files)

    def sure(self, verdict: Verdict, limits: Thresholds) -> Iterator[str]:
        """How often a clean model is called leaking, and what a low number does not exclude."""
        yield from how_sure(verdict.checks, limits.significance)

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
                    value=row.median,
                    low=row.low,
                    high=row.high,
                    unit="bits",
                    worse="high",
                )
                yield Number(
                    name=f"p (chance), {of}", value=row.p_value, worse="low", subtracted=False
                )
                for found in row.guesses[-1:]:
                    name = f"found within {found.given:,} guesses, {of}"
                    share = found.found / found.of if found.of else None
                    yield Number(name=name, value=share, worse="high")
        primary = None if self.privacy is None else self.privacy.primary
        if primary is not None:
            kind = f"({primary.validity}, delta {short(primary.delta)})"
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
        return f"<{title_of(self)}>"

    __str__ = __repr__


def _runs(studies: "Sequence[tuple[str, Study]]") -> list[tuple[str, RunFiles]]:
    return [(name, study.files) for name, study in studies if isinstance(study, Result)]
