"""References a second: in their tree, one by one, in batches, by lm-evaluation-harness, in chats.

`--model`: the same under a model of one's own, behind a prompt of its chat template.
The share of the peak is 2 x parameters x nodes fed / time / the best float32 products that the
machine keeps up for a second. `processes`: what a second process gains, beside what it gains a bare
matrix product. `chats`: references in a chat's row and behind a plain context of the same length.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import log
from statistics import median
from typing import Any

import numpy as np
import torch
from harness import Claims, Namespace, all_cores, in_turn, medians, ratio, timed
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from lmexposure.canaries import Format
from lmexposure.cli.console import say
from lmexposure.core import Encoded
from lmexposure.models import AnyContext, Context, encode_in_context, load_model
from lmexposure.scoring import log_perplexity, score_encoded
from lmexposure.scoring.prefix_tree import SortedTexts

FORMAT = Format(name="random_number", template="The random number is {digits:9}")
CONTEXT = "\n"
TOKENIZERS = {
    "uneven": None,  # digits merged as often as they stood together
    "single digits": r"\d",
    "digits by three": r"\d{1,3}",
}
ARGUMENTS = {"references": 10_000, "rounds": 5, "device": "cpu", "model": ""}
PRODUCTS = ((2048, 768, 3072), (4096, 768, 3072), (4096, 3072, 768), (2048, 768, 4096))
FEWEST = 4  # products of each shape
ALONE, BATCHED = 32, 128  # references a round for the slow sides
OURS = "tree, float32"
ONE, SIXTY_FOUR, HARNESS = "one by one", "batches of 64, all logits", "lm-eval 0.4.13"
OWN = "the model's own"
# By tokenizer: share of the peak, and how many times as fast as others.
PROMISED = {"uneven": (0.75, {ONE: 11.0, HARNESS: 2.8}), OWN: (0.70, {HARNESS: 6.0})}
GAIN, WRAPPED = 0.9, 0.9
ASKED = "What is the number that I gave you?"
QUESTION = f"<|im_start|>user\n{ASKED}<|im_end|>\n"


def sides(given: Namespace) -> Claims:
    """All sides in turn, for each tokenizer, or with a model of one's own."""
    all_cores()
    if given.model:
        loaded = load_model(given.model, device=given.device)
        model, tokenizers = loaded.model, {OWN: loaded.tokenizer}
    else:
        model = gpt2_small().to(given.device)
        tokenizers = {kind: tokenizer_of(kind) for kind in TOKENIZERS}
    for kind, tokenizer in tokenizers.items():
        context = prompt_of(tokenizer)
        encoded = encoded_references(tokenizer, given.references, context)
        runs = sides_of(model, tokenizer, encoded, context)
        check(model, encoded, runs)
        clock = partial(clock_of, model.device)
        turns: dict[str, Callable[[], float]] = {
            name: partial(rate_of, texts, timed(run, clock)) for name, (texts, run) in runs.items()
        }
        peak = partial(product_rate, model.device)
        # The better of before and after: a busy machine must not make the peak small.
        rates = in_turn({"peak": peak, **turns, "peak again": peak}, given.rounds)
        peaks = list(map(max, rates.pop("peak"), rates.pop("peak again")))
        say(f"{kind}: {len(encoded):,} references, peak {median(peaks) / 1e9:,.0f} Gflop/s")
        medians(rates, "references/s")
        if kind in PROMISED:
            work = (
                2 * sum(p.numel() for p in model.parameters()) * int(SortedTexts(encoded).fed.sum())
            )
            share = ratio([rate * work / len(encoded) for rate in rates[OURS]], peaks)
            peak_share, least_times = PROMISED[kind]
            yield (
                share >= peak_share,
                f"{OURS}: {share:.2f} of the sustained peak, at least {peak_share}",
            )
            for other, least in least_times.items() if given.device == "cpu" else ():
                if other in rates:
                    times = ratio(rates[OURS], rates[other])
                    yield times >= least, f"{OURS}: {times:.1f} x {other}, at least {least}"


def clock_of(device: torch.device) -> float:
    """Seconds, once the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def rate_of(texts: int, run: Callable[[], float]) -> float:
    return texts / run()


def prompt_of(tokenizer: Any) -> str:
    """What stands before an answer in a chat; a line end where there is no chat template."""
    if tokenizer.chat_template is None:
        return CONTEXT
    asked = [{"role": "user", "content": ASKED}]
    prompt: str = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    return prompt


def sides_of(
    model: Any, tokenizer: Any, encoded: Sequence[Encoded], context: str
) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Per side how many references it scores a round, and the call that does so."""
    some, more = encoded[:ALONE], encoded[:BATCHED]
    sides: dict[str, tuple[int, Callable[[], Any]]] = {
        ONE: (len(some), lambda: [one_by_one(model, e) for e in some]),
        SIXTY_FOUR: (len(more), lambda: batched(model, more)),
    }
    harness = harness_of(model, tokenizer, context)
    if harness is not None:
        sides[HARNESS] = (len(more), lambda: harness(len(more)))
    sides[OURS] = (len(encoded), lambda: score_encoded(model, encoded))
    return sides


def check(
    model: Any, encoded: Sequence[Encoded], sides: dict[str, tuple[int, Callable[[], Any]]]
) -> None:
    """All sides mean the same number."""
    ours = score_encoded(model, encoded[:BATCHED])
    expected = ours.totals
    np.testing.assert_allclose(sides[ONE][1](), expected[:ALONE], atol=1e-3)
    np.testing.assert_allclose(sides[SIXTY_FOUR][1](), expected, atol=1e-3)
    if HARNESS in sides:
        known = encoded[0].scored_from + len(shared_words(encoded))
        np.testing.assert_allclose(sides[HARNESS][1](), ours.bits_from(known), atol=1e-2)


def shared_words(encoded: Sequence[Encoded]) -> list[int]:
    """The tokens of "The random number is" alone."""
    return SortedTexts(encoded).prefix[encoded[0].scored_from :][:4]


@torch.inference_mode()
def one_by_one(model: Any, one: Encoded) -> float:
    ids = torch.tensor([one.ids], device=model.device)
    logp = torch.log_softmax(model(ids).logits[0, :-1].float(), dim=-1)
    picked = logp.gather(-1, ids[0, 1:, None])[one.scored_from - 1 :]
    return -float(picked.double().sum()) / log(2)


@torch.inference_mode()
def batched(model: Any, encoded: Sequence[Encoded]) -> list[float]:
    found = []
    for first in range(0, len(encoded), 64):
        rows = [one.ids for one in encoded[first : first + 64]]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=model.device)
        logp = torch.log_softmax(model(ids).logits[:, :-1].float(), dim=-1)
        picked = logp.gather(-1, ids[:, 1:, None]).squeeze(-1).double().cpu().numpy()
        for row, one in zip(picked, encoded[first : first + 64], strict=True):
            found.append(-row[one.scored_from - 1 : len(one.ids) - 1].sum() / log(2))
    return found


def harness_of(model: Any, tokenizer: Any, context: str) -> Callable[[int], list[float]] | None:
    """lm-evaluation-harness on the same model; None where it is not installed."""
    try:
        from lm_eval.api.instance import Instance
        from lm_eval.models.huggingface import HFLM
    except ImportError:
        say("lm-eval is not here: pip install -r scripts/benchmarks/requirements-scoring.txt")
        return None
    judge = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=64)
    before = context + FORMAT.prefix.rstrip()

    def run(references: int) -> list[float]:
        texts = [FORMAT.text(index) for index in FORMAT.sample(references, seed=0)]
        asked = [
            Instance("loglikelihood", {}, (before, (context + text)[len(before) :]), i)
            for i, text in enumerate(texts)
        ]
        return [-nats / log(2) for nats, _ in judge.loglikelihood(asked, disable_tqdm=True)]

    return run


def product_rate(device: torch.device, seconds: float = 1.0) -> float:
    """Floating-point operations a second that matrix products of some shapes keep up."""
    products = [
        (
            2 * M * K * N,
            partial(
                torch.nn.functional.linear,
                torch.randn(M, K, device=device),
                torch.randn(N, K, device=device),
            ),
        )
        for M, K, N in PRODUCTS
    ]
    took: list[list[float]] = [[] for _ in products]
    # A few of each, whatever they take: the first is not counted.
    while sum(map(sum, took)) < seconds or len(took[0]) < FEWEST:
        for (_, product), own in zip(products, took, strict=True):
            own.append(timed(product, partial(clock_of, device))())
    return max(
        work * len(own[1:]) / sum(own[1:]) for (work, _), own in zip(products, took, strict=True)
    )


# Two processes


def processes(given: Namespace) -> Claims:
    """One thread each, by torchrun."""
    found = in_turn(
        {"one": partial(run_processes, 1), "two": partial(run_processes, 2)}, given.rounds
    )
    gain, bare = (
        ratio([row[k] for row in found["two"]], [row[k] for row in found["one"]]) for k in (0, 1)
    )
    yield (
        gain >= GAIN * bare,
        f"two processes gain {gain:.2f}, at least {GAIN} of the {bare:.2f} of a bare product",
    )


def run_processes(number: int) -> list[float]:
    """References and products a second of so many processes together."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc_per_node={number}",
            __file__,
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    rates: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
    return rates


def in_processes() -> None:
    """Started by torchrun."""
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    model = gpt2_small()
    encoded = encoded_references(tokenizer_of("uneven", 2_000, 3_000), 600)
    score_encoded(model, encoded[:40])
    a, b = torch.randn(2048, 768), torch.randn(3072, 768)
    scoring = between_barriers(lambda: score_encoded(model, encoded))
    products = between_barriers(lambda: [torch.nn.functional.linear(a, b) for _ in range(20)])
    if torch.distributed.get_rank() == 0:
        number = torch.distributed.get_world_size()
        print(json.dumps([len(encoded) / scoring, number / products]), flush=True)
    torch.distributed.destroy_process_group()


def between_barriers(run: Callable[[], object]) -> float:
    torch.distributed.barrier()
    begun = time.perf_counter()
    run()
    torch.distributed.barrier()
    return time.perf_counter() - begun


# Chats


def chats(given: Namespace) -> Claims:
    """Rows of one length in tokens: what differs is how texts are encoded in them."""
    tokenizer = tokenizer_of("uneven")
    marks = ["<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": marks})
    row = Context(before=QUESTION + "<|im_start|>assistant\n", behind="<|im_end|>\n" + QUESTION)
    texts = [FORMAT.text(index) for index in FORMAT.sample(given.references, seed=0)]
    before = encode_in_context(tokenizer, texts[:1], context=row)[0].scored_from
    torch.manual_seed(0)
    size = {"n_layer": 4, "n_embd": 256, "n_head": 4, "vocab_size": len(tokenizer)}
    model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0)).eval()
    contexts: dict[str, AnyContext] = {"plain": "." * before, "wrapped": row}
    turns = {
        name: timed(partial(log_perplexity, model, tokenizer, texts, context=context))
        for name, context in contexts.items()
    }
    seconds = in_turn(turns, given.rounds)
    medians(seconds)
    share = ratio(seconds["plain"], seconds["wrapped"])
    yield (
        share >= WRAPPED,
        f"wrapped references: {share:.2f} of the speed of plain ones, at least {WRAPPED}",
    )


# What is scored


def gpt2_small() -> Any:
    """Random weights, 124 million parameters, 50,257 tokens."""
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config()).eval()


def encoded_references(tokenizer: Any, references: int, context: str = CONTEXT) -> list[Encoded]:
    """References of FORMAT in context."""
    texts = [FORMAT.text(index) for index in FORMAT.sample(references, seed=0)]
    return encode_in_context(tokenizer, texts, context=context)


def tokenizer_of(kind: str, entries: int = 20_000, sentences: int = 60_000) -> Any:
    """A byte-level BPE trained on made-up words and numbers."""
    tokenizer = Tokenizer(models.BPE())
    bytes_of_words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pattern = TOKENIZERS[kind]
    tokenizer.pre_tokenizer = bytes_of_words
    if pattern is not None:
        digits = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_of_words])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=entries,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sentences(random.Random(0), sentences), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def _sentences(rng: random.Random, number: int) -> Iterator[str]:
    """Words whose frequency falls with their rank, and a number of 1 to 9 digits in each."""
    starts, ends = [*"bcdfghjklmnprstvwz", "st", "tr", "pl"], [*"aeiou", "ai", "er", "on"]
    words = [
        "".join(rng.choice(starts) + rng.choice(ends) for _ in range(rng.randint(1, 4)))
        for _ in range(30_000)
    ]
    weights = [1 / (rank + 5) for rank in range(len(words))]
    for _ in range(number):
        sentence = rng.choices(words, weights, k=12)
        numbers = (rng.randint(1900, 2030), rng.randrange(100), int(10 ** rng.uniform(0, 9)))
        sentence.insert(rng.randrange(12), str(rng.choice(numbers)))
        yield " ".join(sentence)
    yield from ["The random number is "] * 200


PARTS = {"sides": sides, "processes": processes, "chats": chats}

if __name__ == "__main__":
    in_processes()
