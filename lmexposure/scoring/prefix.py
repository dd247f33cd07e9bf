"""The tokens that all fills of a format begin with, in context."""

from collections.abc import Sequence
from typing import Any

from lmexposure.models.encoding import Encoded, encode_documents

__all__ = ["shared_prefix"]


def shared_prefix(
    tokenizer: Any, encoded: Sequence[Encoded], *, context: str | None, literal: str
) -> list[int]:
    """The longest token prefix that these fills share and that lies before the secret.

    Args:
        tokenizer: the tokenizer that encoded the fills.
        encoded: fills of one format in context.
        context: their left context.
        literal: the format's text before its first hole. Without it, a handful of fills could
            share a character of the secret by chance.

    Returns:
        token ids, the context's and the start token included.
    """
    prefix = encode_documents(tokenizer, [literal], context=context)[0]
    for one in encoded:
        length = min(len(prefix), len(one.ids) - 1)
        same = (i for i in range(length) if prefix[i] != one.ids[i])
        prefix = prefix[: next(same, length)]
    return prefix
