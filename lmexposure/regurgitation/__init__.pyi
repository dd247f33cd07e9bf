"""Made by scripts/stubs of the face, and of what is declared of settings."""

from lmexposure.regurgitation.corpus_index import CorpusIndex as CorpusIndex
from lmexposure.regurgitation.corpus_index import Match as Match
from lmexposure.regurgitation.corpus_index import look_up as look_up
from lmexposure.regurgitation.look import verbatim as verbatim
from lmexposure.studies import VerbatimPassages as VerbatimPassages
from lmexposure.studies import VerbatimRecord as VerbatimRecord
from lmexposure.studies import VerbatimSettings as VerbatimSettings

__all__: list[str]
