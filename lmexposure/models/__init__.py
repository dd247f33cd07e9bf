"""What reads the corpus: the LSTM language model, loading, packing, training.

Importing this package registers the LSTM with the Auto classes of transformers.
"""

from transformers import AutoConfig, AutoModelForCausalLM

from lmexposure.models.adapters import active_adapters, adapters_beside, as_loaded
from lmexposure.models.characters import character_tokenizer
from lmexposure.models.deliveries import check_deliveries, count_deliveries
from lmexposure.models.encoding import Encoded, context_window, encode_documents, encode_in_context
from lmexposure.models.half_precision import is_native, warn_imitated
from lmexposure.models.load import (
    LoadedModel,
    check_causal,
    check_device,
    check_fit,
    check_name,
    is_usable,
    load_model,
    save_model,
    weights_sha256,
)
from lmexposure.models.lstm import LstmConfig, LstmForCausalLM, LstmState
from lmexposure.models.new import NEW_MODELS, LstmSizes, new_model
from lmexposure.models.packing import IGNORED, Packed, pack
from lmexposure.models.threads import computing_threads, threads_for
from lmexposure.models.tiny_gpt2 import byte_level_tokenizer, tiny_gpt2_config
from lmexposure.models.trainer import Progress, ProgressCallback
from lmexposure.models.training import TrainingResult, damaged_model, train
from lmexposure.models.validation import split_validation
from lmexposure.records import TrainingSettings

__all__ = [
    "IGNORED",
    "NEW_MODELS",
    "Encoded",
    "LoadedModel",
    "LstmConfig",
    "LstmForCausalLM",
    "LstmSizes",
    "LstmState",
    "Packed",
    "Progress",
    "ProgressCallback",
    "TrainingResult",
    "TrainingSettings",
    "active_adapters",
    "adapters_beside",
    "as_loaded",
    "byte_level_tokenizer",
    "character_tokenizer",
    "check_causal",
    "check_deliveries",
    "check_device",
    "check_fit",
    "check_name",
    "computing_threads",
    "context_window",
    "count_deliveries",
    "damaged_model",
    "encode_documents",
    "encode_in_context",
    "is_native",
    "is_usable",
    "load_model",
    "new_model",
    "pack",
    "save_model",
    "split_validation",
    "threads_for",
    "tiny_gpt2_config",
    "train",
    "warn_imitated",
    "weights_sha256",
]

AutoConfig.register(LstmConfig.model_type, LstmConfig, exist_ok=True)
AutoModelForCausalLM.register(LstmConfig, LstmForCausalLM, exist_ok=True)
