"""Which text is in which model: the shares of the models, and a coin for each text in each.

The coins of a text are a stream of its own, and those in the models of another share another one,
so that no coin moves another. In the models of a share below 1 only the first candidates of each
class can be in; the partner of a near-duplicate goes with its candidate.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from lmexposure.canaries import ALWAYS, KINDS, PARTNERS, Canary, Manifest, derive_seed, permutation
from lmexposure.studies import AuditedText, SweepSettings


def shares_of(settings: SweepSettings) -> tuple[float, ...]:
    """For each model, the share of the canaries that can be in it, descending."""
    return tuple(
        float(share) for share in settings.shares_used for _ in range(settings.models_of(share))
    )


def inserted_texts(manifest: Manifest) -> list[AuditedText]:
    """The candidates of a manifest, then the partners of near-duplicates, which are not audited."""
    partners = _partner_formats(manifest)
    audited = [entry for entry in manifest.canaries if entry.format not in partners]
    others = [entry for entry in manifest.canaries if entry.format in partners]
    return [
        *(_text(entry, "canaries") for entry in audited),
        *(_text(entry, "partners") for entry in others),
    ]


def tossed(
    settings: SweepSettings, manifest: Manifest, names: Sequence[str], seed: int
) -> tuple[str, ...]:
    """A row of coins for each model."""
    places = _places(manifest)
    always = _always_in(manifest)
    rows: list[str] = []
    for share in settings.shares_used:
        width = settings.models_of(share)
        most = ceil(share * settings.run.per_class)
        stream = ("coins",) if share == 1 else ("coins", f"share {share:g}")
        columns = []
        for name in names:
            if places.get(name, -1) >= most:
                columns.append("0" * width)
            elif name in always:
                columns.append("1" * width)
            else:
                columns.append(_column(settings, width, derive_seed(seed, *stream, name)))
        rows.extend("".join(row) for row in zip(*columns, strict=True))
    return tuple(rows)


def eligible(texts: Iterable[AuditedText], share: float, per_class: int) -> list[bool]:
    """Which of the audited canaries can be in the models of a share."""
    most = ceil(share * per_class)
    return [_number(text.id) < most for text in texts]


def _text(entry: Canary, group: str) -> AuditedText:
    return AuditedText(
        id=entry.id,
        group="canaries" if group == "canaries" else "partners",
        kind=f"{entry.format}/x{entry.repetitions}",
        format=entry.format,
        repetitions=entry.repetitions,
        document=None,
    )


def _partner_formats(manifest: Manifest) -> set[str]:
    return {name for name, form in manifest.formats.items() if form.kind in PARTNERS}


def _number(name: str) -> int:
    """Of a candidate within its class, from 0, by its id: 3 of "pin/x1/0003"."""
    return int(name.rpartition("/")[2])


def _places(manifest: Manifest) -> Mapping[str, int]:
    """The number within its class of each candidate; a partner has that of its candidate."""
    partners = _partner_formats(manifest)
    audited = [entry for entry in manifest.canaries if entry.format not in partners]
    # Text i of both formats is a pair, whatever their ids.
    kinds = {name: KINDS.get(form.kind) for name, form in manifest.formats.items()}
    paired = {name for name, kind in kinds.items() if kind is not None and kind.paired}
    of_pair = {e.index: _number(e.id) for e in audited if e.format in paired}
    others = [entry for entry in manifest.canaries if entry.format in partners]
    return {
        **{entry.id: _number(entry.id) for entry in audited},
        **{entry.id: of_pair.get(entry.index, _number(entry.id)) for entry in others},
    }


def _always_in(manifest: Manifest) -> set[str]:
    always = {name for name, form in manifest.formats.items() if form.kind == ALWAYS}
    return {entry.id for entry in manifest.canaries if entry.format in always}


def _column(settings: SweepSettings, models: int, seed: int) -> str:
    """The coins of one text in the models of a share."""
    if settings.coins == "exactly_half":
        inside = set(list(permutation(models, seed))[: models // 2])
        return "".join("1" if model in inside else "0" for model in range(models))
    bits = random.Random(seed).getrandbits(models)
    return f"{bits:0{models}b}"
