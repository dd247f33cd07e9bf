import numpy as np
import pytest
from tiny import byte_level_bpe, characters, model_of

from lmexposure.errors import InputError, ModelError
from lmexposure.scoring import (
    bits_against_base,
    log_perplexity,
)
from lmexposure.statistics import (
    reference_difference,
)

TEXTS = [f"The random number is {n}" for n in ("281265017", "0", "999")]


def test_each_model_reads_with_its_own_tokenizer() -> None:
    ours, theirs = characters(), byte_level_bpe()
    model, base = model_of("lstm", len(ours)), model_of("gpt2", len(theirs))
    found = bits_against_base(model, ours, base, theirs, TEXTS, context="\n")
    expected = log_perplexity(model, ours, TEXTS, context="\n")
    base_expected = log_perplexity(base, theirs, TEXTS, context="\n")
    np.testing.assert_allclose(found.bits, expected, atol=1e-3)
    np.testing.assert_allclose(found.base_bits, base_expected, atol=1e-3)
    np.testing.assert_allclose(
        reference_difference(found.bits, found.base_bits), base_expected - expected, atol=2e-3
    )


def test_a_model_against_itself_has_no_signal() -> None:
    tokenizer = byte_level_bpe()
    tokenizer.eos_token = None  # the same token goes unscored on both sides
    model = model_of("gpt2", len(tokenizer))
    found = bits_against_base(model, tokenizer, model, tokenizer, TEXTS)
    np.testing.assert_array_equal(found.bits, found.base_bits)


def test_sums_of_different_texts_are_refused() -> None:
    ours, theirs = characters(), byte_level_bpe()
    theirs.eos_token = None
    model, base = model_of("lstm", len(ours)), model_of("gpt2", len(theirs))
    with pytest.raises(ModelError, match="leaves each text's first token unscored"):
        bits_against_base(model, ours, base, theirs, TEXTS)


def test_refusals() -> None:
    tokenizer = characters()
    model = model_of("lstm", len(tokenizer))
    with pytest.raises(InputError, match="texts is one string"):
        bits_against_base(model, tokenizer, model, tokenizer, "My PIN", context="\n")
    with pytest.raises(InputError, match="no texts to score"):
        bits_against_base(model, tokenizer, model, tokenizer, [], context="\n")
