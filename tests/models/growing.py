"""Small models and tokenizers that grow, and canaries with a symbol each."""

from typing import Any

from tiny import TEXT, byte_level_bpe, characters, model_of, sentence_piece_bpe, word_piece
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lmexposure.canaries import Format, Plan
from lmexposure.integrations import insert
from lmexposure.models import LoadedModel

SYMBOLS = tuple(chr(0xE000 + i) for i in range(5))


def word_level() -> Any:
    words = {"<unk>": 0} | {word: i for i, word in enumerate(sorted(set(TEXT.split())), 1)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


TOKENIZERS = {
    made.__name__: made
    for made in (characters, byte_level_bpe, sentence_piece_bpe, word_piece, word_level)
}
NEW = Format.of_texts(
    "new_token",
    [f"line {i} of a corpus {symbol}" for i, symbol in enumerate(SYMBOLS[:4])],
    kind="new_token",
    known=[len("line 0 of a corpus ")] * 4,
)
PLAN = Plan(formats=(NEW,), canaries=3, repetitions=(1,), controls=1, seed=3)
MANIFEST = insert([f"line {i}" for i in range(20)], PLAN)[1]


def loaded_of(kind: str, tokenizer: str) -> LoadedModel:
    made = TOKENIZERS[tokenizer]()
    return LoadedModel(model=model_of(kind, len(made)), tokenizer=made, name="small")
