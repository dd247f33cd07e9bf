"""What a manager asks of a sweep's report; as `answers.py` answers it for a run."""

from collections.abc import Iterator, Sequence

from lmexposure._style import percent, sentence, short_hash
from lmexposure._text import visible
from lmexposure.canaries import UNIFORM
from lmexposure.core import Answers, Check, Fact, Outcome, answers_of, date_of
from lmexposure.gate import CHECK_KINDS, unseen_share
from lmexposure.reporting.sweep_data import SweepReportData

_MOST_REASONS = 2


def sweep_answers(data: SweepReportData) -> Answers:
    """The answers of a report."""
    verdict = data.verdict
    kinds = data.result.settings.run.kinds
    return answers_of(
        verdict,
        since=tuple(_since(data)),
        steps=(*_steps(verdict.outcome, verdict.checks), *_other_kinds(verdict.outcome, kinds)),
        sure=tuple(_sure(data)),
    )


def _since(data: SweepReportData) -> Iterator[Fact]:
    provenance = data.provenance
    yield Fact(name="measured", value=date_of(provenance.measured))
    yield Fact(name="lmexposure", value=provenance.lmexposure)
    trained = visible(data.result.settings.run.model)
    yield Fact(name="models", value=f"{provenance.models:,} of {trained}")
    yield Fact(name="scores, SHA-256", value=short_hash(provenance.matrices_sha256))


def _sure(data: SweepReportData) -> Iterator[str]:
    apart = ""
    if any(check.key == "max_epsilon" for check in data.verdict.checks):
        apart = "; the bound on epsilon has its own"
    yield (
        f"False alarms: at most {percent(data.significance)} of sweeps whose models memorised "
        f"nothing are called leaking{apart}."
    )
    canaries = data.result.canaries
    if canaries and data.verdict.outcome is not Outcome.LEAK:
        yield sentence(
            f"missed leaks: where none was found, up to {percent(unseen_share(canaries))} of such "
            "secrets may still leak (95 % confidence)"
        )


def _steps(outcome: Outcome, checks: Sequence[Check]) -> Iterator[str]:
    if outcome is Outcome.LEAK:
        yield from _after_a_leak({check.key for check in checks if check.outcome is outcome})
    elif outcome is Outcome.PASS:
        yield (
            "No leak found is no proof that there is none: it holds for this recipe, and for "
            "secrets and documents like those that had coins."
        )
        yield "Sweep again whenever the recipe changes: model, epochs, data or defence."
    else:
        yield "Do not take this for a pass: this sweep can neither show a leak nor rule one out."
        keys = [check.key for check in checks if check.outcome is Outcome.INCONCLUSIVE]
        remedies = dict.fromkeys(_remedy(key) for key in keys)
        yield from list(remedies)[:_MOST_REASONS]


def _other_kinds(outcome: Outcome, kinds: Sequence[str]) -> Iterator[str]:
    """What a pass leaves open where uniform fills alone were hidden."""
    if outcome is Outcome.PASS and set(kinds) == {UNIFORM}:
        yield (
            "These canaries are uniform fills; other kinds may show more: sweep with a new token "
            "beside them (--kind uniform --kind new_token)."
        )


def _remedy(key: str) -> str:
    """Of a bound on epsilon a run's remedy is another."""
    if key == "max_epsilon":
        return (
            "Train more models (--models) or insert more canaries (--canaries), each in a model "
            "by a coin of its own: these could not have shown an epsilon that large."
        )
    return CHECK_KINDS[key].remedy


def _after_a_leak(keys: set[str]) -> Iterator[str]:
    yield (
        "Do not release a model of this recipe: whoever can query it can tell whether such a text "
        "was in its training."
    )
    if "worst_document" in keys:
        yield "Take the documents that give themselves away out of the corpus, and those like them."
    yield (
        "Train for fewer epochs, with differential privacy, or without repeats; an average over "
        "all texts may look harmless where the worst canary does not."
    )
    yield "Then sweep again, and put both reports side by side."
