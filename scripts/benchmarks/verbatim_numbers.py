"""What a look at memorised text costs and how well its numbers hold: scripts/benchmark_verbatim.

Parts: `widths` of intervals within some edits at a vocabulary of 1,000, where the truth is known;
`index`: a planted overlap in 20 MB, and a corpus of 1 GB in shards; `speed`: windows next to plain
forward passes, near matches next to greedy windows.
"""

import argparse
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from lmexposure.models import Encoded
from lmexposure.regurgitation import look_up
from lmexposure.scoring import (
    DecodingRule,
    NearSearch,
    near_verbatim,
    next_token_steps,
    score_windows,
)

_RULE = DecodingRule(top_k=40)


def say(ok: bool, line: str) -> None:
    """A claim and whether it holds."""
    print(f"{'reached' if ok else 'MISSED '}  {line}", flush=True)


class Independent:
    """Steps of a model whose next token depends on its place alone, so that all is known."""

    evaluated = 0

    def __init__(self, shares: np.ndarray[Any, Any]) -> None:
        self._logits = torch.from_numpy(np.log(shares))

    def start_all(self, ids: Sequence[int]) -> tuple[int, torch.Tensor]:
        """See `WholeSteps`."""
        return 0, self._logits[:1]

    def advance_all(self, state: int, parents: Any, tokens: Any) -> tuple[int, torch.Tensor]:
        """See `WholeSteps`."""
        place = min(state + 1, len(self._logits) - 1)
        return state + 1, self._logits[place].expand(len(parents), -1)


def differing(chances: np.ndarray[Any, Any], most: int) -> float:
    """P(at most this many of independent places differ)."""
    totals = np.zeros(len(chances) + 1)
    totals[0] = 1
    for chance in chances:
        totals[1:] = totals[1:] * chance + totals[:-1] * (1 - chance)
        totals[0] *= chance
    return float(totals[: most + 1].sum())


def independent(seed: int, sure: float) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Shares (50, 1,000) and a suffix whose tokens have about the chance `sure` each."""
    draws = np.random.default_rng(seed)
    shares = draws.gamma(0.1, size=(50, 1_000)) + 1e-12
    suffix = draws.integers(0, 1_000, size=50)
    shares /= shares.sum(1, keepdims=True)
    own = np.clip(draws.normal(sure, 0.05, size=50), 0.001, 0.999)
    shares *= (1 - own)[:, None]
    shares[np.arange(50), suffix] += own
    return shares / shares.sum(1, keepdims=True), suffix.tolist()


def widths(windows: int) -> None:
    """Coverage and width at V = 1,000, length 50, d = 5, beam 20, 200 draws."""
    search = NearSearch(distance=5, metric="hamming")
    for sure in (0.02, 0.85, 0.9, 0.95):
        covered, found = 0, []
        for seed in range(windows):
            shares, suffix = independent(1000 + seed, sure)
            truth = differing(shares[np.arange(50), suffix], 5)
            steps: Any = Independent(shares)
            ends = near_verbatim(steps, [0], suffix, search, seed=seed).between
            covered += ends.low - 1e-12 <= truth <= ends.high + 1e-12
            found.append(ends.high - ends.low)
        wide, median = max(found), statistics.median(found)
        held_out = sure < 0.1
        ok = covered / windows >= 0.95 - 1.96 * (0.95 * 0.05 / windows) ** 0.5
        ok &= median <= 0.05 if held_out else wide < 1
        say(
            ok,
            f"tokens of chance {sure}: {covered} of {windows} windows covered, median width "
            f"{median:.4f}, widest {wide:.4f}",
        )


def _words(seed: int) -> Callable[[int], str]:
    draws = random.Random(seed)
    words = ["".join(draws.choices("abcdefghijklmnopqrstuvwxyz", k=draws.randint(2, 9)))]
    words += ["".join(draws.choices("etaoinshrdlu", k=draws.randint(2, 9))) for _ in range(20_000)]
    return lambda count: " ".join(draws.choices(words, k=count))


def index(size: int, shard: int) -> None:
    """A planted overlap, its place, and what finding it costs."""
    text = _words(1)
    planted = "Seven sleeping gulls, counted " + "".join(random.Random(2).choices("xyzw qv", k=107))
    documents = size // 1_000

    def read() -> Iterator[str]:
        made = _words(3)
        for number in range(documents):
            body = made(170)[:990]
            yield body[:500] + planted + body[500:] if number == documents // 2 else body

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    begun, made = time.process_time(), 0.0
    if size <= shard:
        kept = list(read())
        made = time.process_time() - begun
        begun = time.process_time()
        (found,), _ = look_up(kept, [f"{text(9)} {planted} {text(9)}"], least=100, most=shard)
    else:
        (found,), _ = look_up(read(), [f"{text(9)} {planted} {text(9)}"], least=100, most=shard)
    seconds = time.process_time() - begun
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    right = [(m.document, m.place, m.characters) for m in found]
    # A character or two of what is around it may be the same by chance.
    placed = len(found) == 1 and found[0].document == documents // 2 + 1
    placed &= found[0].place <= 500 <= found[0].place + found[0].characters - len(planted)
    if size <= shard:
        say(
            placed and seconds < 5 and (after - before) / size < 12,
            f"{size / 1e6:.0f} MB: {len(planted)} characters at {right}, {seconds:.1f} CPU s, "
            f"{(after - before) / size:.1f} bytes a character (text was made in {made:.1f} s)",
        )
    else:
        say(
            placed and after < 2 << 30,
            f"{size / 1e9:.1f} GB in shards of {shard / 1e6:.0f} MB: {right}, {seconds:.0f} CPU s "
            f"with making the text, {after / 2**30:.2f} GiB at most",
        )


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


def speed(rounds: int) -> None:
    """Windows a second next to plain passes over the same tokens, side by side, by medians."""
    for name, model in _models():
        V = model.config.vocab_size
        draws = np.random.default_rng(0)
        ids = draws.integers(0, V, size=(64, 100)).tolist()
        windows = [Encoded(ids=row, scored_from=50) for row in ids]
        batch = torch.tensor(ids)

        def plain(model: Any = model, batch: torch.Tensor = batch) -> None:
            with torch.inference_mode():
                for part in batch.split(16):
                    model(input_ids=part, use_cache=False)

        def ours(model: Any = model, windows: Sequence[Encoded] = windows) -> None:
            score_windows(model, windows, _RULE)

        ratios = [_seconds(plain) / _seconds(ours) for _ in range(rounds)]
        ratio = statistics.median(ratios)
        say(ratio >= 0.9, f"{name}: {ratio:.2f} of the windows a second of plain passes")
        steps = next_token_steps(model, ids[0])
        greedy = statistics.median(_seconds(ours) for _ in range(rounds)) / len(windows)
        near = statistics.median(
            _seconds(partial(near_verbatim, steps, row[:50], row[50:], rule=_RULE))
            for row in ids[:5]
        )
        say(near / greedy <= 250, f"{name}: near matches cost {near / greedy:.0f} greedy windows")


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def main() -> None:
    """The parts that are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("widths", "index", "gigabyte", "speed", "all"))
    parser.add_argument("--windows", type=int, default=300)
    part = parser.parse_args().part
    windows = parser.parse_args().windows
    torch.set_num_threads(1)
    if part in ("index", "all"):
        index(20_000_000, 1 << 27)
    if part in ("widths", "all"):
        widths(windows)
    if part in ("speed", "all"):
        speed(9)
    if part == "gigabyte":
        index(1_000_000_000, 1 << 26)


if __name__ == "__main__":
    main()
