"""The name of a tokenizer is that of its tokens and their numbers, and of nothing else."""

from pathlib import Path

from tiny import byte_level_bpe, characters
from transformers import AutoTokenizer

from lmexposure.models import tokenizer_sha256


def test_settings_and_templates_do_not_change_it_and_tokens_do(tmp_path: Path) -> None:
    tokenizer = byte_level_bpe()
    name = tokenizer_sha256(tokenizer)
    tokenizer.chat_template = "{{ messages }}"
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer("a", truncation=True, max_length=3)
    assert tokenizer_sha256(tokenizer) == name
    tokenizer.save_pretrained(tmp_path)
    assert tokenizer_sha256(AutoTokenizer.from_pretrained(tmp_path)) == name
    tokenizer.add_tokens(["<|turn|>"])
    assert len({name, tokenizer_sha256(tokenizer), tokenizer_sha256(characters())}) == 3
