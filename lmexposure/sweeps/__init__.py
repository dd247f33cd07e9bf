"""Many models: one plan with coins, a task a model, matrices of scores, one result.

`plan.py` tosses the coins before anything is trained; `task.py` trains and scores one model;
`driver.py` has all of them done, here or on Ray, resumes, and joins their scores; `analysis.py`
says what they mean.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.studies import SweepPlan, SweepResult, SweepSettings
    from lmexposure.sweeps.analysis import analyse
    from lmexposure.sweeps.driver import (
        Cost,
        check_workers,
        collect,
        models_seconds,
        sweep,
        timed_training,
        train_models,
        workers_for,
    )
    from lmexposure.sweeps.matrices import Matrices, read_matrices
    from lmexposure.sweeps.plan import prepare
    from lmexposure.sweeps.rates import Group, attack_cells, part_rates, places_of_kinds
    from lmexposure.sweeps.task import SweepDirectory, run_task, train_alone
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)
