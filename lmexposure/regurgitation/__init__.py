"""Memorised text without canaries: which documents of its training a model gives back."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.regurgitation.corpus_index import CorpusIndex, Match, look_up
    from lmexposure.regurgitation.look import verbatim
    from lmexposure.studies import VerbatimPassages, VerbatimRecord, VerbatimSettings
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)
