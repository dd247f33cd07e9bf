"""The one voice: how numbers, classes, outcomes and missing values are written for people.

Terminal, Markdown, pages, charts and the gate's sentences write through here, so a quantity looks
the same in all of them. Files for machines do not: CSV leaves a missing value empty, JSON has null.
Text from files is made harmless: what does not print, or turns a line around, is spelled out.
"""

import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from html import escape
from typing import TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[int | float | str, ...] | None  # of a setting

MISSING = "n/a"
CHANCE = "by chance"  # of a table's last row
_MOST_DIGITS = 15  # of a whole number that is written out
_LARGE = 10.0**_MOST_DIGITS
_LONGEST_SLUG = 48
_HASH = 12  # characters

# One label for each quantity, wherever it heads a column or a row.
LABELS = {
    "format": "format",
    "run": "run",
    "checkpoint": "checkpoint",
    "step": "step",
    "repetitions": "repetitions",
    "n": "canaries",
    "references": "references",
    "mean": "mean",
    "median": "median",
    "interval": "interval",
    "exact": "exact",
    "p_value": "p (chance)",
    "certificate": "proven lower bound",
    "skew_normal": "skew-normal",
    "calibrated": "calibrated",
    "base": "under the base",
    "added": "added",
    "gained": "likelier by",
    "reference_gained": "references likelier by",
    "epsilon_point": "epsilon (point)",
    "guesses": "found by guessing",
    "revealed": "found with some revealed",
    "bound": "bound",
    "validity": "holds for",
    "delta": "delta",
    "epsilon_bound": "epsilon ≥",
    "max_attainable": "max attainable",
    "significance": "significance",
    "inserted": "inserted",
    "held_out": "held out",
    "auc": "AUC",
    "validation_bits": "validation loss",
}

# For which trainings a bound holds: in short, and what that takes.
_VALIDITY = {
    "any-dp": ("any private training", "by the coins alone, whatever the training does"),
    "iid-scores": (
        "independent scores",
        "if the canaries' scores are independent and differ only by insertion",
    ),
    "gaussian": ("Gaussian noise", "only if the training hides a document as Gaussian noise does"),
    "asymptotic": ("large counts", "only if counts are large"),
    "bayesian": ("a prior", "if the prior does: a credible bound, not a confidence bound"),
}
_CLAIMS = {
    "contradicted": "contradicted",
    "consistent": "not contradicted",
    "cannot tell": "not decided",
}
_BOUNDS = {
    "clopper_pearson_epsilon": "from two error rates",
    "epsilon_from_exposure": "from exposure ranks",
    "epsilon_from_scores": "from scores above a threshold",
    "gaussian_dp_epsilon": "Gaussian audit",
    "joint_beta_epsilon": "Bayesian audit",
    "lidp_epsilon": "lifted audit",
    "one_run_audit": "one-run audit",
    "one_run_epsilon": "one-run audit by guesses",
    "one_run_fdp_epsilon": "one-run f-DP audit",
    "one_run_gaussian_audit": "one-run Gaussian audit",
}
_OUTCOMES = {
    "leak": "leaks",
    "pass": "no leak found",
    "inconclusive": "inconclusive",
    "not tested": "not tested",
}


def number(value: float | None, digits: int = 2) -> str:
    """A number to a fixed number of decimals, with commas; no minus before a zero.

    >>> number(1234.5), number(29.897, 3), number(-0.001), number(None)
    ('1,234.50', '29.897', '0.00', 'n/a')
    """
    if value is None or math.isnan(value):
        return MISSING
    large = _LARGE <= abs(value) < math.inf
    return f"{value:.{digits}e}" if large else f"{value:z,.{digits}f}"


def signed(value: float | None, digits: int = 2) -> str:
    """A difference, with its sign.

    >>> signed(1.5), signed(-0.001), signed(None)
    ('+1.50', '+0.00', 'n/a')
    """
    return MISSING if _is_missing(value) else f"{value:+z,.{digits}f}"


def at_least(value: float | None, capped: bool, digits: int = 2) -> str:
    """A number that says so where it is a lower bound.

    >>> at_least(13.288, True), at_least(None, True)
    ('≥ 13.29', 'n/a')
    """
    return f"{'≥ ' if capped and not _is_missing(value) else ''}{number(value, digits)}"


def interval(
    low: float | None, high: float | None, digits: int = 2, *, capped: bool = False
) -> str:
    """Both ends of an interval; an end that too few canaries do not give is missing.

    >>> interval(1, 2.5), interval(1, None), interval(None, None)
    ('1.00 .. 2.50', '1.00 .. n/a', 'n/a')
    """
    if _is_missing(low) and _is_missing(high):
        return MISSING
    return f"{number(low, digits)} .. {at_least(high, capped, digits)}"


def whole(value: int | str | None) -> str:
    """A whole number with commas; a very long one by its size.

    >>> whole(10**9), whole("8" * 40), whole(None)
    ('1,000,000,000', '8.89e+39', 'n/a')
    """
    if value is None:
        return MISSING
    try:
        text = str(value)
    except ValueError:  # Python writes out no more than some thousands of digits
        return f"2^{math.log2(int(value)):.0f}"
    if not text.isdecimal():
        return text
    return f"{int(text):,}" if len(text) <= _MOST_DIGITS else _by_size(text)


def _by_size(digits: str) -> str:
    """Three digits and a power of ten, for a number that no float need hold."""
    mantissa, power = f"{float(digits[:9]) / 10 ** (len(digits[:9]) - 1):.2f}", len(digits) - 1
    return f"1.00e+{power + 1}" if mantissa == "10.00" else f"{mantissa}e+{power}"


def probability(value: float | None) -> str:
    """A p-value or a chance: four decimals, or two digits where these show fewer.

    >>> probability(0.0312), probability(0.00075), probability(0.00005), probability(0)
    ('0.0312', '0.00075', '5.0e-05', '0')
    """
    if value is None or math.isnan(value):
        return MISSING
    if value == 0:
        return "0"
    if value < 1e-4:
        return f"{value:.1e}"
    return f"{value:.4f}" if value >= 1e-3 else f"{value:.2g}"


def short(value: float | None, digits: int = 3) -> str:
    """Three digits, or all of a large whole part: settings, ticks of an axis.

    >>> short(0.0), short(1e-05), short(29.897), short(10000.0), short(None)
    ('0', '1e-05', '29.9', '10,000', 'n/a')
    """
    if value is None or math.isnan(value):
        return MISSING
    if value == 0:
        return "0"
    if 10 ** (digits - 1) <= abs(value) < _LARGE:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def percent(share: float) -> str:
    """A share as people say it.

    >>> percent(0.2589), percent(0.00997), percent(0.999)
    ('26 %', '1 %', '99.9 %')
    """
    if 0.995 <= share < 1:  # not all
        return f"{100 * share:.10g} %"
    return f"{100 * share:.2g} %" if share < 0.0995 else f"{100 * share:.0f} %"


def large(value: int) -> str:
    """A large whole number as people say it, to two digits.

    >>> large(1234), large(500_000_000), large(5 * 10**39), large(9_970 * 10**12)
    ('1,200', '500 million', '5 × 10^39', '1 × 10^16')
    """
    if value >= 10**15:
        digits, size = f"{Decimal(value):.1e}".split("e+")
        return f"{digits.removesuffix('.0')} × 10^{size}"
    rounded = round(value, min(0, 2 - len(str(value))))
    for scale, word in ((10**12, " trillion"), (10**9, " billion"), (10**6, " million")):
        if rounded >= scale:
            return f"{rounded / scale:g}{word}"
    return f"{rounded:,}"


def one_in(chance: float) -> str:
    """How many times there are for one that chance gives as much; of the rarest, at least as many.

    >>> one_in(0.001), one_in(5e-324)
    ('1,000', '1 × 10^300')
    """
    return large(math.floor(1 / max(chance, 1e-300)))


def in_words(seconds: float) -> str:
    """A duration as a person says it.

    >>> in_words(3), in_words(47), in_words(140), in_words(8000)
    ('3 s', '45 s', '2 min', '2.2 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds)) if seconds < 10 else 5 * round(seconds / 5)} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def bits(value: float | None, digits: int = 2) -> str:
    """Bits in a sentence, as tables have them: exposures to two decimals, a space's size to one.

    >>> bits(13.288), bits(29.897, 1), bits(None)
    ('13.29 bits', '29.9 bits', 'n/a')
    """
    return MISSING if _is_missing(value) else f"{number(value, digits)} bits"


def nats(value: float | None) -> str:
    """A bound on epsilon.

    >>> nats(1.23456), nats(None)
    ('1.235', 'n/a')
    """
    return number(value, 3)


def reading(value: float | None, unit: str) -> str:
    """A number with its unit; a probability has none, and 1 guess is no guesses.

    >>> reading(0.00005, ""), reading(13.288, "bits"), reading(1.0, "guesses"), reading(None, "")
    ('5.0e-05', '13.29 bits', '1 guess', 'n/a')
    """
    if value is None or math.isnan(value):
        return MISSING
    if unit == "":
        return probability(value)
    if unit == "bits":
        return bits(value)
    if unit == "bits per token":
        return f"{number(value, 3)} {unit}"
    if unit == "nats":
        return f"{nats(value)} nats"
    named = unit.removesuffix("es") if value == 1 else unit
    return f"{whole(int(value)) if float(value).is_integer() else number(value)} {named}"


def setting_value(value: Value) -> str:
    """What was chosen, in full.

    >>> setting_value(True), setting_value((1, 16)), setting_value(0.1), setting_value(None)
    ('yes', '1, 16', '0.1', 'n/a')
    """
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(setting_value, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def count(n: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> count(1, "canary", "canaries"), count(1200, "control")
    ('1 canary', '1,200 controls')
    """
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def listed(words: Sequence[str], most: int | None = None) -> str:
    """Words in a row, as in a sentence; only the first, and how many more there are.

    >>> listed(["once"]), listed(["once", "4 times", "16 times"])
    ('once', 'once, 4 times and 16 times')
    >>> listed(["0", "3", "4", "7"], most=2)
    '0, 3 and 2 more'
    """
    more = 0 if most is None else len(words) - most
    if more > 0:
        words = [*words[:most], f"{more:,} more"]
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def are(n: int) -> str:
    """The verb that goes with a number.

    >>> are(1), are(2)
    ('is', 'are')
    """
    return "is" if n == 1 else "are"


def times(repetitions: int) -> str:
    """How often something was inserted.

    >>> times(1), times(1600)
    ('once', '1,600 times')
    """
    return "once" if repetitions == 1 else f"{repetitions:,} times"


def class_name(role: str, repetitions: int) -> str:
    """A class of canaries, where its number needs a sign.

    >>> class_name("canary", 16), class_name("control", 0), class_name("held_out", 4)
    ('16×', 'controls', 'held out')
    """
    if role == "canary":
        return f"{repetitions:,}×"
    return {"control": "controls", "held_out": "held out"}.get(role, role)


def class_scope(format: str, repetitions: int) -> str:
    """A class of canaries among those of all formats, as checks name it.

    >>> class_scope("pin", 16)
    'pin, repetitions 16'
    """
    return f"{visible(format)}, repetitions {repetitions}"


def found_of(found: int, of: int, by_chance: float) -> str:
    """Found of searched for; in brackets where guessing would do half as well or better.

    >>> found_of(3, 10, 1e-05), found_of(3, 10, 2.0)
    ('3/10', '(3/10)')
    """
    cell = f"{found:,}/{of:,}"
    return f"({cell})" if 2 * by_chance >= max(found, 1) else cell


def outcome_word(outcome: str) -> str:
    """What an outcome of the gate is called; a single check is a "pass", and finds no leak.

    >>> outcome_word("pass"), outcome_word("leak")
    ('no leak found', 'leaks')
    """
    return _OUTCOMES[outcome]


def validity(kind: str) -> str:
    """For which trainings a bound holds, in two or three words.

    >>> validity("any-dp")
    'any private training'
    """
    return _VALIDITY.get(kind, (kind,))[0]


def conditions_of(kind: str) -> str:
    """The same with what it takes.

    >>> conditions_of("asymptotic")
    'large counts: holds only if counts are large'
    """
    short, *takes = _VALIDITY.get(kind, (kind,))
    return ": holds ".join([short, *takes])


def claim_word(verdict: str) -> str:
    """What the bounds say of an epsilon that was claimed.

    >>> claim_word("consistent")
    'not contradicted'
    """
    return _CLAIMS[verdict]


def bound_name(method: str) -> str:
    """What people call a bound on epsilon; what follows the method's name stays.

    >>> bound_name("one_run_audit"), bound_name("epsilon_from_exposure with coins")
    ('one-run audit', 'from exposure ranks with coins')
    >>> bound_name("epsilon_from_area")
    'epsilon from area'
    """
    name, space, rest = method.partition(" ")
    return f"{_BOUNDS.get(name) or name.replace('_', ' ')}{space}{rest}"


def short_hash(sha256: str) -> str:
    """As much of a hash as people read.

    >>> short_hash("ab" * 32)
    'abababababab'
    """
    return sha256[:_HASH]


def sentence(text: str) -> str:
    """A clause as a sentence; a question keeps its mark.

    >>> sentence("one; two"), sentence("why?")
    ('One; two.', 'Why?')
    """
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('?') else '.'}"


def slug(text: str) -> str:
    """Lower-case letters, digits, _ and -, for ids and file names; never empty.

    >>> slug("random_number"), slug("<b>")
    ('random_number', 'b')
    """
    clean = re.sub("[^a-z0-9_]+", "-", text.lower()).strip("-")
    return clean[:_LONGEST_SLUG].strip("-") or "unnamed"


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a notebook, every text of it plain.

    >>> html_table(["format"], [["<b>"]])
    '<table><tr><th>format</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    lines = ["".join(f"<th>{html(head)}</th>" for head in heads)] if heads else []
    lines += ["".join(f"<td>{html(cell)}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def html(text: str) -> str:
    """Text as HTML, every character of it plain."""
    return escape(visible(text))


def _is_missing(value: float | None) -> bool:
    """Not known, or not a number."""
    return value is None or math.isnan(value)


# Controls but tab and line ends, formats (bidi marks, zero widths), halves of characters, and the
# two characters that end a line without being seen.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    r"\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0001-\U000e007f]"
)


def visible(text: object) -> str:
    r"""A name or a line with everything that does not print spelled out, line ends too.

    >>> visible("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(
        character if character.isprintable() else _spelled(character) for character in str(text)
    )


def printable(text: str, *, json_escapes: bool = False) -> str:
    """A whole file's text with all but its line ends and blanks spelled out where it is unseen."""
    spelled = _spelled_in_json if json_escapes else _spelled
    return _UNSEEN.sub(lambda found: spelled(found[0]), text)


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _spelled_in_json(character: str) -> str:
    # ASCII has one control that JSON allows bare, and that json would leave so.
    return r"\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
