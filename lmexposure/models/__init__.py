"""What reads the corpus: the LSTM language model, loading, packing, training.

Importing this package registers the LSTM with the Auto classes of transformers.
"""

from transformers import AutoConfig, AutoModelForCausalLM

from lmexposure.models.characters import character_tokenizer
from lmexposure.models.encoding import (
    Encoded,
    context_window,
    encode_documents,
    encode_in_context,
)
from lmexposure.models.lstm import LstmConfig, LstmForCausalLM, LstmState

__all__ = [
    "Encoded",
    "LstmConfig",
    "LstmForCausalLM",
    "LstmState",
    "character_tokenizer",
    "context_window",
    "encode_documents",
    "encode_in_context",
]

AutoConfig.register(LstmConfig.model_type, LstmConfig, exist_ok=True)
AutoModelForCausalLM.register(LstmConfig, LstmForCausalLM, exist_ok=True)
