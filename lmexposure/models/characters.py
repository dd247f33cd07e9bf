"""A tokenizer with one token per character, lossless in both directions."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

UNKNOWN = "<unk>"
END_OF_TEXT = "<|endoftext|>"


def character_tokenizer(
    texts: Iterable[str], *, extra_characters: str = ""
) -> PreTrainedTokenizerFast:
    """Make a tokenizer that knows the characters of the texts, in code-point order.

    A text that spells out a special token, `<unk>` say, is read as its characters.

    Args:
        texts: the corpus, in any order and division.
        extra_characters: characters to know besides, such as all that a format may draw.

    Returns:
        a tokenizer with ids 0 `<unk>`, 1 `<|endoftext|>` (between documents), then the characters;
        `save_pretrained` and `AutoTokenizer.from_pretrained` keep it as it is.

    >>> character_tokenizer(["banana"]).encode("nab")
    [4, 2, 3]
    """
    characters = set(extra_characters)
    for text in texts:
        characters.update(text)
    vocabulary = {UNKNOWN: 0, END_OF_TEXT: 1}
    vocabulary |= {character: 2 + i for i, character in enumerate(sorted(characters))}
    # BPE without merges splits into characters, and Fuse joins them again without adding spaces.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=UNKNOWN,
        eos_token=END_OF_TEXT,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )
