"""Measure how much of its training data a language model gives away.

>>> import lmexposure as lx
>>> texts, manifest = lx.insert(["one", "two", "three"], formats=["pin"], repetitions=(2,), seed=7)
>>> len(texts), len(manifest.canaries)
(23, 10)

A model that was trained on `texts` is measured by `lx.measure(model, manifest, tokenizer=...)`;
what comes back goes into `lx.check` and `lx.report`. The rooms behind these names hold more:
`lmexposure.canaries` (what is hidden), `lmexposure.models` (what reads it), `lmexposure.scoring`
(how surprised the model is), `lmexposure.statistics` (what the numbers mean), `lmexposure.audit`
(the pipeline), `lmexposure.sweeps` (many models), `lmexposure.integrations` (data pipelines and
trainers). Names are imported when they are asked for, so that this module itself imports nothing
heavy.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.audit import epsilon, read_scores, write_texts
    from lmexposure.calls import (
        canife,
        compare_defences,
        identifiers,
        measure,
        run,
        sweep,
        verbatim,
    )
    from lmexposure.canaries import Format, InsertionStep, Manifest, Plan, insert_files
    from lmexposure.core import Thresholds
    from lmexposure.doors import check, compare, open, report
    from lmexposure.federated import audit_update
    from lmexposure.integrations import ExposureCallback, Wrapping, insert, remove, verify
    from lmexposure.models import GradientCanaries, dp_check, language_model, load_model
    from lmexposure.statistics import exposure
    from lmexposure.studies import Result
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)


__version__ = "0.1.0"
