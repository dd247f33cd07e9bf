"""References a second in a chat's row and behind a plain context, in turn, in one process.

The rows are of one length in tokens, so that what differs is the wrapping: how texts are encoded in
their rows, and what follows a text, which is encoded and never read by the model. The exit code is
1 where wrapped references are slower than 0.9 of plain ones.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from scoring_texts import FORMAT, tokenizer_of
from transformers import GPT2Config, GPT2LMHeadModel

from lmexposure.cli.console import print_table, say
from lmexposure.models import AnyContext, Context, encode_in_context
from lmexposure.scoring import log_perplexity

LEAST = 0.9  # of the speed of plain references
QUESTION = "<|im_start|>user\nWhat is the number that I gave you?<|im_end|>\n"
SIZES = {"small": (4, 256), "gpt2": (12, 768)}


def main() -> int:
    arguments = parse()
    clock = time.process_time if arguments.processor_time else time.perf_counter
    tokenizer = tokenizer_of("uneven")
    marks = ["<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    row = Context(before=QUESTION + "<|im_start|>assistant\n", behind="<|im_end|>\n" + QUESTION)
    texts = [FORMAT.text(index) for index in FORMAT.sample(arguments.references, seed=0)]
    before = encode_in_context(tokenizer, texts[:1], context=row)[0].scored_from
    sides: dict[str, AnyContext] = {"plain": "." * before, "wrapped": row}
    lengths = {name: row_tokens(tokenizer, texts, context) for name, context in sides.items()}
    say(f"tokens a row: {lengths}; {torch.get_num_threads()} threads")
    layers, width = SIZES[arguments.model]
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=layers,
        n_embd=width,
        n_head=width // 64,
        vocab_size=len(tokenizer),
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config).eval()
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(arguments.rounds):
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            seconds = timed(
                lambda name=name: log_perplexity(model, tokenizer, texts, context=sides[name]),
                clock,
            )
            rates[name].append(len(texts) / seconds)
    return said(rates)


def row_tokens(tokenizer: object, texts: list[str], context: AnyContext) -> float:
    """Tokens of a text with what is before it, on average."""
    encoded = encode_in_context(tokenizer, texts[:500], context=context)  # type: ignore[arg-type]
    return statistics.mean(len(text.ids) for text in encoded)


def timed(run: Callable[[], object], clock: Callable[[], float]) -> float:
    begun = clock()
    run()
    return clock() - begun


def said(rates: dict[str, list[float]]) -> int:
    """Print the table and whether the claim holds."""
    rows = [[name, f"{statistics.median(own):,.1f}"] for name, own in rates.items()]
    print_table(["side", "references/s"], rows, right=range(1, 2))
    pairs = zip(rates["wrapped"], rates["plain"], strict=True)
    ratio = statistics.median(wrapped / plain for wrapped, plain in pairs)
    reached = "reached" if ratio >= LEAST else "MISSED "
    say(f"{reached}  wrapped references: {ratio:.2f} of the speed of plain ones, at least {LEAST}")
    return int(ratio < LEAST)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--references", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", choices=list(SIZES), default="small")
    parser.add_argument("--processor-time", action="store_true", help="for a busy machine")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
