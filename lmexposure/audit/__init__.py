"""The pipeline as library calls: insert, train, measure, run; joins scoring with statistics."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.audit.ahead import check_ahead, check_out, models_ahead
    from lmexposure.audit.context import (
        recorded_training,
        rows_beside,
        scoring_context,
        told_wrapping,
    )
    from lmexposure.audit.corpus import (
        fitted,
        insert_corpus,
        insert_for_training,
        max_attainable,
        plan_of,
        preview,
        refuse_share,
        share_ahead,
        share_warning,
        wrapping_of,
    )
    from lmexposure.audit.directory import RunLog, refuse_foreign
    from lmexposure.audit.identifier_comparison import natural_identifiers
    from lmexposure.audit.kinds import refuse_kinds_of_run
    from lmexposure.audit.measurement import measure, measure_checkpoints
    from lmexposure.audit.pipeline import (
        demo_corpus,
        demo_settings,
        estimate_cost,
        run,
        spooled_corpus,
    )
    from lmexposure.audit.privacy import epsilon, epsilon_of_columns
    from lmexposure.audit.scored_texts import ScoredTexts, read_scores, write_texts
    from lmexposure.audit.training import check_private_training, train_corpus, training_settings
    from lmexposure.audit.workload import (
        Progress,
        Speaker,
        Watcher,
        forecast_measurement,
        rows_ahead,
        silent,
        template_difference,
    )
    from lmexposure.studies import IdentifierSettings, MeasureSettings, RunSettings
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)
