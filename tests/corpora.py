"""A small corpus that is real enough to learn: sentences from a small grammar, always the same."""

import random
from pathlib import Path

_SUBJECTS = ("the river", "a merchant", "our captain", "the old clerk", "her sister", "a lantern")
_VERBS = ("follows", "remembers", "never answers", "carries", "forgets", "paints")
_OBJECTS = ("the harbour", "a letter", "seven ships", "the winter road", "his debt", "no one")
_TAILS = ("at night.", "before noon!", "without a word;", "as the law demands.", "again and again.")


def sentences(count: int, *, seed: int = 0) -> list[str]:
    """Lines of about 40 characters, every tenth one blank."""
    draw = random.Random(seed)
    parts = (_SUBJECTS, _VERBS, _OBJECTS, _TAILS)
    lines = [" ".join(draw.choice(part) for part in parts) for _ in range(count)]
    return [line.capitalize() if i % 10 else "" for i, line in enumerate(lines)]


def write_corpus(path: Path, count: int = 600) -> Path:
    """A text file of so many lines."""
    path.write_text("\n".join(sentences(count)) + "\n", encoding="utf-8")
    return path
