"""How surprised the model is: log-perplexity, the token trie, search over R, extraction."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.scoring.branch_and_bound import Budget, Leaves, Walk
    from lmexposure.scoring.cached_steps import CachedSteps, PathSteps
    from lmexposure.scoring.exact_search import (
        Likeliest,
        Margin,
        ProvenRank,
        RankSearch,
        likeliest_fills,
    )
    from lmexposure.scoring.extraction import Extraction, Extractor, Guess, Wish, beam_width
    from lmexposure.scoring.importance_draws import Draws, draw_fills
    from lmexposure.scoring.per_token import LabelOnly, TokenDetails, label_only, token_details
    from lmexposure.scoring.perplexity import (
        AgainstBase,
        TokenScores,
        bits_against_base,
        log_perplexity,
        score_encoded,
    )
    from lmexposure.scoring.rescoring import Rescorer, walked_bits
    from lmexposure.scoring.runtime import UNABLE, alone, evaluation_mode, same_random_numbers
    from lmexposure.scoring.spelling import Beginning, Vocabulary, find_beginning
    from lmexposure.scoring.steps import (
        RecomputedSteps,
        Steps,
        next_token_steps,
    )
    from lmexposure.scoring.token_spaces import Continuations, Proof, TokenSpace, token_space
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

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
