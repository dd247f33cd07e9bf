"""Tokenizers that other libraries made, here and without a network, give the same ids here."""

import io
import re
from typing import Any

import pytest
import sentencepiece
import tiktoken
from tiny import TEXT

from lmexposure.errors import ModelError
from lmexposure.models.other_tokenizers import as_tokenizer

LINES = [line for line in re.split(r"(?<=\d\.) ", TEXT) if line]
PIECES = (b"th", b"he", b"the", b" n", b" nu", b"28", b"281", b" P", b"IN", b"00", b"42")
CUT = r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s+(?!\S)|\s+"


def of_tiktoken() -> tiktoken.Encoding:
    ranks = {piece: n for n, piece in enumerate([*(bytes([byte]) for byte in range(256)), *PIECES])}
    return tiktoken.Encoding(
        "own", pat_str=CUT, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)}
    )


def of_sentencepiece(kind: str, **options: Any) -> Any:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=written,
        model_type=kind,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


def test_tiktoken_gives_the_same_ids() -> None:
    theirs = of_tiktoken()
    ours = as_tokenizer(theirs)
    assert (len(ours), ours.eos_token_id) == (theirs.n_vocab, theirs.eot_token)
    for text in (TEXT, *LINES, "Ünï ćødé\n\n 7"):
        ids = ours(text, add_special_tokens=False)["input_ids"]
        assert ids == theirs.encode_ordinary(text)
        assert ours.decode(ids) == text


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char"])
def test_sentencepiece_gives_the_same_ids(kind: str) -> None:
    theirs = of_sentencepiece(kind)
    ours = as_tokenizer(theirs)
    assert (len(ours), ours.bos_token_id) == (theirs.get_piece_size(), theirs.bos_id())
    for text in (TEXT, *LINES, " My  PIN", "a piece that is unknown"):
        ids = ours(text, add_special_tokens=False)["input_ids"]
        assert ids == theirs.encode(text)
        assert theirs.unk_id() in ids or ours.decode(ids) == theirs.decode(ids)


def test_one_that_reads_texts_in_another_way_is_refused() -> None:
    with pytest.raises(ModelError, match="is of a kind that is not followed here: it splits"):
        as_tokenizer(of_sentencepiece("bpe", add_dummy_prefix=False))
