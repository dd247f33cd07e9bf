"""A kind of study of one's own: are documents of the training likelier to the model than others?

In a package of yours an entry point makes it known to `lmexposure report`, `check` and `compare`:

    [project.entry-points."lmexposure.studies"]
    loss_gap = "my_package.own_study:LossGap"

    python own_study.py MODEL TRAINED.txt HELD_OUT.txt OUT
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from lmexposure import Thresholds, load_model
from lmexposure.core import (
    Check,
    CheckKind,
    Column,
    Dated,
    Document,
    JsonValue,
    NotNegative,
    Number,
    Outcome,
    Part,
    Positive,
    Record,
    Rows,
    Section,
    Table,
    Verdict,
    claimed,
)
from lmexposure.models import LoadedModel, weights_sha256
from lmexposure.scoring import log_perplexity
from lmexposure.statistics import area_under_curve

_GROUPS = (
    Column(head="documents", value="group", words=True),
    Column(head="how many", value="n"),
    Column(head="mean bits", value="mean", shown="{:,.1f}".format, unit="bits a text", worse="low"),
)
_EACH = (
    Column(head="document", value="number"),
    Column(head="trained on", value="trained"),
    Column(head="bits", value="bits", unit="bits a text", worse="low"),
)


class Scored(Record):
    """A document and how surprised the model is."""

    number: Positive  # in its file, from 1
    trained: bool  # whether the model was trained on it
    bits: NotNegative  # of the whole text


class Group(Record):
    """Documents that were trained on, or those that were held out."""

    group: str
    n: Positive
    mean: NotNegative


class LossGap(Dated):
    """Bits of documents of the training beside those of documents that were held out."""

    KIND: ClassVar[str] = "loss_gap"
    WHAT: ClassVar[str] = "a comparison of losses"
    AGAIN: ClassVar[str] = "score again: python own_study.py, with the same files"
    LIMITS: ClassVar[frozenset[str]] = frozenset({"significance"})
    CHECKS: ClassVar[Mapping[str, CheckKind]] = {
        "area": CheckKind(
            help="How often a document of the training is likelier than one that was held out.",
            remedy="Give more documents of both kinds, drawn at random from one source.",
        )
    }

    model: str  # its path or name
    scored: Rows[Scored]  # every document of both files

    def _area(self, significance: float = 0.05) -> tuple[float, float, float]:
        """Of pairs the share in which the trained one is likelier, with its interval."""
        # A score is higher where the model is less surprised.
        sides = [
            [-row.bits for row in self.scored if row.trained is side] for side in (True, False)
        ]
        found = area_under_curve(*sides, level=1 - significance)
        return found.value, found.low, found.high

    @property
    def finding(self) -> str:
        """What was found, in a line."""
        area, low, high = self._area()
        word = "are told from" if low > 0.5 else "are not told from"
        return (
            f"documents of the training {word} held-out ones: {area:.3f} of pairs "
            f"({low:.3f} .. {high:.3f})"
        )

    def document(self) -> Document:
        """Both groups side by side."""
        groups = []
        for name, side in (("trained on", True), ("held out", False)):
            bits = [row.bits for row in self.scored if row.trained is side]
            groups.append(Group(group=name, n=len(bits), mean=sum(bits) / len(bits)))
        return Document(
            title="Losses side by side",
            kind=f"Comparison of losses, {len(self.scored)} documents",
            question="Are documents of the training likelier to the model than others?",
            finding=self.finding,
            sections=(Section(id="groups", title="Both groups", table=Table(groups, _GROUPS)),),
            main=Table(self.scored, _EACH),
            origin=self.provenance.line,
        )

    def checks(self, limits: Thresholds) -> Iterator[Check | str]:
        """A leak where the whole interval lies above one half."""
        area, low, high = self._area(limits.significance)
        yield Check(
            name="documents told apart",
            key="area",
            outcome=Outcome.LEAK if low > 0.5 else Outcome.PASS,
            value=area,
            threshold=0.5,
            reason=f"{area:.3f} of pairs have the trained one likelier ({low:.3f} .. {high:.3f}).",
        )

    def sure(self, verdict: Verdict, limits: Thresholds) -> Iterator[str]:
        """For the first screen of its report."""
        level = 1 - limits.significance
        yield f"The interval holds with {level:.0%} confidence; few documents give a wide one."

    def numbers(self) -> Iterator[Number]:
        """For `compare`."""
        area, low, high = self._area()
        yield Number(name="pairs told apart", value=area, low=low, high=high, worse="high")

    def asked(self) -> Mapping[str, JsonValue]:
        """What decided the numbers."""
        return {"model": self.model, "documents": len(self.scored)}


def main(model: str, trained: str, held_out: str, out: str) -> None:
    """Score the lines of both files, and write the study; where it was ended it goes on."""
    texts = {
        side: Path(name).read_text().splitlines()
        for side, name in ((True, trained), (False, held_out))
    }
    loaded = load_model(model)
    asked: dict[str, JsonValue] = {
        "model": weights_sha256(loaded.model),
        "trained": sha256_of(texts[True]),
        "held_out": sha256_of(texts[False]),
    }
    with claimed(LossGap, out) as held, held.work(asked) as work:
        study = work.finished()
        if study is None:
            scored = tuple(
                Scored(number=n, trained=side, bits=bits)
                for side, lines in texts.items()
                for n, bits in enumerate(_scores(loaded, lines, work.part(f"trained {side}")), 1)
            )
            study = LossGap.now(inputs_sha256=work.sha256, model=model, scored=scored)
            study.save(out)
        work.drop()
    print(study.finding)


def _scores(loaded: LoadedModel, lines: list[str], kept: Part) -> list[float]:
    """Bits of each line, or what was kept of them before an end."""
    before = kept.read()
    if before is not None:
        bits: list[float] = json.loads(before)
        return bits
    bits = log_perplexity(loaded.model, loaded.tokenizer, lines).tolist()
    kept.write(json.dumps(bits).encode())
    return bits


def sha256_of(lines: list[str]) -> str:
    """Of what decides the numbers, not of where it lies."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


if __name__ == "__main__":
    main(*sys.argv[1:])
