"""Texts of the kind "new_token", as they are chosen from a corpus, made by hand."""

from collections.abc import Sequence
from typing import Any

from lmexposure.canaries import Format, Material

SYMBOLS = tuple(chr(0xE000 + i) for i in range(64))


def new_token_format(count: int) -> Format:
    """So many texts, each with a symbol of its own behind it."""
    known = [f"the text {i} that is known " for i in range(count)]
    return Format.of_texts(
        "new_token",
        [text + symbol for text, symbol in zip(known, SYMBOLS, strict=False)],
        kind="new_token",
        known=[len(text) for text in known],
    )


def craft(kind: str, material: Material) -> Sequence[Format]:
    """In place of `canaries.craft`."""
    assert kind == "new_token"
    return (new_token_format(material.count),)


def choose_by_hand(monkeypatch: Any) -> None:
    """Insertions take these texts."""
    monkeypatch.setattr("lmexposure.audit.crafting.craft", craft)
