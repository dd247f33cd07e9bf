"""The small GPT-2 and its byte-level BPE."""

from transformers import GPT2LMHeadModel

from lmexposure.models import (
    byte_level_tokenizer,
    tiny_gpt2_config,
)

DOCUMENTS = [f"line {i}: the cat sat on the mat, and <|endoftext|> is text" for i in range(50)]


def test_training_twice_gives_the_same_tokenizer() -> None:
    first, second = (byte_level_tokenizer(DOCUMENTS, vocab_size=300) for _ in range(2))
    assert first.backend_tokenizer.to_str() == second.backend_tokenizer.to_str()


def test_any_text_survives_and_nothing_is_unknown() -> None:
    tokenizer = byte_level_tokenizer(DOCUMENTS)
    text = "  é 漢\r\n\t<|endoftext|> 🙂\x00"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.eos_token_id not in tokenizer.encode(text)
    assert tokenizer.pad_token_id is None


def test_the_vocabulary_is_as_small_as_the_corpus() -> None:
    assert len(byte_level_tokenizer(["ab"])) == 257 + 1  # all bytes, end of text, the merge "ab"
    assert len(byte_level_tokenizer(DOCUMENTS, vocab_size=270)) == 270


def test_the_config_is_small_and_ends_with_its_tokenizers_token() -> None:
    tokenizer = byte_level_tokenizer(DOCUMENTS)
    model = GPT2LMHeadModel(tiny_gpt2_config(tokenizer))
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert model.config.n_positions == 256
    assert 0.8e6 < model.num_parameters() < 1.2e6
