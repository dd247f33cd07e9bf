"""How surprised the model is: log-perplexity, the token trie, search over R, extraction."""

from lmexposure.scoring.log_perplexity import TokenScores, log_perplexity, score_encoded
from lmexposure.scoring.near_threshold import NearScores, scores_near
from lmexposure.scoring.search.best_first import Likeliest, likeliest_fills
from lmexposure.scoring.search.draws import Draws, draw_fills
from lmexposure.scoring.search.extraction import Extraction, Extractor, Guess, beam_width
from lmexposure.scoring.search.ranks import Margin, ProvenRank, RankSearch
from lmexposure.scoring.search.rescoring import Rescorer, walked_bits
from lmexposure.scoring.search.walk import Budget, Leaves, Walk
from lmexposure.scoring.space.prefix import Beginning, find_beginning
from lmexposure.scoring.space.token_space import Continuations, Proof, TokenSpace, token_space
from lmexposure.scoring.steps import CachedSteps, RecomputedSteps, Steps, next_token_steps

__all__ = [
    "Beginning",
    "Budget",
    "CachedSteps",
    "Continuations",
    "Draws",
    "Extraction",
    "Extractor",
    "Guess",
    "Leaves",
    "Likeliest",
    "Margin",
    "NearScores",
    "Proof",
    "ProvenRank",
    "RankSearch",
    "RecomputedSteps",
    "Rescorer",
    "Steps",
    "TokenScores",
    "TokenSpace",
    "Walk",
    "beam_width",
    "draw_fills",
    "find_beginning",
    "likeliest_fills",
    "log_perplexity",
    "next_token_steps",
    "score_encoded",
    "scores_near",
    "token_space",
    "walked_bits",
]
