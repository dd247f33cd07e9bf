"""Canaries scored in the wrapping that they were trained in: log-perplexity and exposure.

A model that met a canary inside a chat template has memorised it there. So canary and references
are scored in that very wrapping, and over no token that carried no loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from lmexposure._validate import coverage
from lmexposure.canaries import Canary, Manifest, Wrapping
from lmexposure.errors import InputError, ManifestError, ModelError
from lmexposure.models import Encoded, context_window, encode_in_context
from lmexposure.records import CanaryResult, Estimate
from lmexposure.scoring import score_encoded
from lmexposure.statistics import sampled_exposure


@dataclass(frozen=True, kw_only=True, eq=False)
class WrappedText:
    """Tokens of a wrapped text up to its last character; what follows cannot change its bits.

    Attributes:
        encoded: the tokens, scored from the first that holds a character of the text.
        carried: which of the scored tokens carry loss, shape (T,).
    """

    encoded: Encoded
    carried: NDArray[np.bool_]


def wrapped_log_perplexity(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    wrapping: Wrapping,
    *,
    batch_size: int | None = None,
) -> NDArray[np.float64]:
    """Log-perplexity in bits of each text in its wrapping. Lower = more memorised.

    Summed over the tokens that hold a character of the text and carry loss. Tokens of the template
    are not counted: before the text they are the same for all fills.

    Args:
        model: a `transformers` causal language model, left in the mode that it was in.
        tokenizer: its tokenizer, with the chat template of the training.
        texts: n canaries or references.
        wrapping: the one of the training.
        batch_size: texts a forward pass; None chooses one.

    Returns:
        float64 array of shape (n,), in input order.

    Raises:
        InputError: no texts, or a bare string.
        ModelError: the template changes a text or writes today's date; no token of a text carries
            loss, it holds an unknown token, has the tokens of another, or ends beyond the context
            window.
        NumericalError: the model gave NaN or infinite logits.

    Source: Carlini et al. 2019, "The Secret Sharer", Definition 1, given the wrapping.
    """
    window = context_window(model.config)
    wrapped = encode_wrapped(tokenizer, texts, wrapping, max_length=window)
    scores = score_encoded(model, [text.encoded for text in wrapped], batch_size=batch_size)
    pairs = zip(scores.bits, wrapped, strict=True)
    return np.array([bits[text.carried].sum() for bits, text in pairs], dtype=np.float64)


def encode_wrapped(
    tokenizer: Any, texts: Sequence[str], wrapping: Wrapping, *, max_length: int | None = None
) -> list[WrappedText]:
    """Tokens of each text as the training had them, and which of its own carry loss.

    Args:
        tokenizer: of the training, a fast one where there is a chat template.
        texts: n texts; they never appear in an error message.
        wrapping: of the training.
        max_length: the model's context window in tokens; None for no limit.

    Raises:
        InputError: no texts, or a bare string.
        ModelError: see `wrapped_log_perplexity`.
    """
    if isinstance(texts, str) or not texts:
        raise InputError("texts must be a list of at least one text; give [text] for a single one")
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ModelError(
            f"{type(tokenizer).__name__} is no tokenizer of transformers; give that of the training"
        )
    # For a chat too: it refuses unknown characters and those that the tokenizer drops.
    alone = encode_in_context(tokenizer, texts, context=wrapping.context)
    if wrapping.turn == "plain":
        wrapped = [_as_document(tokenizer, text, wrapping) for text in alone]
    else:
        check_template(tokenizer, wrapping)
        wrapped = [
            _in_chat(tokenizer, text, wrapping, name=f"text {number} of {len(texts)}")
            for number, text in enumerate(texts)
        ]
    _check_apart(texts, wrapped)
    _check_window(wrapped, max_length)
    return wrapped


def check_place(manifest: Manifest, wrapping: Wrapping) -> None:
    """Refuse canaries that are in chats in another place than they would be scored in.

    Raises:
        ManifestError: it names both places.
    """
    if manifest.layout == "chat" and manifest.corpus.text_field != wrapping.place:
        raise ManifestError(
            f"the canaries of this manifest were inserted as {manifest.corpus.text_field}, and "
            f"this wrapping scores them as {wrapping.place}, where they would look unknown; give "
            "the wrapping of insert(...)"
        )


def check_template(tokenizer: Any, wrapping: Wrapping) -> None:
    """Refuse a tokenizer that cannot wrap a text in a chat, or not always alike.

    Raises:
        ModelError: no chat template, one that writes today's date, or a tokenizer that does not say
            where its tokens begin and end.
    """
    try:
        tokenizer.get_chat_template(wrapping.chat_template)
    except ValueError:  # none, or several of which none is the usual one
        raise ModelError(
            f"turn={wrapping.turn!r} needs a chat template and the tokenizer has none; give "
            "chat_template, or set tokenizer.chat_template to that of the training"
        ) from None
    if not tokenizer.is_fast:
        raise ModelError(
            "the tokenizer does not say at which characters its tokens begin; load the fast one "
            "(AutoTokenizer does)"
        )
    _check_date(tokenizer, wrapping)


def _check_date(tokenizer: Any, wrapping: Wrapping) -> None:
    """The day of the scoring is not that of the training."""
    template = tokenizer.get_chat_template(wrapping.chat_template)
    if "strftime_now" not in template:
        return
    chats = set()
    for day in "12":
        dated = f"{{%- macro strftime_now(format) -%}}{day}{{%- endmacro -%}}{template}"
        of_day = replace(wrapping, chat_template=dated)
        chats.add(_apply(tokenizer, wrapping.messages("text"), of_day, tokenize=False))
    if len(chats) > 1:
        raise ModelError(
            "the chat template writes today's date into every chat, so that training and scoring "
            "differ; in tokenizer.chat_template and here, put the date of the training as a text "
            "in the place of strftime_now(...)"
        )


def _as_document(tokenizer: Any, document: Encoded, wrapping: Wrapping) -> WrappedText:
    """A plain text, as it is in a row of its own where no context was given."""
    if wrapping.context == "":
        own = document.ids[0 if document.first_unscored else document.scored_from :]
        begun = _begins_with(tokenizer)
        document = Encoded(
            ids=begun + own, scored_from=max(len(begun), 1), first_unscored=not len(begun)
        )
    if len(document.ids) <= document.scored_from:
        raise ModelError(
            "a text of one token is all of its row, and nothing predicts it; use a longer format"
        )
    return WrappedText(
        encoded=document, carried=np.ones(len(document.ids) - document.scored_from, bool)
    )


def _begins_with(tokenizer: Any) -> list[int]:
    """The tokens that a tokenizer puts before every text by itself."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    ids: list[int] = tokenizer("a")["input_ids"]
    starts = range(len(ids) - len(bare) + 1)
    return ids[: next((i for i in starts if ids[i : i + len(bare)] == bare), 0)]


def _check_apart(texts: Sequence[str], wrapped: Sequence[WrappedText]) -> None:
    """A tokenizer that rewrites texts may write two alike, and no rank could tell them apart."""
    if len({tuple(text.encoded.ids) for text in wrapped}) < len(set(texts)):
        raise ModelError(
            "the tokenizer gives two different fills the same tokens; use a format whose "
            "characters it keeps"
        )


def _check_window(wrapped: Sequence[WrappedText], max_length: int | None) -> None:
    for number, text in enumerate(wrapped):
        if max_length is not None and len(text.encoded.ids) > max_length:
            raise ModelError(
                f"text {number} of {len(wrapped)} ends at token {len(text.encoded.ids)} of its "
                f"wrapping, but the model's context window holds {max_length}; use a shorter "
                "format, a shorter other turn or another model"
            )


def _in_chat(tokenizer: Any, canary: str, wrapping: Wrapping, *, name: str) -> WrappedText:
    start = _place(tokenizer, canary, wrapping, name)
    row = _tokens(tokenizer, wrapping.messages(canary), wrapping)
    ids, end = row["input_ids"], start + len(canary)
    own = [i for i, (a, b) in enumerate(row["offset_mapping"]) if a < end and b > start]
    # Nothing predicts the first token.
    first, stop = max(own[0], 1), own[-1] + 1
    carried = _carried(tokenizer, canary, wrapping, row)[first:stop]
    if not carried.any():
        raise ModelError(
            f"{name}: no token of it carries loss under loss={wrapping.loss!r}; for 'assistant' "
            "the chat template must mark its answers with {% generation %}; where SFTTrainer put "
            "another in its place, give chat_template=trainer.chat_template"
        )
    return WrappedText(encoded=Encoded(ids=ids[:stop], scored_from=first), carried=carried)


def _place(tokenizer: Any, canary: str, wrapping: Wrapping, name: str) -> int:
    """The character of the rendered chat at which the text begins."""
    chat = _apply(tokenizer, wrapping.messages(canary), wrapping, tokenize=False)
    if chat.count(canary) != 1:
        what = "repeats" if canary in chat else "drops or rewrites"
        raise ModelError(
            f"{name}: the chat template {what} it as turn={wrapping.turn!r}; use a format that the "
            "template keeps as it is (no space at its ends, say), or another template"
        )
    place: int = chat.index(canary)
    return place


def _carried(tokenizer: Any, canary: str, wrapping: Wrapping, row: Any) -> NDArray[np.bool_]:
    """Which tokens of the chat carry loss, shape (T,)."""
    ids = row["input_ids"]
    if wrapping.loss == "assistant":
        return np.array(row["assistant_masks"], dtype=bool)
    behind = 0
    if wrapping.loss == "completion":
        # As TRL does: the prompt ends where the two renderings begin to differ.
        prompt = wrapping.messages(canary)[:1]
        begun = _tokens(tokenizer, prompt, wrapping, prompt=True)["input_ids"]
        pairs = zip(begun, ids, strict=False)
        behind = next((i for i, (own, other) in enumerate(pairs) if own != other), len(begun))
    return np.arange(len(ids)) >= behind


def _tokens(
    tokenizer: Any, messages: list[dict[str, str]], wrapping: Wrapping, *, prompt: bool = False
) -> Any:
    return _apply(
        tokenizer,
        messages,
        wrapping,
        tokenize=True,
        return_dict=True,
        add_generation_prompt=prompt,
        return_assistant_tokens_mask=wrapping.loss == "assistant",
        tokenizer_kwargs={"return_offsets_mapping": True, "verbose": False},
    )


def _apply(
    tokenizer: Any, messages: list[dict[str, str]], wrapping: Wrapping, **options: Any
) -> Any:
    template = wrapping.chat_template
    try:
        return tokenizer.apply_chat_template(messages, chat_template=template, **options)
    except Exception as failure:  # a template raises what it likes, and may show the text
        raise ModelError(
            f"the chat template refuses a turn of the user and one of the assistant "
            f"({type(failure).__name__}); give another chat_template"
        ) from None


def wrapped_exposures(
    model: Any,
    tokenizer: Any,
    manifest: Manifest,
    wrapping: Wrapping,
    *,
    references: int | None = None,
    level: float = 0.95,
    batch_size: int | None = None,
) -> list[CanaryResult]:
    """Exposure of each canary and control by its rank among references wrapped alike.

    Args:
        model: a `transformers` causal language model, one with adapters too; scored in evaluation
            mode, also right after a training, and left in the mode that it was in.
        tokenizer: its tokenizer, with the chat template of the training.
        manifest: what was inserted.
        wrapping: that of the training.
        references: per format, at least 1; by default 10,000, or all that are left.
        level: two-sided coverage of each canary's interval.
        batch_size: texts a forward pass; None chooses one.

    Returns:
        canaries and controls in the manifest's order; `exposure` is the estimate "sampled", in
        bits, higher = more memorised.

    Raises:
        ManifestError: the manifest holds no inserted canary, or says that they are in another
            place of a record than this wrapping does.
        ModelError: see `wrapped_log_perplexity`.
        NumericalError: the model gave NaN or infinite logits.
        PlanError: a format has fewer references than were asked for.
        SettingsError: `level` is not strictly between 0 and 1, or hardly.

    Source: Carlini et al. 2019, The Secret Sharer, section 4.
    """
    if not manifest.canaries:
        raise ManifestError("the manifest holds no inserted canary, so there is nothing to measure")
    check_place(manifest, wrapping)
    coverage("level", level)
    results = []
    for name, form in manifest.formats.items():
        drawn = [canary for canary in manifest.entries if canary.format == name]
        indices = manifest.references(name, references, strict=references is not None)
        texts = [canary.text for canary in drawn] + [form.text(index) for index in indices]
        bits = wrapped_log_perplexity(model, tokenizer, texts, wrapping, batch_size=batch_size)
        results += _by_rank(drawn, bits, size=form.size, level=level)
    return results


def _by_rank(
    drawn: Sequence[Canary], bits: NDArray[np.float64], *, size: int, level: float
) -> list[CanaryResult]:
    # A candidate that its coin kept out was drawn as a reference is: it is one.
    out = np.array([canary.role == "held_out" for canary in drawn], dtype=bool)
    own = bits[: len(drawn)][~out]
    null = np.concatenate([bits[: len(drawn)][out], bits[len(drawn) :]])
    exposures = sampled_exposure(own, null, space_size=size, level=level)
    results = []
    for i, canary in enumerate(canary for canary in drawn if canary.role != "held_out"):
        estimate = Estimate.model_validate(exposures.row(i))
        results.append(
            CanaryResult(
                id=canary.id,
                format=canary.format,
                role="canary" if canary.inserted else "control",
                repetitions=canary.repetitions,
                log_perplexity_bits=float(own[i]),
                exposure=estimate,
                estimates={"sampled": estimate},
                extraction=(),
            )
        )
    return results
