"""Numbers and names as the pages show them: one way to write each kind of number."""

from jinja2 import Environment

from lmexposure.gate import Check, Outcome
from lmexposure.records import PrimaryBound, PrivacyClass

_WORDS = {
    Outcome.LEAK: "leaks",
    Outcome.PASS: "no leak found",
    Outcome.INCONCLUSIVE: "inconclusive",
    Outcome.NOT_TESTED: "not tested",
}
_VALIDITY = {
    "any-dp": "holds for every private training",
    "iid-scores": "holds where scores are independent and alike",
    "gaussian": "holds for a Gaussian trade-off only",
    "asymptotic": "holds for large counts only",
    "bayesian": "credible, not a confidence bound",
}
_MOST_DIGITS = 15  # of a whole number that is written out


def number(value: float | None, digits: int = 2) -> str:
    """So many decimals, or the word "missing"."""
    return "missing" if value is None else f"{value:,.{digits}f}"


def estimate(value: float | None, capped: bool) -> str:
    """Bits; a lower bound says so."""
    return f"{'≥ ' if capped and value is not None else ''}{number(value)}"


def interval(low: float | None, high: float | None, digits: int = 2) -> str:
    """Both ends; "none" where there is no interval."""
    if low is None and high is None:
        return "none"
    ends = ["no end" if end is None else f"{end:,.{digits}f}" for end in (low, high)]
    return " .. ".join(ends)


def whole(value: int | str | None) -> str:
    """A whole number with commas; a very long one by its size."""
    if value is None:
        return "missing"
    text = str(value)
    if not text.isdecimal():
        return text
    return (
        f"{int(text):,}" if len(text) <= _MOST_DIGITS else f"{text[0]}.{text[1:3]}e+{len(text) - 1}"
    )


def probability(value: float | None) -> str:
    """Four decimals, or its size where these show nothing."""
    if value is None:
        return "missing"
    return f"{value:.4f}" if value == 0 or value >= 1e-4 else f"{value:.1e}"


def plain(value: float | None) -> str:
    """Three digits, as people write a setting: 0, 1e-05, 0.95."""
    return "none" if value is None else f"{value:.3g}"


def reading(check: Check, value: float | None) -> str:
    """A check's value or threshold with its unit."""
    if value is None:
        return "none"
    if check.unit == "":
        return f"{value:.4g}"
    if check.unit == "bits" or check.unit == "nats":
        return f"{value:,.2f} {check.unit}"
    unit = check.unit.removesuffix("es") if value == 1 else check.unit  # 1 guess, 2 guesses
    return f"{value:,.0f} {unit}" if float(value).is_integer() else f"{value:,.2f} {unit}"


def outcome_word(outcome: Outcome) -> str:
    """What an outcome is called on the page."""
    return _WORDS[outcome]


def class_name(repetitions: int, role: str = "canary") -> str:
    """A class of canaries in words."""
    if role == "control":
        return "controls"
    return f"{repetitions:,}×"


def validity(kind: str) -> str:
    """A class of validity in words."""
    return _VALIDITY.get(kind, kind)


def where(about: PrivacyClass | PrimaryBound) -> str:
    """Which formats and repetitions a bound is about."""
    return ", ".join(filter(None, [*about.formats, f"repetitions {about.repetitions}"]))


def add_filters(environment: Environment) -> None:
    """Make them known to all templates, each by its own name.

    Args:
        environment: of the templates.
    """
    numbers = (number, estimate, interval, whole, probability, plain, reading)
    names = (outcome_word, class_name, validity, where)
    environment.filters.update({made.__name__: made for made in (*numbers, *names)})
