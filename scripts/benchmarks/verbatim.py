"""What a look at memorised text costs: a planted text in 20 MB and in 1 GB, windows a second.

Windows are timed next to plain forward passes over the same tokens, near matches next to greedy
windows.
"""

import random
import resource
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from harness import Claims, Namespace, in_turn, ratio, timed
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from lmexposure.core import Encoded
from lmexposure.regurgitation import look_up
from lmexposure.scoring import DecodingRule, near_verbatim, next_token_steps, score_windows

ARGUMENTS = {"rounds": 9}
_RULE = DecodingRule(top_k=40)
_PLANTED = "Seven sleeping gulls, counted " + "".join(random.Random(2).choices("xyzw qv", k=107))
_GREEDY = 250  # windows that a near match may cost


def _words(seed: int) -> Callable[[int], str]:
    draws = random.Random(seed)
    words = ["".join(draws.choices("abcdefghijklmnopqrstuvwxyz", k=draws.randint(2, 9)))]
    words += ["".join(draws.choices("etaoinshrdlu", k=draws.randint(2, 9))) for _ in range(20_000)]
    return lambda count: " ".join(draws.choices(words, k=count))


def documents(count: int) -> Iterator[str]:
    """A kilobyte each, the middle one with the planted text in it."""
    made = _words(3)
    for number in range(count):
        body = made(170)[:990]
        yield body[:500] + _PLANTED + body[500:] if number == count // 2 else body


def looked_up(count: int, shard: int, *, kept: bool) -> tuple[bool, float, float]:
    """Whether the text is found at its place, processor seconds, and bytes more at the highest."""
    text = _words(1)
    before = _highest()
    read = list(documents(count)) if kept else documents(count)
    begun = time.process_time()
    (found,), _ = look_up(read, [f"{text(9)} {_PLANTED} {text(9)}"], least=100, most=shard)
    seconds = time.process_time() - begun
    # A character or two of what is around it may be the same by chance.
    placed = len(found) == 1 and found[0].document == count // 2 + 1
    placed &= found[0].place <= 500 <= found[0].place + found[0].characters - len(_PLANTED)
    return placed, seconds, _highest() - before


def _highest() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def index(given: Namespace) -> Claims:
    """20 MB at once."""
    placed, seconds, more = looked_up(20_000, 1 << 27, kept=True)
    each = more / 20e6
    yield placed, f"20 MB: {len(_PLANTED)} characters found at their place"
    yield (
        seconds < 5 and each < 12,
        f"20 MB: {seconds:.1f} CPU s < 5, {each:.1f} bytes a character < 12",
    )


def gigabyte(given: Namespace) -> Claims:
    """1 GB in shards, of text that is made on the way."""
    placed, seconds, more = looked_up(1_000_000, 1 << 26, kept=False)
    yield placed, f"1 GB in shards: found at its place, {seconds:.0f} CPU s with making the text"
    yield more < 2 << 30, f"1 GB in shards: {more / 2**30:.2f} GiB < 2"


def _models() -> Iterator[tuple[str, Any]]:
    torch.manual_seed(0)
    special = {"bos_token_id": 0, "eos_token_id": 0}
    for words in (1_000, 16_000):
        gpt2 = GPT2Config(
            vocab_size=words, n_positions=128, n_embd=256, n_layer=4, n_head=4, **special
        )
        yield f"GPT-2, {words:,} tokens", GPT2LMHeadModel(gpt2).eval()
    llama = LlamaConfig(
        vocab_size=8_000,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=128,
        **special,
    )
    yield "Llama, 8,000 tokens", LlamaForCausalLM(llama).eval()


@torch.inference_mode()
def passes(model: Any, ids: torch.Tensor) -> None:
    for part in ids.split(16):
        model(input_ids=part, use_cache=False)


def speed(given: Namespace) -> Claims:
    """Windows a second next to plain passes over the same tokens."""
    for name, model in _models():
        draws = np.random.default_rng(0)
        ids = draws.integers(0, model.config.vocab_size, size=(64, 100)).tolist()
        windows = [Encoded(ids=row, scored_from=50) for row in ids]
        steps = next_token_steps(model, ids[0])

        sides = {
            "plain": timed(partial(passes, model, torch.tensor(ids))),
            "ours": timed(partial(score_windows, model, windows, _RULE)),
        }
        seconds = in_turn(sides, given.rounds)
        share = ratio(seconds["plain"], seconds["ours"])
        yield share >= 0.9, f"{name}: {share:.2f} of the windows a second of plain passes, >= 0.9"
        near = median(
            timed(partial(near_verbatim, steps, row[:50], row[50:], rule=_RULE))()
            for row in ids[:5]
        )
        cost = near / (median(seconds["ours"]) / len(windows))
        yield cost <= _GREEDY, f"{name}: near matches cost {cost:.0f} greedy windows, <= {_GREEDY}"


PARTS = {"index": index, "speed": speed, "gigabyte": gigabyte}
