"""The whole audit of a federated training: users of a corpus, their training, attacked rounds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lmexposure._files import canonical_json, mode_like, sha256_bytes
from lmexposure._record import JsonValue
from lmexposure._validate import integer
from lmexposure.canaries import corpus_files, layout_for, read_documents, read_records
from lmexposure.core import REPORTS, Work, claimed
from lmexposure.errors import CorpusError
from lmexposure.models import (
    FederatedAudit,
    LoadedModel,
    LstmSizes,
    RoundAudit,
    clients_of,
    computing_threads,
    federated_training,
    new_model,
    save_model,
)
from lmexposure.studies import (
    Canife,
    CanifeRound,
    CanifeSettings,
    FederatedSettings,
)

Corpus = str | Path | Sequence[str | Path]
Said = Callable[[str, int, int, str], None]

_HIDDEN = frozenset({"seed", "canary_seed", "corpus"})


def canife_audit(  # noqa: PLR0913  a public door: its parameters are its options
    corpus: Corpus,
    *,
    out: str | Path,
    user_field: str | None = None,
    parts: int = 100,
    settings: FederatedSettings | None = None,
    attacks: CanifeSettings | None = None,
    lstm: LstmSizes | None = None,
    text_field: str = "text",
    progress: Said | None = None,
) -> Canife:
    """Train an LSTM on users of a corpus in a federated way, and attack its rounds.

    Where it was ended it goes on from the last attacked round, to the same bytes.
    """
    asked = _Asked(
        settings=FederatedSettings() if settings is None else settings,
        attacks=CanifeSettings() if attacks is None else attacks,
        lstm=LstmSizes(units=32, embedding=32, layers=2) if lstm is None else lstm,
        texts=texts_of_users(corpus, user_field, integer("parts", parts, low=2), text_field),
        parts=None if user_field is not None else parts,
    )
    names = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    mode = mode_like(*corpus_files(names))  # weights remember their users' text
    with (
        claimed(Canife, out, writes=("model", *REPORTS)) as held,
        held.work(asked.named, hidden=_HIDDEN) as work,
        computing_threads(1),
    ):
        made = work.finished()
        if made is None or not (work.out / "model").is_dir():
            made = _trained(asked, work, mode, progress)
        work.drop()
    return made


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """All that decides a training and its attacks."""

    settings: FederatedSettings
    attacks: CanifeSettings
    lstm: LstmSizes
    texts: Mapping[str, str]
    parts: int | None  # that a corpus without users is cut into

    @property
    def named(self) -> dict[str, JsonValue]:
        """By names that people know; the corpus by its hash."""
        sizes = {"units": self.lstm.units, "layers": self.lstm.layers}
        return {
            **asdict(self.settings),
            **asdict(self.attacks),
            **sizes,
            "embedding": self.lstm.embedding,
            "clients": self.parts,
            "corpus": sha256_bytes(canonical_json(dict(self.texts))),
        }


def _trained(asked: _Asked, work: Work[Canife], mode: int, progress: Said | None) -> Canife:
    """Train, attack, and write the model and the record."""
    settings, attacks = asked.settings, asked.attacks
    texts, lstm = asked.texts, asked.lstm
    loaded = new_model("lstm", texts.values(), seed=settings.seed, separator=None, lstm=lstm)
    clients = clients_of(tokens_of_users(loaded, texts, asked.parts or 1), length=attacks.length)

    def told(number: int, loss: float) -> None:
        if progress is not None:
            progress("rounds", number, settings.rounds, f"loss {loss:.3f} nats")

    audit = federated_training(
        loaded.model.train(), clients, settings, attacks, progress=told, kept=work.part("training")
    )
    record = _record(audit, work.sha256, len(clients), loaded.size)
    save_model(loaded.model.eval(), loaded.tokenizer, work.out / "model", mode=mode)
    record.save(work.out)
    return record


def _record(audit: FederatedAudit, inputs: str, clients: int, weights: int) -> Canife:
    settings = audit.settings
    return Canife.now(
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
    )


def _round(row: RoundAudit) -> CanifeRound:
    values: dict[str, Any] = asdict(row)
    for name in ("noise", "noise_at_most", "claimed_round", "claimed_so_far"):
        values[name] = values[name] if math.isfinite(values[name]) else None
    return CanifeRound(**values)


def texts_of_users(
    corpus: Corpus, user_field: str | None, parts: int, text_field: str
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
