"""Secrets that an attacker finds within the guesses allowed: a leak that needs no statistics."""

import math

from lmexposure._quantiles import unseen_share
from lmexposure._style import count, large, percent, sentence, short, whole
from lmexposure.core import Check, CheckKind, Outcome, Thresholds
from lmexposure.studies.exposure.judged import CanaryClass
from lmexposure.studies.exposure.parts import Extraction

_SOME = 0.5  # finds, in expectation, from which on chance is worth a word
_SEARCHES = {"best_first": "likeliest in order", "greedy": "greedy", "beam": "by beam search"}

GUESSES: CheckKind = CheckKind(
    help="A secret of the training data is among the first fills that an attacker "
    "tries who has the model and knows the format. Where secrets are drawn at random from a "
    "large space, finding one is proof of memorisation.",
    remedy="Measure with more --guesses or a larger --budget-steps, so that the search "
    "gets far enough.",
    low_is_worse=True,
)


def check_extraction(group: CanaryClass, thresholds: Thresholds, share: float) -> Check:
    """Look for a secret of a class that is found within the guesses allowed.

    Best-first search tries the likeliest fills of all of R in a proven order; greedy search is one
    guess more, a beam as many as it is wide. Where that search ended early, as it does where a
    model finds all fills nearly as likely, the rank answers: a canary with more than g fills below
    it is not found within g guesses, and that is so where the upper end of its exposure lies below
    log2(|R| / g). Places that inserted canaries of other classes take, which are not judged, do not
    count against the attacker.
    """
    most, asked = thresholds.guesses, thresholds.asked("max_guesses")
    allowed = min(most, group.form.space_size)
    places = [_first(attacks, group.unjudged, allowed) for attacks in group.attacks]
    outcome, reason = _judge(group, places, allowed, share, asked)
    found = sorted(place for place in places if place is not None)
    return Check(
        name="secrets found by guessing",
        key="max_guesses",
        scope=group.scope,
        outcome=outcome,
        value=float(found[0]) if found else None,
        threshold=float(most),
        unit="guesses",
        reason=sentence(reason),
    )


def _first(attacks: tuple[Extraction, ...], apart: tuple[int, ...], allowed: int) -> int | None:
    """The guess at which the secret is found; None: at none that is allowed."""
    places = [_place(attack, apart) for attack in attacks]
    return min((p for p in places if p is not None and p <= allowed), default=None)


def _place(attack: Extraction, apart: tuple[int, ...]) -> int | None:
    found_at = attack.found_at
    if found_at is None or attack.method != "best_first":
        return found_at
    return found_at - sum(place < found_at for place in apart)


def _judge(
    group: CanaryClass, places: list[int | None], allowed: int, share: float, asked: bool
) -> tuple[Outcome, str]:
    tried = max((_tried(attacks, allowed) for attacks in group.attacks), default=0) or allowed
    rare = fewest_finds(share, canaries=group.n, guesses=tried, size=group.possible)
    undecided = Outcome.INCONCLUSIVE if asked else Outcome.NOT_TESTED
    found = sorted(place for place in places if place is not None)
    if rare is not None and len(found) >= rare:
        return Outcome.LEAK, _leak(group, found, allowed, tried)
    lost = [i for i, place in enumerate(places) if place is None]
    short = [i for i in lost if max(_in_order(group.attacks[i]), default=0) < allowed]
    left = sum(_can_be_within(group, i, allowed) for i in short)
    if rare is None or 0 < len(found) + left < rare:
        return undecided, _guessed(group, len(found), left, allowed, tried, rare)
    if not left:
        return Outcome.PASS, _passed(group, allowed, rare, by_rank=len(short))
    unknown = _unknown(group, len(found), left, allowed)
    if found or group.form.interrupted or any(_in_order(attacks) for attacks in group.attacks):
        return Outcome.INCONCLUSIVE, unknown
    return undecided, f"no search in a proven order was made; {unknown}"


def chance_of_finds(found: int, *, canaries: int, guesses: int, size: int) -> float:
    """An upper bound on the probability that guessing finds this many of the secrets, or more.

    The guesses are the model's, which without memorisation knows nothing of the secrets. A given
    set of k secrets is found with probability (g / |R|)^k at most, and there are C(n, k) of them.

    >>> f"{chance_of_finds(1, canaries=10, guesses=1000, size=10**9):.1e}"
    '1.0e-05'
    """
    if found == 0 or guesses >= size:
        return 1.0
    sets = math.lgamma(canaries + 1) - math.lgamma(found + 1) - math.lgamma(canaries - found + 1)
    log2_chance = sets / math.log(2) + found * (math.log2(guesses) - math.log2(size))
    return 1.0 if log2_chance >= 0 else float(2**log2_chance)


def fewest_finds(share: float, *, canaries: int, guesses: int, size: int) -> int | None:
    """The fewest finds that guessing reaches no more often than `share`; None: not even all."""
    for found in range(1, canaries + 1):
        if chance_of_finds(found, canaries=canaries, guesses=guesses, size=size) <= share:
            return found
    return None


def _tried(attacks: tuple[Extraction, ...], allowed: int) -> int:
    """Fills tried in all, which decides what chance finds."""
    return sum(min(attack.tried, allowed) for attack in attacks)


def _in_order(attacks: tuple[Extraction, ...]) -> list[int]:
    """Guesses of the likeliest fills in a proven order."""
    return [attack.tried for attack in attacks if attack.method == "best_first"]


def _can_be_within(group: CanaryClass, i: int, allowed: int) -> bool:
    """Whether the rank may be so low, for all that is known."""
    exposure = group.exposures[i]
    return exposure is None or exposure.high >= group.bits - math.log2(allowed)


def _leak(group: CanaryClass, found: list[int], allowed: int, tried: int) -> str:
    many = "the only one" if len(found) == 1 else f"and {len(found)}"
    return (
        f"{group.secret} is found at guess {found[0]:,}, {many} of {group.n:,} within "
        f"{count(allowed, 'guess', 'guesses')}; blind guessing {_blindly(group, tried)}"
    )


def _blindly(group: CanaryClass, tried: int) -> str:
    """What guessing without the model does: half of all fills come before a secret, on average."""
    size = group.possible
    expected = group.n * min(1.0, tried / size)
    if expected >= _SOME:
        return f"would find about {short(expected, 2)} of {group.n:,} too"
    return f"would need about {large((size + 1) // 2)} tries for each"


def _guessed(
    group: CanaryClass, found: int, left: int, allowed: int, tried: int, rare: int | None
) -> str:
    """Finds, known or possible, that chance gives too often to be a leak."""
    clauses = [
        f"{_found(group, found, left, allowed)}: by chance {_tries(group, allowed)} among "
        f"{whole(group.possible)} fills find {short(group.n * min(1.0, tried / group.possible), 2)}"
        f" on average{_as_many(group, found + left, tried)}",
        "no number of finds would be a leak" if rare is None else f"a leak takes {rare} finds",
        "choose fewer guesses or a format with more fills",
    ]
    return "; ".join(clauses)


def _found(group: CanaryClass, found: int, left: int, allowed: int) -> str:
    """What was found, and what may be."""
    if not found and left:
        return f"{left} of {group.secrets} may be found within {allowed:,} guesses"
    more = f", and {left} more may be within {allowed:,} guesses" if left else ""
    return f"{found} of {group.secrets} {'was' if found == 1 else 'were'} found{more}"


def _as_many(group: CanaryClass, finds: int, tried: int) -> str:
    """How often chance finds as many; nothing where that is most of the time."""
    chance = chance_of_finds(finds, canaries=group.n, guesses=tried, size=group.possible)
    most = math.floor(1 / chance)
    more = f"{finds} or more" if finds < group.n else f"all {finds}"
    return f", and {more} up to once in {large(most)} times" if most > 1 else ""


def _tries(group: CanaryClass, allowed: int) -> str:
    """How many fills all searches for a secret tried together, and each of them."""
    most = max(group.attacks, key=lambda attacks: _tried(attacks, allowed), default=())
    each = [f"{min(a.tried, allowed):,} {_SEARCHES.get(a.method, a.method)}" for a in most]
    total = f"{_tried(most, allowed) or allowed:,} guesses"
    return f"{total} for each ({' + '.join(each)})" if len(each) > 1 else total


def _unknown(group: CanaryClass, found: int, left: int, allowed: int) -> str:
    return (
        f"{_found(group, found, left, allowed)}: the search did not get that far, and the ranks do "
        "not rule it out; measure with more guesses, a larger budget of steps or more references"
    )


def _passed(group: CanaryClass, allowed: int, rare: int, *, by_rank: int) -> str:
    apart = sum(place <= allowed for place in group.unjudged)
    others = f", {apart} of which were canaries of classes that are not judged" if apart else ""
    how = f" (known of {by_rank} by their ranks: the search ended early)" if by_rank else ""
    clauses = [
        f"none of {group.secrets} is found within {allowed:,} guesses of the likeliest fills"
        f"{others}{how}",
        f"a leak of fewer than {percent(unseen_share(group.n))} of such secrets could have gone "
        "unseen",
    ]
    if rare > 1:
        clauses.append(f"fewer than {rare} finds would not have been a leak")
    return "; ".join(clauses)
