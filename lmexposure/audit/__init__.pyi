"""Made by scripts/stubs of the face, and of what is declared of settings."""

from lmexposure.audit.ahead import check_ahead as check_ahead
from lmexposure.audit.ahead import check_out as check_out
from lmexposure.audit.ahead import models_ahead as models_ahead
from lmexposure.audit.context import ScoringContext as ScoringContext
from lmexposure.audit.context import recorded_training as recorded_training
from lmexposure.audit.context import rows_beside as rows_beside
from lmexposure.audit.context import scoring_context as scoring_context
from lmexposure.audit.context import told_wrapping as told_wrapping
from lmexposure.audit.corpus import fitted as fitted
from lmexposure.audit.corpus import insert_corpus as insert_corpus
from lmexposure.audit.corpus import insert_for_training as insert_for_training
from lmexposure.audit.corpus import max_attainable as max_attainable
from lmexposure.audit.corpus import plan_of as plan_of
from lmexposure.audit.corpus import preview as preview
from lmexposure.audit.corpus import share_warning as share_warning
from lmexposure.audit.corpus import wrapping_of as wrapping_of
from lmexposure.audit.directory import RunLog as RunLog
from lmexposure.audit.directory import refuse_foreign as refuse_foreign
from lmexposure.audit.identifier_comparison import natural_identifiers as natural_identifiers
from lmexposure.audit.kinds import refuse_kinds_of_run as refuse_kinds_of_run
from lmexposure.audit.measurement import measure as measure
from lmexposure.audit.measurement import measure_checkpoints as measure_checkpoints
from lmexposure.audit.pipeline import demo_corpus as demo_corpus
from lmexposure.audit.pipeline import demo_settings as demo_settings
from lmexposure.audit.pipeline import estimate_cost as estimate_cost
from lmexposure.audit.pipeline import run as run
from lmexposure.audit.pipeline import spooled_corpus as spooled_corpus
from lmexposure.audit.privacy import epsilon as epsilon
from lmexposure.audit.privacy import epsilon_of_columns as epsilon_of_columns
from lmexposure.audit.training import check_private_training as check_private_training
from lmexposure.audit.training import train_corpus as train_corpus
from lmexposure.audit.training import training_settings as training_settings
from lmexposure.audit.workload import Progress as Progress
from lmexposure.audit.workload import RowsAhead as RowsAhead
from lmexposure.audit.workload import Speaker as Speaker
from lmexposure.audit.workload import Watcher as Watcher
from lmexposure.audit.workload import forecast_measurement as forecast_measurement
from lmexposure.audit.workload import rows_ahead as rows_ahead
from lmexposure.audit.workload import silent as silent
from lmexposure.audit.workload import template_difference as template_difference
from lmexposure.studies import IdentifierSettings as IdentifierSettings
from lmexposure.studies import MeasureSettings as MeasureSettings
from lmexposure.studies import RunSettings as RunSettings

__all__: list[str]
