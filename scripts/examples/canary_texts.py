"""Texts for `--texts`, made of the rarest words of a text: six words each, or pairs of words.

canary_texts.py CORPUS OUT [--make words|pairs] [--texts 200] [--seed 0]
lmexposure sweep CORPUS --texts OUT --canaries 100 --out sweeps/texts

No word is in two texts, and where CORPUS has the two words of a pair side by side, they are turned
around. What a model that never saw CORPUS says at a high temperature comes from transformers:

    ids = torch.tensor([[tokenizer.eos_token_id]])
    options = dict(do_sample=True, temperature=1.5, top_k=0, max_new_tokens=24)
    said = model.generate(ids, num_return_sequences=200, **options)
    lines = {" ".join(text.split()) for text in tokenizer.batch_decode(said, True)}

A line that CORPUS holds is left out by lmexposure; doubles, and a line within another, are refused.
"""

import argparse
import random
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

_WORDS, _PAIRS, _TIMES = 6, 2, 3  # words of a text; pairs of a text, and how often each


def main() -> None:
    arguments = parse()
    lines = arguments.corpus.read_text(encoding="utf-8").splitlines()
    words = [re.findall(r"\w+", line) for line in lines]
    each = _WORDS if arguments.make == "words" else 2 * _PAIRS
    rare = rarest(words, each * arguments.texts)
    random.Random(arguments.seed).shuffle(rare)
    parts = [rare[n : n + each] for n in range(0, len(rare), each)]
    if arguments.make == "words":
        texts = [" ".join(part) for part in parts]
    else:
        beside = {pair for line in words for pair in pairwise(line)}
        texts = [" ".join(pair for pair in pairs_of(part, beside) * _TIMES) for part in parts]
    arguments.out.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def rarest(lines: list[list[str]], wanted: int) -> list[str]:
    """As many words, the rarest first; those that are there once come last."""
    counts = Counter(word for line in lines for word in line)
    words = sorted(counts, key=lambda word: (counts[word] == 1, counts[word], word))
    if len(words) < wanted:
        raise SystemExit(f"{wanted} different words are needed, and the text has {len(words)}")
    return words[:wanted]


def pairs_of(words: list[str], beside: set[tuple[str, str]]) -> list[str]:
    """The first words of pairs and the last ones, turned around where the text has them so."""
    pairs = zip(words[:_PAIRS], words[_PAIRS:], strict=True)
    return [f"{b} {a}" if (a, b) in beside else f"{a} {b}" for a, b in pairs]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--make", choices=("words", "pairs"), default="words")
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
