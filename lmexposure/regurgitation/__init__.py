"""Memorised text without canaries: which documents of its training a model gives back.

`windows.py` draws prompts from a corpus, `runs.py` finds the longest text that greedy decoding
follows, `corpus_index.py` says where a text is, and what of a corpus free samples hold,
`controls.py` asks what any model would give, and `look.py` is the whole look.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.regurgitation.corpus_index import CorpusIndex, Match, look_up
    from lmexposure.regurgitation.look import verbatim
    from lmexposure.studies import VerbatimPassages, VerbatimRecord, VerbatimSettings
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)
