"""The attacks on the models of a defence, beside each other.

Each defence meets every kind of canary under several attacks, paid for together, and the attack
that fits it: who masks confidences is asked for greedy answers, who protects a row by its
neighbours has neighbours put beside it, and whose mask follows from a known hash is read where
nothing is masked.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lmexposure.audit import training_settings
from lmexposure.defences.needs import PAIRS, paid_level
from lmexposure.models import left_out
from lmexposure.statistics import RateParts, lower_rate_p, rate_parts
from lmexposure.studies import GOLDFISH, DefenceAttack, SweepScore
from lmexposure.sweeps import (
    Group,
    Matrices,
    SweepDirectory,
    attack_cells,
    part_rates,
    places_of_kinds,
)

# Each reads the models of a sweep beside each other; see `sweeps.rates`.
KEPT = "kept_tokens"
Parts = Mapping[tuple[str, str], RateParts]  # by kind of canaries and score


def adapted_attacks(
    directory: SweepDirectory, matrices: Matrices, *, fpr: float, level: float, methods: int = 1
) -> list[DefenceAttack]:
    """Every kind of canary under every attack that fits how these models were trained."""
    group = Group.of("canaries", directory.plan.scored, matrices)
    if not group.texts:
        return []
    parts = places_of_kinds(group)
    goldfish = _is_goldfish(directory)
    among = (len(PAIRS) + goldfish) * len(parts)
    paid = paid_level(level, len(parts), goldfish=goldfish, methods=methods)
    found = []
    for score, read, attack, of_models in _readings(directory, matrices):
        rows = part_rates(of_models, read, attack, parts=parts, level=paid)
        found += [_row(row, score, attack, among, fpr) for row in rows.values()]
    return sorted(found, key=lambda row: -1.0 if row.tpr is None else row.tpr, reverse=True)


def attack_parts(directory: SweepDirectory, matrices: Matrices, *, fpr: float) -> Parts:
    """The same attacks' rates, taken apart by models and canaries, by kind and score."""
    found = {}
    for score, read, attack, group in _readings(directory, matrices):
        cells = attack_cells(group, read, attack).values
        for kind, places in places_of_kinds(group).items():
            parts = rate_parts(cells, group.included, texts=places, fpr=fpr)
            if parts is not None:
                found[kind, score] = parts
    return found


def shows_less_p(less: Parts, more: Parts) -> float:
    """How often chance alone puts one method so far below another, were it truly no lower.

    Suppose an attack on the first truly finds no less than every attack on the other. Then each
    attack on the other has a p against that one whose null holds, and the largest of its p against
    all is no smaller; so the smallest of these, times how many there are (Bonferroni), is a p too.
    No attack is taken for the strongest on the data.
    """
    rows = [max(lower_rate_p(own, other) for own in less.values()) for other in more.values()]
    return min(1.0, len(rows) * min(rows))


def _is_goldfish(directory: SweepDirectory) -> bool:
    return directory.settings.training.get("method") == GOLDFISH


def _readings(
    directory: SweepDirectory, matrices: Matrices
) -> Iterator[tuple[str, str, str, Group]]:
    """Each attack that these models have: its name, the score that it reads, how, and of what."""
    group = Group.of("canaries", directory.plan.scored, matrices)
    for score, attack in PAIRS:
        if score in matrices.scores:
            yield score, score, attack, group
    if _is_goldfish(directory) and "secret_tokens" in matrices.scores:
        kept = Group.of("canaries", directory.plan.scored, of_kept_tokens(directory, matrices))
        yield KEPT, "secret_tokens", "lira", kept


def of_kept_tokens(directory: SweepDirectory, matrices: Matrices) -> Matrices:
    """The matrices with secrets of those tokens alone that carried loss in a goldfish training."""
    settings = training_settings(directory.settings)
    secret, totals = list(matrices.secret), matrices.scores["secret_tokens"].copy()
    for place, text in enumerate(directory.rows.texts[: len(directory.plan.canaries)]):
        ids = np.array([text.encoded.ids])
        dropped = left_out(
            ids[:, :-1].astype(np.int32),
            ids[:, 1:],
            k=settings.goldfish_k,
            width=settings.goldfish_width,
        )[0]
        dropped[: settings.goldfish_width - 1] = False
        own = matrices.secret[place] & ~dropped[text.encoded.scored_from - 1 :]
        if own.any():  # of a secret without a kept token, all are read
            secret[place] = own
            totals[:, place] = -matrices.token_bits[place][:, own].sum(axis=1)
    scores = {**matrices.scores, "secret_tokens": totals}
    return replace(matrices, secret=tuple(secret), scores=scores)


def strongest(attacks: Sequence[DefenceAttack]) -> DefenceAttack | None:
    """That which finds most, with an interval for the largest rate of all; None without numbers.

    Which attack is truly the strongest is not known. Where the intervals of all of them hold, the
    largest true rate is at least each low end, so at least the largest of them; and it is the rate
    of some attack, so at most the largest high end.
    """
    known = [row for row in attacks if row.tpr is not None]
    if not known:
        return None
    low, high = max(row.low or 0.0 for row in known), max(row.high or 0.0 for row in known)
    return known[0].model_copy(update={"low": low, "high": high})


def _row(row: SweepScore, score: str, attack: str, among: int, fpr: float) -> DefenceAttack:
    rate = next(rate for rate in row.rates if rate.fpr == fpr)
    return DefenceAttack(
        kind=row.group,
        score=score,
        attack=attack,
        among=among,
        tpr=rate.value,
        low=rate.low,
        high=rate.high,
    )
