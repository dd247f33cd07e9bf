"""Users of a corpus: those that its records name, or parts of a text."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lmexposure.canaries import corpus_files, layout_for, read_documents, read_records
from lmexposure.errors import CorpusError
from lmexposure.models import LoadedModel


def texts_of_users(
    corpus: str | Path | Sequence[str | Path], user_field: str | None, parts: int, text_field: str
) -> dict[str, str]:
    """All that each user wrote; without a field of users all of it, under no name."""
    names = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    if user_field is None:
        files = corpus_files(names)
        layout = layout_for(files, None, text_field)
        whole = "\n".join(read_documents(files, layout=layout.name, text_field=text_field))
        if len(whole) < parts:
            raise CorpusError(
                f"the corpus has {len(whole)} characters, of which {parts} clients cannot be made; "
                "give more text, or fewer clients (parts=...)"
            )
        return {"": whole}
    found: dict[str, list[str]] = {}
    for number, record in enumerate(read_records(names), 1):
        user, text = record.get(user_field), record.get(text_field)
        if user is None or not isinstance(text, str):
            continue
        if isinstance(user, dict | list):
            raise CorpusError(
                f"record {number}: {user_field!r} is no text and no number; name a field with one "
                "value a user (user_field=...)"
            )
        found.setdefault(str(user), []).append(text)
    if not found:
        raise CorpusError(
            f"no record has both {user_field!r} and a text in {text_field!r}; name other fields "
            "(user_field=..., text_field=...)"
        )
    return {name: "\n".join(own) for name, own in found.items()}


def _tokens(loaded: LoadedModel, text: str) -> list[int]:
    ids: list[int] = loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def tokens_of_users(
    loaded: LoadedModel, texts: Mapping[str, str], parts: int
) -> dict[str, list[int]]:
    """What each user wrote as tokens; a text of no user is cut into parts."""
    tokens = {name: _tokens(loaded, text) for name, text in texts.items()}
    if list(tokens) != [""]:
        return tokens
    whole = tokens[""]
    size = max(1, len(whole) // parts)
    return {f"part {part + 1}": whole[part * size : (part + 1) * size] for part in range(parts)}
