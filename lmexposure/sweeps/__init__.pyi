"""Made by scripts/stubs of the face, and of what is declared of settings."""

from lmexposure.studies import SweepPlan as SweepPlan
from lmexposure.studies import SweepResult as SweepResult
from lmexposure.studies import SweepSettings as SweepSettings
from lmexposure.sweeps.analysis import analyse as analyse
from lmexposure.sweeps.driver import Cost as Cost
from lmexposure.sweeps.driver import check_workers as check_workers
from lmexposure.sweeps.driver import collect as collect
from lmexposure.sweeps.driver import models_seconds as models_seconds
from lmexposure.sweeps.driver import sweep as sweep
from lmexposure.sweeps.driver import timed_training as timed_training
from lmexposure.sweeps.driver import train_models as train_models
from lmexposure.sweeps.driver import workers_for as workers_for
from lmexposure.sweeps.matrices import Matrices as Matrices
from lmexposure.sweeps.matrices import read_matrices as read_matrices
from lmexposure.sweeps.plan import prepare as prepare
from lmexposure.sweeps.rates import Group as Group
from lmexposure.sweeps.rates import attack_cells as attack_cells
from lmexposure.sweeps.rates import part_rates as part_rates
from lmexposure.sweeps.rates import places_of_kinds as places_of_kinds
from lmexposure.sweeps.task import SweepDirectory as SweepDirectory
from lmexposure.sweeps.task import run_task as run_task
from lmexposure.sweeps.task import train_alone as train_alone

__all__: list[str]
