"""Classes that may be compared: repetitions apart, formats by places or apart."""

import numpy as np
import pytest

from lmexposure.errors import InputError
from lmexposure.statistics import score_classes

SCORES = [1.0, 2.0, 3.0, 100.0, 300.0, 200.0, 9.0]
ROLES = ["canary", "excluded", "reference", "canary", "excluded", "reference", "control"]
COPIES = [1, 1, 0, 1, 1, 0, 0]
FORMATS = ["pin", "pin", "pin", "ssn", "ssn", "ssn", "pin"]


def test_formats_that_stand_apart_keep_their_scores() -> None:
    pin, ssn = score_classes(SCORES, ROLES, COPIES, FORMATS, pooled=False)
    assert (pin.formats, ssn.formats) == (("pin",), ("ssn",))
    assert pin.scores.tolist() == [1.0, 2.0]
    assert pin.included.tolist() == [True, False]
    assert pin.references.tolist() == [3.0]  # the control is left aside
    assert ssn.outside.tolist() == [300.0, 200.0]


def test_pooled_formats_are_compared_by_their_places() -> None:
    (one,) = score_classes(SCORES, ROLES, COPIES, FORMATS, pooled=True)
    assert one.formats == ("pin", "ssn")
    assert one.scores.tolist() == pytest.approx([1 / 3, 2 / 3, 1 / 3, 1.0])
    assert one.references.tolist() == pytest.approx([1.0, 2 / 3])


def test_one_format_keeps_its_scores_when_pooled() -> None:
    (one,) = score_classes([1.0, 5.0], ["canary", "excluded"], [2, 2], ["", ""], pooled=True)
    assert one.scores.tolist() == [1.0, 5.0]
    assert one.repetitions == 2


def test_equal_scores_have_equal_places() -> None:
    form = ["a", "a", "b"]
    (one,) = score_classes(
        [1.0, 1.0, 7.0], ["canary", "excluded", "canary"], [1] * 3, form, pooled=True
    )
    assert one.scores[0] == one.scores[1]


def test_classes_of_repetitions_are_never_pooled() -> None:
    found = score_classes(SCORES[:3], ROLES[:3], [1, 16, 0], FORMATS[:3], pooled=True)
    assert [one.repetitions for one in found] == [1, 16]
    assert [one.scores.size for one in found] == [1, 1]
    assert all(one.references.tolist() == [3.0] for one in found)


@pytest.mark.parametrize("copies", [1.5, 0, -1, np.nan, np.inf])
def test_repetitions_are_whole_numbers(copies: float) -> None:
    with pytest.raises(InputError, match=r"row 2: repetitions=.* must be a whole number from 1"):
        score_classes(SCORES[:2], ROLES[:2], [1, copies], FORMATS[:2], pooled=True)


def test_what_does_not_fit_is_refused_without_showing_it() -> None:
    with pytest.raises(InputError, match="1 roles are none of canary, excluded") as refused:
        score_classes([1.0], ["my secret"], [1], ["a"], pooled=True)
    assert "my secret" not in str(refused.value)
    with pytest.raises(InputError, match="1 scores, 2 roles"):
        score_classes([1.0], ["canary", "canary"], [1], ["a"], pooled=True)
    with pytest.raises(InputError, match="is not finite"):
        score_classes([np.nan], ["canary"], [1], ["a"], pooled=True)
