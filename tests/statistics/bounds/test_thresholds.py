import math

import pytest

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    Bonferroni,
    FixedThreshold,
    SplitSample,
)


def test_refusals() -> None:
    with pytest.raises(SettingsError, match=r"value=\[1, 2\] must be one number; see Bonferroni"):
        FixedThreshold(value=[1, 2])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"value\[0\]=inf is not finite"):
        FixedThreshold(value=math.inf)
    with pytest.raises(SettingsError, match="fraction=1 must lie strictly between 0 and 1"):
        SplitSample(fraction=1)
    with pytest.raises(SettingsError, match=r"grid=2\.0 must lie strictly between 0 and 1"):
        Bonferroni(grid=(0.5, 2.0))
    with pytest.raises(InputError, match="grid has shape"):
        Bonferroni(grid=())
    with pytest.raises(SettingsError, match="by='rank' must be one of share, value"):
        Bonferroni(by="rank")
    assert Bonferroni(grid=(-3, 2.0), by="value").grid == (-3, 2.0)
