"""How surprised the model is: log-perplexity, the token trie, search over R, extraction."""

from lmexposure.scoring.against_base import AgainstBase, bits_against_base
from lmexposure.scoring.batching import UNABLE
from lmexposure.scoring.evaluation import evaluation_mode, same_random_numbers
from lmexposure.scoring.label_only import LabelOnly, label_only
from lmexposure.scoring.log_perplexity import TokenScores, log_perplexity, score_encoded
from lmexposure.scoring.search.best_first import Likeliest, likeliest_fills
from lmexposure.scoring.search.draws import Draws, draw_fills
from lmexposure.scoring.search.extraction import Extraction, Extractor, Guess, Wish, beam_width
from lmexposure.scoring.search.ranks import Margin, ProvenRank, RankSearch
from lmexposure.scoring.search.rescoring import Rescorer, walked_bits
from lmexposure.scoring.search.walk import Budget, Leaves, Walk
from lmexposure.scoring.space.prefix import Beginning, find_beginning
from lmexposure.scoring.space.token_space import Continuations, Proof, TokenSpace, token_space
from lmexposure.scoring.space.vocabulary import Vocabulary
from lmexposure.scoring.spans import alone
from lmexposure.scoring.steps import (
    CachedSteps,
    PathSteps,
    RecomputedSteps,
    Steps,
    next_token_steps,
)
from lmexposure.scoring.token_details import TokenDetails, token_details

__all__ = [
    "UNABLE",
    "AgainstBase",
    "Beginning",
    "Budget",
    "CachedSteps",
    "Continuations",
    "Draws",
    "Extraction",
    "Extractor",
    "Guess",
    "LabelOnly",
    "Leaves",
    "Likeliest",
    "Margin",
    "PathSteps",
    "Proof",
    "ProvenRank",
    "RankSearch",
    "RecomputedSteps",
    "Rescorer",
    "Steps",
    "TokenDetails",
    "TokenScores",
    "TokenSpace",
    "Vocabulary",
    "Walk",
    "Wish",
    "alone",
    "beam_width",
    "bits_against_base",
    "draw_fills",
    "evaluation_mode",
    "find_beginning",
    "label_only",
    "likeliest_fills",
    "log_perplexity",
    "next_token_steps",
    "same_random_numbers",
    "score_encoded",
    "token_details",
    "token_space",
    "walked_bits",
]
