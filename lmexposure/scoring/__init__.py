"""How surprised the model is: log-perplexity in bits, the next-token step, extraction."""

from lmexposure.scoring.extraction import Extraction, Extractor, Guess, beam_width
from lmexposure.scoring.log_perplexity import TokenScores, log_perplexity, score_encoded
from lmexposure.scoring.prefix import Beginning, find_beginning
from lmexposure.scoring.steps import CachedSteps, RecomputedSteps, Steps, next_token_steps

__all__ = [
    "Beginning",
    "CachedSteps",
    "Extraction",
    "Extractor",
    "Guess",
    "RecomputedSteps",
    "Steps",
    "TokenScores",
    "beam_width",
    "find_beginning",
    "log_perplexity",
    "next_token_steps",
    "score_encoded",
]
