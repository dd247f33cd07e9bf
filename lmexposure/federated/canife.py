"""The whole audit of a federated training: users of a corpus, their training, attacked rounds.

Users are those that records name, or parts of a text.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from lmexposure._files import canonical_json, mode_like, sha256_bytes
from lmexposure._forecast import Pace, Phase
from lmexposure._record import JsonValue
from lmexposure._style import count
from lmexposure.audit import Progress, Watcher, silent
from lmexposure.canaries import corpus_files, layout_for, read_documents, read_records
from lmexposure.core import REPORTS, Work, claimed
from lmexposure.errors import CorpusError
from lmexposure.models import (
    FederatedAudit,
    LoadedModel,
    LstmSizes,
    clients_of,
    computing_threads,
    federated_training,
    new_model,
    save_model,
)
from lmexposure.studies import Canife, CanifeSettings, CanifeStudySettings, FederatedSettings


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
                "give more text, or fewer clients (clients=...)"
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


def tokens_of_users(
    loaded: LoadedModel, texts: Mapping[str, str], parts: int
) -> dict[str, list[int]]:
    """What each user wrote as tokens; a text of no user is cut into parts."""
    read = loaded.tokenizer
    tokens = {
        name: read(text, add_special_tokens=False)["input_ids"] for name, text in texts.items()
    }
    if list(tokens) != [""]:
        return tokens
    whole = tokens[""]
    size = max(1, len(whole) // parts)
    return {f"part {part + 1}": whole[part * size : (part + 1) * size] for part in range(parts)}


Corpus = str | Path | Sequence[str | Path]

_HIDDEN = frozenset({"seed", "canary_seed", "corpus"})
_JUDGED = 328  # texts that are judged when a canary is crafted, by an update of a row each


def canife_audit(
    corpus: Corpus,
    *,
    out: str | Path,
    settings: CanifeStudySettings | None = None,
    progress: Progress | None = None,
) -> Canife:
    """Attack the federated training of an LSTM on users of a corpus; goes on to the same bytes."""
    settings = CanifeStudySettings() if settings is None else settings
    users, units = settings.user_field, settings.units
    asked = _Asked(
        settings=settings.training,
        attacks=settings.attacks,
        lstm=LstmSizes(units=units, embedding=units, layers=settings.layers),
        texts=texts_of_users(corpus, users, settings.clients, settings.text_field),
        parts=None if users is not None else settings.clients,
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
            made = _trained(asked, work, mode, progress or silent)
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


def _trained(asked: _Asked, work: Work[Canife], mode: int, progress: Progress) -> Canife:
    """Train, attack, and write the model and the record."""
    settings, attacks = asked.settings, asked.attacks
    texts, lstm = asked.texts, asked.lstm
    loaded = new_model("lstm", texts.values(), seed=settings.seed, separator=None, lstm=lstm)
    clients = clients_of(tokens_of_users(loaded, texts, asked.parts or 1), length=attacks.length)

    if isinstance(progress, Watcher):
        progress = _Ahead(progress, settings, attacks, len(clients) - 2 * attacks.design_clients)
    audit = federated_training(
        loaded.model.train(),
        clients,
        settings,
        attacks,
        progress=progress,
        kept=work.part("training"),
    )
    record = _record(audit, work.sha256, len(clients), loaded.size)
    save_model(loaded.model.eval(), loaded.tokenizer, work.out / "model", mode=mode)
    record.save(work.out)
    return record


class _Ahead:
    """What a federated training still takes, by the clients, canaries and rounds that were seen."""

    def __init__(
        self,
        watcher: Watcher,
        settings: FederatedSettings,
        attacks: CanifeSettings,
        clients: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watcher, self._clock = watcher, clock
        self._settings, self._attacks = settings, attacks
        self._in_a_round = settings.client_rate * clients
        self._begun = clock()  # the round, or the attack in front of it
        self._round = 0
        self._crafting: Pace | None = None  # of an attack under way
        self._attacked: set[int] = set()  # rounds whose attack ended
        self._updates = 0.0  # seconds of those of the design pool
        # seconds of one; the estimates are for as long as none was seen
        self._estimates = {"attack": 0.0, "round": 0.0}
        self._seen: dict[str, list[float]] = {"attack": [], "round": []}
        attacked = -(-settings.rounds // attacks.every)
        title = f"training {count(settings.rounds, 'round')}, {attacked:,} of them attacked"
        watcher.plan(title, [Phase(what="rounds", kind="rounds", work=1.0)], keeps=False)

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Take how far a canary is, or that a round or its attack ended."""
        now = self._clock()
        if what == "crafting":
            self._see_crafting(done, total, now)
        else:
            self._see_round(done, now)
        each = {what: fmean(self._seen[what] or [known]) for what, known in self._estimates.items()}
        if each["attack"] and each["round"]:
            self._watcher.expect("rounds", self._left(each["attack"], each["round"], now))
        self._watcher(what, done, total, note)

    def _see_crafting(self, done: int, total: int, now: float) -> None:
        if self._crafting is None:
            self._crafting, self._updates = Pace(), now - self._begun
            each = self._updates / self._attacks.design_clients
            self._estimates["round"] = self._in_a_round * each + self._updates / 3  # and a loss
        left = self._crafting.left(done, total, now)
        if left is not None and done < total:
            # Texts are judged then by an update each, which takes a third of an iteration.
            judged = _JUDGED / 3 * left / (total - done)
            self._estimates["attack"] = now - self._begun + left + judged + self._updates

    def _see_round(self, done: int, now: float) -> None:
        if self._crafting is not None:
            self._seen["attack"].append(now - self._begun)
            self._attacked.add(done)
            self._crafting = None
        elif done > self._round:
            self._seen["round"].append(now - self._begun)
        self._begun, self._round = now, done

    def _left(self, attack: float, each: float, now: float) -> float:
        """Seconds of the attacks and rounds that did not end, less what the present one took."""
        rounds = range(self._round, self._settings.rounds)
        attacks = {number for number in rounds if number % self._attacks.every == 0}
        present = each if self._crafting is None else attack
        left = len(attacks - self._attacked) * attack + len(rounds) * each
        return max(0.0, left - min(present, now - self._begun))


def _record(audit: FederatedAudit, inputs: str, clients: int, weights: int) -> Canife:
    return Canife.now(
        inputs_sha256=inputs,
        clients=audit.clients,
        aside=clients - audit.clients,
        weights=weights,
        training=audit.settings,
        attacks=audit.canife,
        attacked=audit.rounds,
        attainable=audit.attainable,
        losses=audit.losses,
    )
