"""How surprised a model is by a text: log-perplexity in bits, summed or token by token.

log-perplexity(x) = - sum_i log2 P(x_i | x_1 .. x_i-1), Carlini et al. 2019, Definition 1.
Lower = less surprised = more memorised. Never a mean per token.

`details_of_encoded` says of each token its bits, their spread there and the greedy token: some
scores of membership look at a text's least likely tokens, or at what else the model could have
said. They need the whole distribution at every position, so each text is read from its beginning,
not through the prefix tree.

A service may hide its probabilities, or flatten them without changing its answers. What it has
memorised still shows in its greedy answers (`label_only`), so masked confidence is not privacy.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from lmexposure._validate import integer
from lmexposure.core import Encoded, TokenScores
from lmexposure.errors import InputError, ModelError
from lmexposure.models import AnyContext, LoadedModel, context_window, encode_in_context
from lmexposure.scoring.forward import PlainForward, PlainPass, choose_forward, refuse_nonfinite
from lmexposure.scoring.runtime import LN2, evaluation_mode, in_batches, module_of, share_spans

# A trial of a pass: as many tokens as fill a core or a GPU, logits that fit beside the model.
_TRIAL_TOKENS, _TRIAL_LOGITS, _TRIAL_SECONDS = 512, 1 << 26, 0.3

Greedy = Callable[[list[list[int]]], Sequence[int]]  # token prefixes -> the next token of each


def log_perplexity(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    context: AnyContext = None,
    batch_size: int | None = None,
) -> NDArray[np.float64]:
    """Log-perplexity of each text in bits. Lower = less surprised = more memorised.

    Each text is encoded as a whole behind its left context; the context's tokens are not counted,
    a token that straddles the two is. The result does not depend on the batch size beyond 1e-3
    bits in float32: log-softmax in float32, sums in float64.

    Args:
        model: a `transformers` causal language model; scored in evaluation mode, and left in the
            mode that it was in.
        tokenizer: its tokenizer.
        texts: n texts.
        context: the text to the left of each text, usually the document separator of the
            manifest. None: the model's BOS token, else its EOS token, else the first token of
            each text goes unscored. A `Context`: the whole row around each text, of which the
            tokens that hold a character of the text and carry loss are scored.
        batch_size: texts a forward pass; None chooses one. Halved when memory runs out.

    Returns:
        float64 array of shape (n,), in input order.

    Raises:
        InputError: no texts, or a bare string.
        ModelError: a text holds an unknown token, or is longer than the context window.
        NumericalError: the model gave NaN or infinite logits.

    Source: Carlini et al. 2019, "The Secret Sharer", Definition 1.
    """
    encoded = encode_texts(model, tokenizer, texts, context)
    return score_encoded(model, encoded, batch_size=batch_size).totals


def encode_texts(
    model: Any, tokenizer: Any, texts: Sequence[str], context: AnyContext
) -> list[Encoded]:
    """Encode texts behind their left context or in their rows, within the model's window."""
    if isinstance(texts, str):
        raise InputError("texts is one string; give a list of texts, [text] for a single one")
    window = context_window(model.config)
    return encode_in_context(tokenizer, texts, context=context, max_length=window)


@torch.inference_mode()
def score_encoded(
    model: Any,
    encoded: Sequence[Encoded],
    *,
    batch_size: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> TokenScores:
    """Bits of every scored token of texts that are encoded already."""
    if not encoded:
        raise InputError("no texts to score; give at least one")

    def work(span: range) -> list[NDArray[np.float64]]:
        scored: list[NDArray[np.float64]] = []
        for some in in_batches(span, size, forward):
            for token_bits in some:
                refuse_nonfinite(token_bits, forward.order[span[len(scored)]], n)
                scored.append(token_bits)
            if progress is not None:
                progress(len(scored), len(span))
        return scored

    n = len(encoded)
    bits: list[NDArray[np.float64]] = [np.empty(0)] * n
    with evaluation_mode(model):
        forward = choose_forward(model, encoded)
        size = forward.size if batch_size is None else integer("batch_size", batch_size, low=1)
        for number, token_bits in zip(forward.order, share_spans(forward.costs, work), strict=True):
            bits[number] = token_bits
    return TokenScores(bits=tuple(bits), encoded=tuple(encoded), slower=forward.slower)


@torch.inference_mode()
def token_pace(lm: LoadedModel, ids: Sequence[int]) -> float:
    """Seconds to read one token of many texts in a pass, by a short trial on copies of one."""
    text, passes = Encoded(ids=[*ids, ids[-1]], scored_from=1), PlainPass(lm.model)
    most = min(_TRIAL_TOKENS, _TRIAL_LOGITS // lm.vocabulary)
    rows = max(1, most // len(ids))
    with evaluation_mode(lm.model):
        passes.bits([text])  # a first pass is slower than all others
        begun, number = time.perf_counter(), 0
        while number == 0 or time.perf_counter() - begun < _TRIAL_SECONDS:
            passes.bits([text] * rows)
            number += 1
        return (time.perf_counter() - begun) / (number * rows * len(ids))


@dataclass(frozen=True, kw_only=True)
class TokenDetails:
    """Every scored token of some texts, in input order: for each text arrays of one shape (T,)."""

    # -log2 of each token's probability; lower = more expected
    bits: tuple[NDArray[np.float64], ...]
    # mean of that over the vocabulary, weighted by probability: the entropy there
    mean_bits: tuple[NDArray[np.float64], ...]
    std_bits: tuple[NDArray[np.float64], ...]  # standard deviation of it, weighted likewise
    # the most likely token at each place, by its number; of equal ones the first
    greedy: tuple[NDArray[np.int64], ...]
    # the texts as tokens, in context; the arrays begin at `scored_from`
    encoded: tuple[Encoded, ...]

    @property
    def top1(self) -> tuple[NDArray[np.bool_], ...]:
        """Whether each token is the one that greedy decoding would have given there."""
        return tuple(
            found == np.array(text.ids[text.scored_from :])
            for found, text in zip(self.greedy, self.encoded, strict=True)
        )


@torch.inference_mode()
def details_of_encoded(
    model: Any, encoded: Sequence[Encoded], *, batch_size: int | None = None
) -> TokenDetails:
    """Bits of every token, with mean and spread over the vocabulary and the greedy token.

    Source: Zhang et al. 2025, Min-K%++: mean and spread are those of a token drawn from the model.
    """
    if not encoded:
        raise InputError("no texts to score; give at least one")
    model = module_of(model)
    with evaluation_mode(model):
        plain = PlainForward(model, encoded)
        size = plain.size if batch_size is None else integer("batch_size", batch_size, low=1)
        found = plain.read(_DetailPass(model).rows, size, finite=lambda row: row[:3])
    return TokenDetails(
        bits=tuple(row[0] for row in found),
        mean_bits=tuple(row[1] for row in found),
        std_bits=tuple(row[2] for row in found),
        greedy=tuple(row[3].astype(np.int64) for row in found),
        encoded=tuple(encoded),
    )


class _DetailPass(PlainPass):
    """The plain pass, of which the whole distributions are read before they are let go."""

    def rows(self, batch: Sequence[Encoded]) -> list[NDArray[np.float64]]:
        """For each text bits, mean, spread and greedy token of its scored tokens: (4, T)."""
        first = min(text.scored_from for text in batch)
        logits = self._logits([text.ids for text in batch], first)  # (B, longest - first, V)
        found = []
        for row, text in zip(logits, batch, strict=True):
            own = row[text.scored_from - first : len(text.ids) - first]  # (T, V)
            target = torch.tensor(text.ids[text.scored_from :])
            # What ends a source is never counted.
            found.append(_described(own, target.clamp(max=own.shape[-1] - 1)))
        return found


def _described(logits: torch.Tensor, target: torch.Tensor) -> NDArray[np.float64]:
    """One text at a time, so that probabilities take no more memory than a text's logits do."""
    logp = logits - logits.logsumexp(-1, keepdim=True)  # (T, V) nats
    p = logp.exp()
    # A token that is masked out has p = 0 and adds nothing, where 0 x infinity would give NaN.
    mean = torch.special.entr(p).sum(-1)  # (T,)
    squares = torch.where(p > 0, p * (logp + mean[:, None]) ** 2, 0.0)
    own = -logp.gather(-1, target.to(logp.device)[:, None]).squeeze(-1)
    parts = [own.double() / LN2, mean.double() / LN2, squares.sum(-1).double().sqrt() / LN2]
    return torch.stack([*parts, logits.argmax(-1).double()]).cpu().numpy()


@dataclass(frozen=True, kw_only=True)
class LabelOnly:
    """Which of a secret's tokens come out greedily, given the true tokens before each."""

    hits: tuple[NDArray[np.bool_], ...]  # for each text one flag for each of the secret's tokens

    @property
    def share(self) -> NDArray[np.float64]:
        """Share of the secret's tokens that are top-1, in [0, 1], shape (n,)."""
        return np.array([hits.mean() for hits in self.hits], dtype=np.float64)

    @property
    def longest_run(self) -> NDArray[np.int64]:
        """Most tokens in a row that are top-1, shape (n,); higher = more memorised."""
        # The longest run is the widest gap between two misses.
        misses = [np.flatnonzero(np.concatenate([[True], ~hits, [True]])) for hits in self.hits]
        return np.array([np.diff(places).max() - 1 for places in misses], dtype=np.int64)


def label_only(
    model: Any,
    encoded: Sequence[Encoded],
    *,
    first: int | None = None,
    batch_size: int | None = None,
) -> LabelOnly:
    """Compare each token of a secret with the model's greedy next token after the true prefix.

    Args:
        model: a causal language model, left in its mode, which is asked once a text; or a function
            from token prefixes to the next token of each, for a model that shows nothing else,
            which is asked once a token.
        encoded: n texts as `encode_in_context` gives them.
        first: the place in each text's tokens where the secret begins; what comes before the
            secret is the same in all texts and would blur the score. Where a secret begins,
            is the length of `find_beginning`'s `ids`. None: every scored token counts.
        batch_size: texts or prefixes at a time; None chooses one.

    Raises:
        InputError: no texts; a text without tokens from `first` on.
        ModelError: a function gives another number of tokens than there are prefixes.
        NumericalError: the model gave NaN or infinite logits.
        SettingsError: `first` or `batch_size` out of range.
    """
    starts = _starts(encoded, first)
    if isinstance(model, nn.Module | LoadedModel):
        details = details_of_encoded(model, encoded, batch_size=batch_size)
        found = zip(details.top1, encoded, starts, strict=True)
        return LabelOnly(hits=tuple(hit[start - text.scored_from :] for hit, text, start in found))
    size = 256 if batch_size is None else integer("batch_size", batch_size, low=1)
    prefixes = [text.ids[:end] for text, end in _places(encoded, starts)]
    wanted = np.array([text.ids[end] for text, end in _places(encoded, starts)])
    hits = np.array(_ask(model, prefixes, size)) == wanted
    ends = np.cumsum([len(text.ids) - start for text, start in zip(encoded, starts, strict=True)])
    return LabelOnly(hits=tuple(np.split(hits, ends[:-1])))


def _starts(encoded: Sequence[Encoded], first: int | None) -> list[int]:
    """Where each text's secret begins, by its tokens."""
    if not encoded:
        raise InputError("no texts to score; give at least one")
    least = 0 if first is None else integer("first", first, low=0)
    starts = [max(least, text.scored_from) for text in encoded]
    for number, (text, start) in enumerate(zip(encoded, starts, strict=True)):
        if start >= len(text.ids):
            raise InputError(
                f"text {number} of {len(encoded)} has {len(text.ids)} tokens, none of them from "
                f"first={first} on; give the place where the secrets begin"
            )
    return starts


def _places(encoded: Sequence[Encoded], starts: Sequence[int]) -> Iterator[tuple[Encoded, int]]:
    for text, start in zip(encoded, starts, strict=True):
        for end in range(start, len(text.ids)):
            yield text, end


def _ask(greedy: Greedy, prefixes: list[list[int]], size: int) -> list[int]:
    answers: list[int] = []
    for place in range(0, len(prefixes), size):
        some = prefixes[place : place + size]
        tokens = [int(token) for token in greedy(some)]
        if len(tokens) != len(some):
            raise ModelError(
                f"the greedy function gave {len(tokens)} tokens for {len(some)} prefixes; it must "
                "give the next token of each"
            )
        answers.extend(tokens)
    return answers
