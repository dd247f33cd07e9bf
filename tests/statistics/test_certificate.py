import json
import math

import numpy as np
import pytest

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import certified_exposure


@pytest.mark.parametrize("seed", range(20))
def test_never_above_the_exposure_found_by_counting(seed: int) -> None:
    # A model over 64 fills: whatever its probabilities, counting gives the rank.
    rng = np.random.default_rng(seed)
    share = 1.0 if seed % 2 else 0.6  # the model may spend some of its belief elsewhere
    bits = -np.log2(share * rng.dirichlet(np.full(64, 0.1)) + 1e-300)
    rank = np.array([(bits <= own).sum() for own in bits])
    result = certified_exposure(6.0, bits)
    assert (result.low <= 6.0 - np.log2(rank) + 1e-9).all()


def test_it_is_tight_where_the_model_cannot_choose() -> None:
    # 2^k fills share all belief evenly: each costs k bits, and ties make each rank 2^k.
    assert certified_exposure(10.0, [0.0, 3.0, 10.0]).low.tolist() == [10.0, 7.0, 0.0]


def test_no_memorisation_certifies_nothing() -> None:
    assert certified_exposure(29.9, [29.9, 40.0]).low.tolist() == [0.0, 0.0]


def test_published_canary() -> None:
    # Carlini et al. 2019, Table 1: nine digits at 14.63 bits. The prefix cost part of them, so
    # that the exposure is at least 29.90 - 14.63.
    assert certified_exposure(math.log2(10**9), 14.63).low == pytest.approx([15.2674], abs=1e-4)


def test_rows_are_plain_and_say_at_least() -> None:
    result = certified_exposure(8.0, [2.0, 9.0])
    row = json.loads(json.dumps(result.row(0)))
    assert (row["value"], row["low"], row["high"], row["capped"]) == (6.0, 6.0, 8.0, True)
    assert (row["level"], row["rank"], row["method"]) == (1.0, None, "certificate")
    assert "every fill shares the token prefix before the scored part" in row["assumptions"]
    assert json.loads(json.dumps(result.to_dict()))["low"] == [6.0, 0.0]


def test_refusals() -> None:
    with pytest.raises(InputError, match=r"secret_bits\[1\]=-1\.0 must be at least 0"):
        certified_exposure(8.0, [1.0, -1.0])
    with pytest.raises(InputError, match=r"secret_bits\[0\]=inf is not finite"):
        certified_exposure(8.0, math.inf)
    with pytest.raises(SettingsError, match="space_bits=0 must be a finite number above 0"):
        certified_exposure(0, 1.0)
