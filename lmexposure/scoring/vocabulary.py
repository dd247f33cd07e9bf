"""What each token of a vocabulary adds to a text, and which tokens keep a text within a format."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = ["Vocabulary"]

State = TypeVar("State")

_UNDECIDED = "�"  # a token that ends inside a character decodes to this


@dataclass
class _Node:
    """A node of the trie of token surfaces: the tokens that end here, and where to go on."""

    tokens: list[int] = field(default_factory=list)
    children: dict[str, "_Node"] = field(default_factory=dict)


class Vocabulary:
    """The surface of every ordinary token: the characters it adds inside a running text.

    Special tokens, and tokens that end inside a character (bytes of a longer UTF-8 sequence), add
    no characters of their own; they have the surface None and are never followed.
    """

    def __init__(self, tokenizer: Any) -> None:
        size = len(tokenizer)
        special = set(tokenizer.all_special_ids)
        # A token's surface depends on standing inside a text: SentencePiece drops the space of a
        # first token, WordPiece marks what continues a word. So each is decoded behind an anchor.
        anchor = tokenizer.encode("a", add_special_tokens=False)[-1:]
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        base = tokenizer.decode(anchor, **options)
        decoded = tokenizer.batch_decode([[*anchor, t] for t in range(size)], **options)
        self.surfaces: list[str | None] = [
            text[len(base) :]
            if t not in special and text.startswith(base) and _UNDECIDED not in text
            else None
            for t, text in enumerate(decoded)
        ]
        self._root = self._trie()

    def _trie(self) -> _Node:
        root = _Node()
        for token, surface in enumerate(self.surfaces):
            if not surface:
                continue
            node = root
            for character in surface:
                node = node.children.setdefault(character, _Node())
            node.tokens.append(token)
        return root

    def surface(self, token: int) -> str:
        """The characters that a token adds; none for one that has no surface."""
        return self.surfaces[token] or ""

    def text(self, ids: list[int]) -> str | None:
        """The characters that these tokens add one after the other; None if one has no surface."""
        parts = [self.surfaces[i] for i in ids]
        known = [part for part in parts if part is not None]
        return "".join(known) if len(known) == len(parts) else None

    def continuations(
        self, state: State, advance: Callable[[State, str], State | None]
    ) -> list[tuple[int, State]]:
        """All tokens that a matcher accepts in `state`, each with the state behind it.

        Args:
            state: where the matcher stands.
            advance: (state, character) -> the next state, or None where it is not accepted.
        """
        found: list[tuple[int, State]] = []
        open_nodes: list[tuple[_Node, State]] = [(self._root, state)]
        while open_nodes:
            node, here = open_nodes.pop()
            found.extend((token, here) for token in node.tokens)
            for character, child in node.children.items():
                there = advance(here, character)
                if there is not None:
                    open_nodes.append((child, there))
        return sorted(found, key=lambda pair: pair[0])
