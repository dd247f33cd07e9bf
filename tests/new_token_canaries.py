"""Texts of the kind "new_token", as they are chosen from a corpus, made by hand."""

from dataclasses import replace
from typing import Any

from lmexposure.canaries import KINDS, Format

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


def choose_by_hand(monkeypatch: Any) -> None:
    """Insertions take these texts."""
    made = replace(KINDS["new_token"], choose=lambda wanted: (new_token_format(wanted.count),))
    monkeypatch.setitem(KINDS, "new_token", made)
