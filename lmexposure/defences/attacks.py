"""The attack that fits a defence: every kind of canary under several attacks, paid for together.

Who masks confidences is asked for greedy answers, who protects a row by its neighbours has
neighbours put beside it, and whose mask follows from a known hash is read where nothing is masked.
All methods meet the same attacks, and each the one that is made for it.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lmexposure.audit import training_settings
from lmexposure.models import left_out
from lmexposure.records import GOLDFISH, DefenceAttack, SweepScore
from lmexposure.sweeps import Group, Matrices, SweepDirectory, part_rates, places_of_kinds

# Each reads the models of a sweep beside each other; see `sweeps.attacks`.
_PAIRS = (("secret_tokens", "lira"), ("log_perplexity", "lira"), ("label_only", "lira"))
KEPT = "kept_tokens"


def adapted_attacks(
    directory: SweepDirectory, matrices: Matrices, *, fpr: float, level: float, methods: int = 1
) -> list[DefenceAttack]:
    """Every kind of canary under every attack that fits how these models were trained.

    Args:
        directory: of the sweep.
        matrices: of its models.
        fpr: false-positive rate of the rates.
        level: of all intervals together.
        methods: that are compared with each other.

    Returns:
        The strongest first.
    """
    plan = directory.plan
    group = Group.of("canaries", plan.scored, matrices)
    if not group.texts:
        return []
    parts = places_of_kinds(group)
    groups = dict.fromkeys(_PAIRS, group)
    if directory.settings.training.get("method") == GOLDFISH:
        kept = Group.of("canaries", plan.scored, of_kept_tokens(directory, matrices))
        groups[KEPT, "lira"] = kept
    among = len(groups) * len(parts)
    goldfish = len(groups) > len(_PAIRS)
    paid = paid_level(level, len(parts), goldfish=goldfish, methods=methods)
    found = []
    for (score, attack), of_models in groups.items():
        read = "secret_tokens" if score == KEPT else score
        if read not in matrices.scores:
            continue
        rows = part_rates(of_models, read, attack, parts=parts, level=paid)
        found += [_row(row, score, attack, among, fpr) for row in rows.values()]
    return sorted(found, key=lambda row: -1.0 if row.tpr is None else row.tpr, reverse=True)


def paid_level(level: float, classes: int, *, goldfish: bool, methods: int) -> float:
    """The level of each interval, so that those of all methods hold together (Bonferroni).

    This pays for every pair of methods at once, however the methods depend on each other through
    the coins and seeds that they share: where all intervals hold, two methods whose intervals do
    not overlap differ, whichever two they are.

    Args:
        level: of all together.
        classes: of canaries.
        goldfish: whether the tokens that carried loss are read as well.
        methods: that are compared with each other.
    """
    return 1 - (1 - level) / (methods * classes * (len(_PAIRS) + goldfish))


def of_kept_tokens(directory: SweepDirectory, matrices: Matrices) -> Matrices:
    """The matrices with secrets of those tokens alone that carried loss in a goldfish training.

    The first tokens of a row, whose hash reads what was in front, are taken for kept.

    Args:
        directory: of a sweep of such trainings.
        matrices: of its models.
    """
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

    Args:
        attacks: the strongest first.
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
