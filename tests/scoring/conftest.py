from typing import Any

import pytest
from tiny import byte_level_bpe, characters, model_with_tokenizer


@pytest.fixture(params=["lstm", "gpt2", "llama", "mistral"])
def model_and_tokenizer(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return model_with_tokenizer(
        request.param, characters if request.param == "lstm" else byte_level_bpe
    )
