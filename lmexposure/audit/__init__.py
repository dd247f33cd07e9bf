"""The whole path as library calls: insert, train, measure, run; joins scoring with statistics."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.audit.demonstration import demo_corpus, demo_settings
    from lmexposure.audit.inserting import insert_corpus, preview, share_warning
    from lmexposure.audit.loading import load_for_measuring
    from lmexposure.audit.measuring import measure
    from lmexposure.audit.progress import Progress, silent
    from lmexposure.audit.scores import epsilon
    from lmexposure.audit.training import train_corpus
    from lmexposure.audit.whole_path import estimate_cost, run
    from lmexposure.records.settings import MeasureSettings, RunSettings
    from lmexposure.records.settings_file import read_settings_file
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(
        __name__,
        {
            "demonstration": ["demo_corpus", "demo_settings"],
            "inserting": ["insert_corpus", "preview", "share_warning"],
            "loading": ["load_for_measuring"],
            "measuring": ["measure"],
            "progress": ["Progress", "silent"],
            "scores": ["epsilon"],
            "training": ["train_corpus"],
            "whole_path": ["estimate_cost", "run"],
            "lmexposure.records.settings": ["MeasureSettings", "RunSettings"],
            "lmexposure.records.settings_file": ["read_settings_file"],
        },
    )

__all__ = [
    "MeasureSettings",
    "Progress",
    "RunSettings",
    "demo_corpus",
    "demo_settings",
    "epsilon",
    "estimate_cost",
    "insert_corpus",
    "load_for_measuring",
    "measure",
    "preview",
    "read_settings_file",
    "run",
    "share_warning",
    "silent",
    "train_corpus",
]
