"""Tokenizers of other libraries, as those of transformers: the same ids for the same texts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter

from lmexposure.errors import ModelError

Encode: TypeAlias = Callable[[str], Sequence[int]]
Decode: TypeAlias = Callable[[Sequence[int]], str]

_FUNCTIONS = 3  # encode, decode, and the pieces
_WANTED = (
    "give one of transformers, tokenizers, tiktoken or sentencepiece, or (encode, decode, pieces)"
)
_PROBES = (
    "The quick brown fox, 3,141 times: O'Neil's_42 -- a+b=c!\n",
    "My SSN is 078-05-1120 and my PIN 4071.",
    "abcdefghij ABC xyz 0123456789",
)
_SPACE = "\u2581"  # how sentencepiece writes one
_END = "<|endoftext|>"


def as_tokenizer(given: Any) -> PreTrainedTokenizerBase:
    """A tokenizer of any of these libraries as one of transformers."""
    if isinstance(given, PreTrainedTokenizerBase):
        return given
    library = type(given).__module__.partition(".")[0]
    if isinstance(given, Tokenizer):
        return PreTrainedTokenizerFast(tokenizer_object=given)
    if library == "tiktoken":
        return _checked(_of_tiktoken(given), given.encode_ordinary)
    if library == "sentencepiece":
        return _checked(_of_sentencepiece(given), given.encode)
    if isinstance(given, tuple | list) and len(given) == _FUNCTIONS:
        encode, decode, pieces = given
        if callable(encode) and callable(decode):
            return _of_functions(_said(encode), _said(decode), list(pieces))
    raise ModelError(
        f"tokenizer is of type {type(given).__name__}, which is not known here; {_WANTED}"
    )


class _Ranks(TikTokenConverter):  # type: ignore[misc]  # transformers is not typed
    """The converter of transformers, given ranks and not their file."""

    @staticmethod
    def load_tiktoken_bpe(ranks: Any) -> Any:
        return ranks


def _of_tiktoken(given: Any) -> PreTrainedTokenizerFast:
    made = _Ranks(vocab_file=given._mergeable_ranks, pattern=given._pat_str).converted()
    for text, number in sorted(given._special_tokens.items(), key=lambda pair: pair[1]):
        if number == made.get_vocab_size():  # others have no place among its ids
            made.add_special_tokens([AddedToken(text, normalized=False, special=True)])
    ends = {"eos_token": _END} if made.token_to_id(_END) is not None else {}
    return PreTrainedTokenizerFast(tokenizer_object=made, **ends)


def _of_sentencepiece(given: Any) -> PreTrainedTokenizerFast:
    number = given.get_piece_size()
    pieces = [given.id_to_piece(i) for i in range(number)]
    scores = [given.get_score(i) for i in range(number)]
    unknown, begin, end = given.unk_id(), given.bos_id(), given.eos_id()
    own = [i for i in range(number) if given.is_byte(i) + given.is_control(i) == 0 and i != unknown]
    in_order = [scores[i] for i in own] == [float(-place) for place in range(len(own))]
    bytes_too = any(map(given.is_byte, range(number)))
    if in_order:  # the score of a merge is its rank
        vocabulary = {piece: i for i, piece in enumerate(pieces)}
        model: Any = models.BPE(
            vocab=vocabulary,
            merges=_merges(vocabulary, [pieces[i] for i in own]),
            unk_token=pieces[unknown],
            fuse_unk=True,
            byte_fallback=bytes_too,
        )
    else:
        scored = list(zip(pieces, scores, strict=True))
        model = models.Unigram(scored, unk_id=unknown, byte_fallback=bytes_too)
    made = Tokenizer(model)
    made.normalizer = normalizers.Sequence(
        [
            normalizers.Nmt(),
            normalizers.NFKC(),
            normalizers.Replace(Regex("[ \t\n]+"), " "),
            normalizers.Strip(left=True, right=True),
        ]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme="always")
    made.decoder = decoders.Metaspace(replacement=_SPACE, prepend_scheme="always")
    special = {"unk_token": unknown, "bos_token": begin, "eos_token": end}
    named = {name: pieces[i] for name, i in special.items() if i >= 0}
    return PreTrainedTokenizerFast(tokenizer_object=made, **named)


def _merges(vocabulary: Mapping[str, int], pieces: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs that make each piece, the first made first."""
    rank = {piece: place for place, piece in enumerate(pieces)}
    found = []
    for piece in pieces:
        halves = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        known = [pair for pair in halves if pair[0] in rank and pair[1] in rank]
        found += sorted(known, key=lambda pair: (rank[pair[0]], rank[pair[1]]))
    return found


def _checked(made: PreTrainedTokenizerFast, encode: Encode) -> PreTrainedTokenizerFast:
    """Refuse one that reads texts otherwise than the one that it was made from."""
    for text in _PROBES:
        if made(text, add_special_tokens=False)["input_ids"] != list(encode(text)):
            raise ModelError(
                f"the tokenizer is of a kind that is not followed here: it splits {text!r} "
                "otherwise than its copy; give it as one of transformers or of tokenizers"
            )
    return made


class PieceTokenizer(PreTrainedTokenizer):  # type: ignore[misc]  # transformers is not typed
    """A tokenizer of two functions and the list of what each id spells."""

    def __init__(self, encode: Encode, decode: Decode, pieces: Sequence[str]) -> None:
        self._of_text, self._to_text, self._pieces = encode, decode, list(pieces)
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        super().__init__()

    @property
    def vocab_size(self) -> int:
        """How many pieces there are."""
        return len(self._pieces)

    def get_vocab(self) -> dict[str, int]:
        """Each piece with its id."""
        return dict(self._ids)

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return [self._pieces[i] for i in self._of_text(text)]

    def _convert_token_to_id(self, token: str) -> int:
        return self._ids[token]

    def _convert_id_to_token(self, index: int) -> str:
        return self._pieces[index]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """What these pieces spell together."""
        return self._to_text([self._ids[token] for token in tokens])


def _said(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same, whose failures are said in a sentence."""

    def asked(given: Any) -> Any:
        try:
            return function(given)
        except Exception as failure:
            raise ModelError(
                f"the tokenizer raised {type(failure).__name__} ({failure}) on {given!r:.60}; "
                "encode and decode must take whatever the pieces spell"
            ) from failure

    return asked


def _of_functions(encode: Encode, decode: Decode, pieces: Sequence[str]) -> PreTrainedTokenizerBase:
    if len(set(pieces)) < len(pieces) or not all(isinstance(piece, str) for piece in pieces):
        raise ModelError("pieces must be a list of different texts, one for each id")
    text = "".join(piece for piece in pieces if len(piece) == 1)
    ids = list(encode(text))
    known = all(0 <= i < len(pieces) for i in ids)
    if not known or decode(ids) != text or "".join(pieces[i] for i in ids) != text:
        raise ModelError(
            f"encode gives {ids[:5]} and so on for {text[:5]!r}, which decode or the pieces spell "
            f"otherwise; give the functions that go with these {len(pieces)} pieces, without a "
            "start or an end token"
        )
    if [pieces[i] for i in ids] == list(text) and len(text) == len(pieces):
        # Character by character: a tokenizer that says where its tokens begin.
        vocabulary = {piece: i for i, piece in enumerate(pieces)}
        made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
        made.decoder = decoders.Fuse()
        return PreTrainedTokenizerFast(tokenizer_object=made)
    return PieceTokenizer(encode, decode, pieces)
