"""How surprised the model is: log-perplexity, the token trie, search over R, extraction."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.scoring.base_model import BaseModel, base_of, load_base, own_base
    from lmexposure.scoring.beginnings import Beginning, find_beginning
    from lmexposure.scoring.branch_and_bound import BranchAndBound, Budget, Leaves
    from lmexposure.scoring.cached_steps import CachedSteps, PathSteps
    from lmexposure.scoring.exact_search import (
        Likeliest,
        ProvenRank,
        RankSearch,
        Rescorer,
        likeliest_fills,
        walked_bits,
    )
    from lmexposure.scoring.extraction import Extractor, SecretSearch, beam_width
    from lmexposure.scoring.importance_draws import Draws, draw_fills
    from lmexposure.scoring.near_matches import METRICS, NearSearch, near_verbatim
    from lmexposure.scoring.perplexity import (
        TokenDetails,
        details_of_encoded,
        label_only,
        log_perplexity,
        score_encoded,
        token_pace,
    )
    from lmexposure.scoring.runtime import (
        MODEL_FAILURES,
        evaluation_mode,
        failure_text,
        from_all,
        from_first,
        in_loader_worker,
        noting_shortage,
        out_of_memory,
        return_memory,
        same_random_numbers,
        single_process,
    )
    from lmexposure.scoring.spelling import Vocabulary
    from lmexposure.scoring.steps import (
        RecomputedSteps,
        Steps,
        WholeSteps,
        next_token_steps,
        step_pace,
    )
    from lmexposure.scoring.token_spaces import TokenSpace, token_space
    from lmexposure.scoring.torch_model import (
        AnyModel,
        TorchModel,
        any_model,
        check_model,
        chosen_device,
        load_for_measuring,
        model_in_memory,
    )
    from lmexposure.scoring.windows import (
        DecodingRule,
        WindowScores,
        greedy_tokens,
        sample_tokens,
        sampling_work,
        score_windows,
    )
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)
