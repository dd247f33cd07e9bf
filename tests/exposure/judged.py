"""What the gate says of one thing: a check of its verdict, by key."""

from typing import Any

import lmexposure as lx
from lmexposure.core import Check, Outcome, Thresholds

LEAK, PASS = Outcome.LEAK, Outcome.PASS
OPEN, UNTESTED = Outcome.INCONCLUSIVE, Outcome.NOT_TESTED


def check_of(result: Any, key: str, **thresholds: Any) -> Check:
    verdict = lx.check(result, Thresholds(**thresholds))
    return next(check for check in verdict.checks if check.key == key)
