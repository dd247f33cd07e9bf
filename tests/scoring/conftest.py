from typing import Any

import pytest
from tiny import byte_level_bpe, characters, model_of


@pytest.fixture(params=["lstm", "gpt2", "llama", "mistral"])
def model_and_tokenizer(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    tokenizer = characters() if request.param == "lstm" else byte_level_bpe()
    return model_of(request.param, len(tokenizer)), tokenizer
