"""The directory of a measurement: its files, and the parts that it keeps until it is whole."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from lmexposure._files import sha256_file
from lmexposure._integrity import say_rebuilt
from lmexposure._record import Record, Sha256
from lmexposure._validate import MOST_THREADS
from lmexposure.audit.format_scores import FormatScores, write_scores
from lmexposure.audit.parts import keep_part, read_part
from lmexposure.audit.run_record import record_measured, refuse_foreign
from lmexposure.errors import ResultError
from lmexposure.records import Result


class _Begun(Record):
    """What a measurement is made of that began here."""

    inputs_sha256: Sha256
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)]


@dataclass(frozen=True, kw_only=True)
class MeasuringPlace:
    """Where a measurement is written, and what it keeps until it is whole.

    Attributes:
        out: the directory of the result.
        inputs: hash of all that decides the numbers.
    """

    out: Path
    inputs: str

    @property
    def result(self) -> Path:
        """The file of the result."""
        return self.out / "result.json"

    @property
    def scores(self) -> Path:
        """The file of the scores."""
        return self.out / "scores.parquet"

    def finished(self) -> Result | None:
        """The result of these very inputs, where it stands here with its scores beside it.

        Raises:
            ResultError: the result of another model, manifest or settings is here, or a file of
                somebody else with a name that a measurement writes.
        """
        if not self.result.exists():
            refuse_foreign(self.out)
            return None
        result = Result.read(self.result)
        if result.inputs_sha256 != self.inputs:
            raise ResultError(
                f"{self.out} holds the result of another model, manifest or settings; "
                "choose another directory"
            )
        return result if self._scores_fit(result) and not _ended_early(result) else None

    def _scores_fit(self, result: Result) -> bool:
        if not self.scores.exists():
            return False
        if result.scores_sha256 in (None, sha256_file(self.scores)):
            return True
        say_rebuilt(self.scores, "the model is measured again")
        return False

    def begin(self, threads: int) -> None:
        """Find out before the work whether it can be written down."""
        begun = _Begun(inputs_sha256=self.inputs, threads=threads)
        keep_part(self.kept("inputs.json"), begun)

    def threads(self) -> int | None:
        """With how many threads the parts here were computed; None where there are none.

        Parts of which that is not known are removed: others would be added to them.
        """
        begun = read_part(self.kept("inputs.json"), _Begun)
        if begun is None:
            shutil.rmtree(self.kept("inputs.json").parent, ignore_errors=True)
            return None
        return begun.threads

    def kept(self, name: str) -> Path:
        """A file for finished parts; other inputs have other files."""
        return self.out / ".measuring" / self.inputs[:16] / name

    def finish(self, result: Result, scores: list[FormatScores]) -> Result:
        """Write scores and the date, then the result that has their hash; then clear the parts."""
        write_scores(self.scores, scores)
        result = result.model_copy(update={"scores_sha256": sha256_file(self.scores)})
        # Before the result: who finds one does not measure again, and could not tell when it was.
        record_measured(self.out, result.settings)
        result.write(self.result)
        if not _ended_early(result):  # else the same command goes on from the parts
            self.clear()
        return result

    def clear(self) -> None:
        """Remove the parts, which a kill at the very end may have left."""
        shutil.rmtree(self.out / ".measuring", ignore_errors=True)


def _ended_early(result: Result) -> bool:
    """A person ended a search or an extraction before its time."""
    return any(form.interrupted for form in result.formats)
