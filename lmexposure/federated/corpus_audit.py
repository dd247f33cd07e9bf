"""CANIFE of a corpus, from its files to canife.json: users of records, or parts of a text."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lmexposure import __version__
from lmexposure._files import canonical_json, mode_like, only_writer, sha256_bytes
from lmexposure._validate import integer
from lmexposure._written import refuse_foreign
from lmexposure.canaries import corpus_files, layout_for, read_documents, read_records
from lmexposure.errors import CorpusError, ResultError
from lmexposure.federated.audit import FederatedAudit, RoundAudit, federated_training
from lmexposure.federated.rounds import clients_of
from lmexposure.models import LoadedModel, LstmSizes, computing_threads, new_model, save_model
from lmexposure.records import (
    CanifeRecord,
    CanifeRound,
    CanifeSettings,
    FederatedSettings,
    refuse_other_study,
    utc_now,
)

_WRITTEN = ("canife.json", "model", "report.html", "report.md", "report.csv")
Said = Callable[[str, int, int, str], None]


def canife(  # noqa: PLR0913  a public door: its parameters are its options
    corpus: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    user_field: str | None = None,
    parts: int = 100,
    settings: FederatedSettings | None = None,
    attacks: CanifeSettings | None = None,
    lstm: LstmSizes | None = None,
    text_field: str = "text",
    progress: Said | None = None,
) -> CanifeRecord:
    """Train an LSTM on users of a corpus in a federated way, and attack its rounds."""
    out = Path(out)
    with only_writer(out):
        refuse_other_study(out, (CanifeRecord.NAME,), "canife")
        refuse_foreign(out, _WRITTEN)
        return _audit(corpus, out, user_field, parts, settings, attacks, lstm, text_field, progress)


def _audit(  # noqa: PLR0913  as the public door
    corpus: str | Path | Sequence[str | Path],
    out: Path,
    user_field: str | None,
    parts: int,
    settings: FederatedSettings | None,
    attacks: CanifeSettings | None,
    lstm: LstmSizes | None,
    text_field: str,
    progress: Said | None,
) -> CanifeRecord:
    settings = FederatedSettings() if settings is None else settings
    attacks = CanifeSettings() if attacks is None else attacks
    lstm = LstmSizes(units=32, embedding=32, layers=2) if lstm is None else lstm
    texts = _texts(corpus, user_field, integer("parts", parts, low=2), text_field)
    loaded = new_model("lstm", texts.values(), seed=settings.seed, separator=None, lstm=lstm)
    tokens = {name: _tokens(loaded, text) for name, text in texts.items()}
    if user_field is None:
        tokens = _cut(tokens[""], parts)
    clients = clients_of(tokens, length=attacks.length)
    inputs = sha256_bytes(
        canonical_json([asdict(settings), asdict(attacks), asdict(lstm), parts, texts])
    )
    with computing_threads(1):
        _refuse_another(out, inputs)
        audit = federated_training(
            loaded.model.train(),
            clients,
            settings,
            attacks,
            progress=None
            if progress is None
            else lambda number, loss: progress(
                "rounds", number, settings.rounds, f"loss {loss:.3f} nats"
            ),
        )
        weights = sum(weight.numel() for weight in loaded.model.parameters())
        record = _record(audit, inputs, len(clients), weights)
        names = [corpus] if isinstance(corpus, str | Path) else list(corpus)
        mode = mode_like(*corpus_files(names))  # weights remember their users' text
        save_model(loaded.model.eval(), loaded.tokenizer, out / "model", mode=mode)
        record.write(out / CanifeRecord.NAME)
    return record


def _texts(
    corpus: str | Path | Sequence[str | Path], user_field: str | None, parts: int, text_field: str
) -> dict[str, str]:
    """All that each user wrote; without users, all of it under no name."""
    names = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    if user_field is None:
        files = corpus_files(names)
        layout = layout_for(files, None, text_field)
        whole = "\n".join(read_documents(files, layout=layout.name, text_field=text_field))
        if len(whole) < parts:
            raise CorpusError(
                f"the corpus has {len(whole)} characters, of which {parts} clients cannot be made; "
                "give more text, or fewer clients (--clients)"
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
                "value a user (--user-field)"
            )
        found.setdefault(str(user), []).append(text)
    if not found:
        raise CorpusError(
            f"no record has both {user_field!r} and a text in {text_field!r}; name other fields "
            "(--user-field, --text-field)"
        )
    return {name: "\n".join(own) for name, own in found.items()}


def _tokens(loaded: LoadedModel, text: str) -> list[int]:
    ids: list[int] = loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _cut(tokens: list[int], parts: int) -> dict[str, list[int]]:
    size = max(1, len(tokens) // parts)
    return {f"part {part + 1}": tokens[part * size : (part + 1) * size] for part in range(parts)}


def _refuse_another(out: Path, inputs: str) -> None:
    path = out / CanifeRecord.NAME
    if path.exists() and CanifeRecord.read(path).inputs_sha256 != inputs:
        raise ResultError(f"{out} holds another training; choose another --out, or move it away")


def _record(audit: FederatedAudit, inputs: str, clients: int, weights: int) -> CanifeRecord:
    settings = audit.settings
    return CanifeRecord(
        inputs_sha256=inputs,
        clients=audit.clients,
        aside=clients - audit.clients,
        weights=weights,
        rounds=settings.rounds,
        client_rate=settings.client_rate,
        local_epochs=settings.local_epochs,
        local_batch=settings.local_batch,
        clip=settings.clip,
        noise_multiplier=settings.noise_multiplier,
        delta=settings.delta,
        frozen=audit.canife.frozen,
        significance=audit.canife.significance,
        attacked=tuple(map(_round, audit.rounds)),
        attainable=audit.attainable,
        losses=audit.losses,
        measured=utc_now(),
        lmexposure=__version__,
    )


def _round(row: RoundAudit) -> CanifeRound:
    values: dict[str, Any] = asdict(row)
    for name in ("noise", "noise_at_most", "claimed_round", "claimed_so_far"):
        values[name] = values[name] if math.isfinite(values[name]) else None
    return CanifeRound(**values)
