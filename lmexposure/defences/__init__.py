"""Defences side by side: at one utility, with strong DP-SGD baselines, under attacks that fit.

Source: Aerni, Zhang, Tramèr 2024, "Evaluations of Machine Learning Privacy Defenses are Misleading"
(arXiv 2404.17399).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.defences.catalogue import DEFENCES, Defence, Knob, Reference
    from lmexposure.defences.comparison import Compared, Comparison, prepare_comparison
    from lmexposure.defences.driver import Found, compare_defences, search
    from lmexposure.defences.needs import check_models
    from lmexposure.studies import DefencesSettings
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)
