"""No part of a result may vanish: what is not there was not tested."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from made_results import canary, class_row, clean, exact, made

from lmexposure.errors import ResultError
from lmexposure.gate import check_result
from lmexposure.records import Result


def test_a_class_that_vanished_from_the_canaries_or_the_summary_is_refused() -> None:
    result = clean(classes=(1, 4))
    one_class = [c for c in result.canaries if c.repetitions != 4]
    with pytest.raises(ResultError, match="speaks of random_number, canary, repetitions 4, of"):
        check_result(replace(result, canaries=one_class))
    no_controls = [c for c in result.canaries if c.role == "canary"]
    with pytest.raises(ResultError, match="speaks of random_number, control, repetitions 0"):
        check_result(replace(result, canaries=no_controls))
    for place in range(3):
        rows = [row for i, row in enumerate(result.summary) if i != place]
        with pytest.raises(ResultError, match="the summary says nothing of random_number"):
            check_result(replace(result, summary=rows))
    with pytest.raises(ResultError, match="the summary has 2 rows of random_number"):
        check_result(replace(result, summary=[*result.summary, result.summary[0]]))


def test_a_format_that_vanished_is_refused() -> None:
    pin = [canary(i, exact(1.0), name="pin") for i in range(10)]
    result, other = clean(), made(pin, name="pin")
    both = replace(
        result,
        formats=[*result.formats, *other.formats],
        canaries=[*result.canaries, *other.canaries],
        summary=[*result.summary, *other.summary],
    )
    assert check_result(both).exit_code in (0, 1, 2)
    with pytest.raises(ResultError, match="says nothing of pin, canary, repetitions 1"):
        check_result(replace(both, summary=result.summary))
    with pytest.raises(ResultError, match="speaks of pin, canary"):
        check_result(replace(both, canaries=result.canaries))


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (0, {"n": 31}, "n=31, but the result holds 32"),
        (0, {"n": True}, "n=True, but the result holds 32"),
        (0, {"references": 9_999}, "references=9999, but the result holds 10000"),
        (0, {"references": None}, "references=None, but the result holds 10000"),
        (0, {"alternative": "different"}, "'different', but the result holds 'memorised'"),
        (2, {"alternative": "memorised"}, "'memorised', but the result holds 'different'"),
        (0, {"p_value": 1.5}, r"p_value=1.5 must lie in \(0, 1\]"),
        (0, {"p_value": 10**400}, "p_value=1000.* must lie from"),
    ],
)
def test_a_test_of_other_numbers_is_refused(
    place: int, change: dict[str, Any], message: str
) -> None:
    result = clean()
    result.summary[place]["guessing_test"] |= change
    with pytest.raises(ResultError, match=message):
        check_result(result)


def _role(result: Result) -> None:
    result.summary[0]["role"] = "excluded"


def _excluded(result: Result) -> None:
    result.canaries[0] = replace(result.canaries[0], role="excluded")


def _repeated_control(result: Result) -> None:
    result.summary.append(class_row([1.0], repetitions=3, name="random_number"))


def _no_test(result: Result) -> None:
    result.summary[0]["guessing_test"] = [1]


def _nan_hash(result: Result) -> None:
    result.model["weights_sha256"] = float("nan")


def _search_list(result: Result) -> None:
    result.formats[0]["search"] = []


def _interrupted(result: Result) -> None:
    result.formats[0]["search"] = {"interrupted": "no"}


def _too_many(result: Result) -> None:
    result.formats[0]["set_aside"] = 10**9


def _beyond(result: Result) -> None:
    result.canaries[0] = replace(result.canaries[0], exposure=exact(5_000.0))


def _no_estimates(result: Result) -> None:
    shown = exact(3.0) | {"method": "skew_normal"}
    estimates: Any = [1]
    result.canaries[0] = replace(result.canaries[0], exposure=shown, estimates=estimates)


def _odd_estimate(result: Result) -> None:
    shown = exact(3.0) | {"method": "skew_normal"}
    odd = exact(3.0) | {"method": "guessed"}
    result.canaries[0] = replace(result.canaries[0], exposure=shown, estimates={"sampled": odd})


def _odd_attack(result: Result) -> None:
    result.canaries[0].extraction.append("found")  # type: ignore[arg-type]


def _unknown_attack(result: Result) -> None:
    result.canaries[0].extraction[0]["method"] = "oracle"


def _found_beyond(result: Result) -> None:
    result.canaries[0].extraction[0] |= {"found": True, "place": 1_001}


def _found_not(result: Result) -> None:
    result.canaries[0].extraction[0] |= {"found": False, "place": 3}


def _found_word(result: Result) -> None:
    result.canaries[0].extraction[0] |= {"found": "no"}


def _improved(result: Result) -> None:
    result.model["validation"] |= {"validation_bits": 7.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_role, "a row of the summary is of format 'random_number' and role 'excluded'"),
        (_excluded, "has role 'excluded', which is neither canary nor control"),
        (_repeated_control, "repetitions 3, of which the result holds none"),
        (_no_test, r"a guessing test of the summary: \[1\] is no table"),
        (_nan_hash, "weights_sha256 is no text"),
        (_search_list, r"search: \[\] is no table"),
        (_interrupted, "interrupted='no' must be true or false"),
        (_too_many, "fills were inserted or set aside, of 1,000,000,000 that there are"),
        (_beyond, "an exposure of 5000 bits"),
        (_no_estimates, r"estimates: \[1\] is no table"),
        (_odd_estimate, "exposure by 'guessed', which is none of exact"),
        (_odd_attack, "'found' is no table"),
        (_unknown_attack, "method='oracle' is none of best_first"),
        (_found_beyond, "place=1,001 of 1,000 guesses"),
        (_found_not, "place=3 of 1,000 guesses, found=False"),
        (_found_word, "found='no' must be true or false"),
        (_improved, "said to have improved, from 6.5 to 7.0 bits"),
    ],
)
def test_what_cannot_be_is_refused(change: Callable[[Result], None], message: str) -> None:
    result = clean()
    change(result)
    with pytest.raises(ResultError, match=message):
        check_result(result)
