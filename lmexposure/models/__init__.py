"""What reads the corpus: the LSTM language model, loading, packing, training.

Importing this package registers the LSTM with the Auto classes of transformers.
"""

from typing import TYPE_CHECKING

from lmexposure.models.quantised import without_torchao as _without_torchao

with _without_torchao():
    from lmexposure.models import lstm

if TYPE_CHECKING:
    from lmexposure._saved_models import NEW_MODELS, base_of_adapter, is_adapter
    from lmexposure.models.adapters import (
        active_adapters,
        adapters_off,
        as_loaded,
        base_sha256,
        check_switch,
        comes_off,
        unmerged_adapters,
    )
    from lmexposure.models.behind_source import BehindSource, as_causal
    from lmexposure.models.chat_rows import (
        TrainingRow,
        check_template,
        dated,
        record_text,
        row_context,
        template_record,
        template_sha256,
        training_rows,
    )
    from lmexposure.models.dp_accounting import (
        Spent,
        epsilon_at_least,
        epsilon_spent,
        group_epsilon,
        noise_for,
    )
    from lmexposure.models.dp_checker import DpCheck, dp_check
    from lmexposure.models.dp_randomness import DpBatches
    from lmexposure.models.dp_training import DpFinding
    from lmexposure.models.dp_updates import TwoBatches, two_batches
    from lmexposure.models.encoding import (
        SOURCE_ENDS,
        AnyContext,
        Context,
        Placed,
        context_window,
        encode_documents,
        encode_in_context,
        encode_rows,
        is_tokenizer,
        is_usable_tokenizer,
        place_documents,
        secret_tokens,
        tokenizer_named,
        tokenizer_sha256,
        window_of,
    )
    from lmexposure.models.federated_audit import FederatedAudit, federated_training
    from lmexposure.models.federated_rounds import (
        CraftedCanary,
        RoundScores,
        audit_update,
        clients_of,
        clipped,
        design_canary,
        local_update,
        mock_rounds,
        noisy_sum,
        random_canary,
    )
    from lmexposure.models.functions import FunctionLm, built_model, language_model
    from lmexposure.models.gradient_canaries import GradientCanaries
    from lmexposure.models.load import (
        LoadedModel,
        check_causal,
        check_device,
        check_fit,
        check_name,
        load_model,
        model_outline,
        model_shape,
        save_model,
    )
    from lmexposure.models.lstm import LstmConfig, LstmForCausalLM, LstmState
    from lmexposure.models.memory import ModelShape, free_memory, product_rate
    from lmexposure.models.methods import left_out, masked
    from lmexposure.models.new_models import (
        LstmSizes,
        byte_level_tokenizer,
        character_tokenizer,
        check_lora,
        new_model,
        new_tokenizer,
        tiny_gpt2_config,
    )
    from lmexposure.models.new_tokens import (
        add_tokens,
        check_learns,
        check_tokens,
        grow,
        new_token_texts,
    )
    from lmexposure.models.packing import IGNORED, Packed, has_length, held_out, is_stream, pack
    from lmexposure.models.quantised import is_quantised, precision_notes
    from lmexposure.models.trainer import Progress, ProgressCallback, damaged_model
    from lmexposure.models.training import check_private, train
    from lmexposure.models.weights import (
        check_embeddings_are_here,
        computing_threads,
        holding,
        instead,
        is_sharded,
        random_numbers,
        threads_for,
        training_places,
        warn_imitated,
        weights_away,
        weights_sha256,
    )
    from lmexposure.studies import TrainingResult, TrainingSettings
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)
