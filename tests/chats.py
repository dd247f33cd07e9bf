"""A chat template that marks its answers, and small tokenizers that have it."""

from collections.abc import Mapping
from typing import Any

from lmexposure.canaries import Wrapping
from lmexposure.models import TrainingRow, byte_level_tokenizer, training_rows

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>\n{% endgeneration %}"
    "{% else %}{{ m.content }}<|end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def chat_tokenizer() -> Any:
    tokenizer = byte_level_tokenizer(["My PIN is 4711. <|user|>\n<|assistant|>\n<|end|>"] * 9)
    tokenizer.chat_template = TEMPLATE
    tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def training_row(tokenizer: Any, record: Mapping[str, Any], wrapping: Wrapping) -> TrainingRow:
    return next(training_rows(tokenizer, [record], wrapping))
