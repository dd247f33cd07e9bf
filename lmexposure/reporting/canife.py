"""A federated training and its canaries in words and files: claimed and seen, round by round."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from lmexposure._style import (
    LABELS,
    MISSING,
    count,
    nats,
    number,
    percent,
    sentence,
    short,
    short_hash,
    whole,
)
from lmexposure._text import printable
from lmexposure.core import bullets, inline
from lmexposure.records import CanifeRecord, CanifeRound
from lmexposure.reporting.data import Section
from lmexposure.reporting.markdown import section_table
from lmexposure.reporting.write import known_in, write_files

_COLUMNS = (
    "round",
    "seen",
    "attainable",
    "claimed",
    "point",
    "seen so far",
    "claimed so far",
    "noise at most",
    "health",
    "random text",
)


def canife_finding(record: CanifeRecord) -> str:
    """What canaries saw of the training, in a line."""
    seen = f"canaries show an epsilon of at least {nats(record.largest)}"
    if record.claimed is None:
        return f"the training had no noise, so that no epsilon holds for it; {seen}"
    seen += f" of {nats(record.claimed)} claimed"
    if (worst := record.refuting) is not None:
        return (
            f"the claim is refuted: round {worst.round} leaves room for a noise multiplier of at "
            f"most {_short(worst.noise_at_most)}, {short(record.noise_multiplier)} claimed; {seen}"
        )
    if record.refuted:
        return f"the claim is refuted: {seen}"
    if not record.could_refute:
        return (
            f"the claim is not tested: max attainable with these mock rounds is "
            f"{nats(record.attainable)}; {seen}"
        )
    return f"{seen}: the claim is not refuted"


def canife_sections(record: CanifeRecord) -> list[Section]:
    """The tables, in the order of a reader's questions."""
    return [_rounds(record), _training(record)]


def canife_markdown(record: CanifeRecord) -> str:
    """All of it as Markdown."""
    parts = ["# Federated training, seen by canaries", f"**{inline(_said(record))}**"]
    for section in canife_sections(record):
        parts += [f"## {inline(section.title)}", section_table(section)]
        parts += [bullets(section.notes)] if section.notes else []
    parts.append(inline(canife_origin(record)))
    return printable("\n\n".join(parts) + "\n")


def canife_origin(record: CanifeRecord) -> str:
    """What was trained, and when."""
    return (
        f"{whole(record.weights)} weights, {count(record.clients, 'client')} "
        f"({short_hash(record.inputs_sha256)}); lmexposure {record.lmexposure}, {record.measured}"
    )


def canife_csv(record: CanifeRecord) -> str:
    """A row an attacked round (RFC 4180); numbers in full, missing ones empty."""
    stream = io.StringIO()
    names = [name for name in CanifeRound.model_fields if name not in ("scores", "coins")]
    table = csv.DictWriter(stream, names, lineterminator="\r\n", extrasaction="ignore")
    table.writeheader()
    table.writerows(row.model_dump() for row in record.attacked)
    return stream.getvalue()


def write_canife(
    record: CanifeRecord, out: str | Path, *, source: Path | None = None
) -> list[Path]:
    """Write report.html, report.md and report.csv into a directory, each whole or not at all."""
    from lmexposure.reporting.canife_page import render_canife

    of = known_in(Path(out), CanifeRecord.NAME, source, record.inputs_sha256)
    files = {
        "report.html": render_canife(record).encode(),
        "report.md": canife_markdown(record).encode(),
        "report.csv": canife_csv(record).encode(),
    }
    return write_files(Path(out), files, of=of)


def _said(record: CanifeRecord) -> str:
    return sentence(canife_finding(record))


def _nats(value: float | None) -> str:
    return MISSING if value is None else nats(value)


def _short(value: float | None) -> str:
    return MISSING if value is None else short(value)


def _rounds(record: CanifeRecord) -> Section:
    return Section(
        title="Epsilon, round by round",
        columns=_COLUMNS,
        rows=tuple(map(_row, record.attacked)),
        words=0,
        notes=tuple(_notes(record)),
    )


def _row(row: CanifeRound) -> tuple[str, ...]:
    return (
        str(row.round),
        nats(row.epsilon_round),
        nats(row.attainable_round),
        _nats(row.claimed_round),
        nats(row.point),
        nats(row.epsilon_so_far),
        _nats(row.claimed_so_far),
        _short(row.noise_at_most),
        number(row.health, 2),
        _nats(row.random_epsilon_round),
    )


def _notes(record: CanifeRecord) -> Iterator[str]:
    yield (
        f"nats at {LABELS['delta']} {short(record.delta)}; seen: lower bounds for a Gaussian "
        f"trade-off, all together at {percent(1 - record.significance)}; claimed: as the noise "
        "promises"
    )
    yield "round: of a round that the canary's client is in; so far: of the training up to there"
    yield (
        "attainable: the most that a canary could have shown which is told in every mock round; of "
        f"the training {nats(record.attainable)}"
    )
    yield (
        "so far: with the noise that the last attacked round left room for, held until the next "
        "(an assumption), and clients in a round by coins at the rate of the training; it is at "
        "least what a round alone shows at that rate"
    )
    yield (
        "point: as the source of the method has it, chosen on the data; no bound, and about 3.9 at "
        "most of 100 mock rounds"
    )
    yield (
        f"noise at most: the multiplier that the bound leaves room for, "
        f"{short(record.noise_multiplier)} claimed"
    )
    yield (
        "health: 1 where the canary has nothing in common with clients, 0 where it has as much as "
        "random text; random text: what a text of random tokens shows in its place"
    )
    if not record.frozen:
        yield (
            "rounds were not frozen: the model went on between the coins of a canary, and each "
            "coin was guessed"
        )


def _training(record: CanifeRecord) -> Section:
    batch = "all rows" if record.local_batch is None else count(record.local_batch, "row")
    return Section(
        title="The training",
        columns=("what", "value"),
        words=2,
        rows=(
            ("clients", whole(record.clients)),
            ("put aside to attack", whole(record.aside)),
            ("rounds", whole(record.rounds)),
            ("a client's rate", short(record.client_rate)),
            ("a client's steps", f"{count(record.local_epochs, 'epoch')} of {batch} a step"),
            ("clip", short(record.clip)),
            ("noise multiplier", short(record.noise_multiplier)),
            (
                "loss on mock clients, nats a token",
                f"{number(record.losses[0], 3)} before, {number(record.losses[-1], 3)} after"
                f"{'' if record.learned else ': the model did not learn'}",
            ),
        ),
        notes=("the unit of privacy is a client with all that it holds; add or remove one client",),
    )
