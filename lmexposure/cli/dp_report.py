"""`lmexposure dp-report`: what a private training let out about each document."""

import csv
import io
from pathlib import Path
from typing import Annotated

import typer

from lmexposure._files import PRIVATE, atomic_write, is_taken
from lmexposure._text import visible
from lmexposure.cli.console import print_sections, say

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # as spreadsheets begin one


def dp_report(
    training: Annotated[
        Path,
        typer.Argument(help="Of `run` or `train --method dp-sgd --document-norms`: its directory."),
    ],
    each: Annotated[
        Path | None,
        typer.Option(
            "--list",
            help="A CSV of each unit and its epsilon, which is private: readable by you alone.",
        ),
    ] = None,
) -> None:
    """Show how the epsilons of single documents lie, ex post, beside the claim for all.

    A claim is of the worst document; the same noise hides most documents better. These numbers
    are of the gradients that the training had. They are private, and no promise.
    """
    from lmexposure.records import DocumentPrivacy
    from lmexposure.reporting import document_privacy_section

    report = DocumentPrivacy.read(training)
    print_sections([document_privacy_section(report)])
    if each is not None:
        _write(report.names, report.epsilons, each)
        say(f"list  {each}")


def _write(names: tuple[str, ...], epsilons: tuple[float, ...], path: Path) -> None:
    """The least private first; names come from a corpus, and a spreadsheet runs none of them."""
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(("unit", "epsilon"))
    order = sorted(range(len(names)), key=lambda unit: -epsilons[unit])
    rows.writerows((_plain(names[unit]), epsilons[unit]) for unit in order)
    content = text.getvalue().encode()
    if is_taken(path) and path.read_bytes() == content:
        return
    with atomic_write(
        path, mode=PRIVATE, replaces=lambda _: False
    ) as stream:  # another list is kept
        stream.write(content)


def _plain(name: str) -> str:
    """A name as text: no formula, and nothing that does not print."""
    shown = visible(name)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown
