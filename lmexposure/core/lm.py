"""What a measurement asks of a language model: ten members in three protocols, and no library.

`LanguageModel` gives bits of texts: enough for ranks among references, coins and epsilon. A
`TokenModel` also says how it came to them, token by token; a `Stepping` one answers behind any
prefix, which exact ranks, extraction and free samples need. The implementations are in `scoring`,
a model of transformers first of all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Steps_co = TypeVar("Steps_co", covariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """Tokens of a text in context."""

    ids: list[int]  # start token if there is one, then the tokens of context and text together
    # ids[scored_from:] belong to the text; at least 1, since nothing predicts the first token. A
    # token that straddles context and text belongs to the text.
    scored_from: int
    # the text's own first token is at position 0 and goes unscored, because the tokenizer has
    # neither BOS nor EOS and there is no context
    first_unscored: bool = False


@dataclass(frozen=True, kw_only=True)
class TokenScores:
    """Bits of every scored token of some texts, in input order."""

    # for each text a float64 array, one number per token from `scored_from` on
    bits: tuple[Floats, ...]
    encoded: tuple[Encoded, ...]  # the texts as tokens, in context
    # why the texts were scored in a slower way than those of other models; empty where they were
    # not
    slower: str = ""

    @property
    def totals(self) -> Floats:
        """Log-perplexity of each text in bits, shape (n,). Lower = more memorised."""
        return np.array([b.sum() for b in self.bits], dtype=np.float64)

    @property
    def tokens(self) -> NDArray[np.int64]:
        """How many tokens of each text were scored, shape (n,)."""
        return np.array([b.size for b in self.bits], dtype=np.int64)

    def bits_from(self, position: int) -> Floats:
        """Bits of each text from token `position` of its encoding on, shape (n,)."""
        return np.array(
            [
                b[max(0, position - e.scored_from) :].sum()
                for b, e in zip(self.bits, self.encoded, strict=True)
            ],
            dtype=np.float64,
        )


class LanguageModel(Protocol):
    """Anything that gives log-probabilities of texts."""

    @property
    def name(self) -> str:
        """Where it came from, for people."""

    @property
    def identity(self) -> str:
        """SHA-256 of what its numbers come from, such as its weights; no two models share one."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its numbers must know."""

    @property
    def rounding(self) -> float:
        """By how many bits a token may differ between two right ways to compute it."""

    def bits(self, texts: Sequence[str], context: str | None = None) -> Floats:
        """-log2 P(text | context), summed over tokens, shape (n,). Lower = more memorised."""


class TokenModel(LanguageModel, Protocol):
    """A language model whose tokens are known."""

    @property
    def window(self) -> int | None:
        """Most tokens that it reads at once; None: no limit."""

    @property
    def vocabulary(self) -> int:
        """How many next tokens it tells apart."""

    def token_bits(
        self,
        encoded: Sequence[Encoded],
        *,
        batch_size: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> TokenScores:
        """Bits of every scored token of texts that are encoded already."""


class Stepping(TokenModel, Protocol[Steps_co]):
    """A language model that is asked behind prefixes, which grow token by token."""

    @property
    def size(self) -> int:
        """How many parameters it has: the budget of a search follows from it."""

    def steps(self, probe: Sequence[int]) -> Steps_co:
        """Its fastest next-token steps that are right on `probe`, at least 2 token ids."""
