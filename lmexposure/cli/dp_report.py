"""`lmexposure dp-report`: what a private training let out about each document."""

from pathlib import Path
from typing import Annotated

import typer

from lmexposure._files import PRIVATE, atomic_write, is_taken
from lmexposure.cli.console import say


def dp_report(
    training: Annotated[
        Path,
        typer.Argument(help="The directory of a training by dp-sgd with document_norms=true."),
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
    from lmexposure.cli.console import print_document
    from lmexposure.core import as_csv
    from lmexposure.studies import DocumentPrivacy

    document = DocumentPrivacy.read(training).document()
    print_document(document)
    if each is not None:
        _write(as_csv(document).encode(), each)
        say(f"list  {each}")


def _write(content: bytes, path: Path) -> None:
    if is_taken(path) and path.read_bytes() == content:
        return
    with atomic_write(
        path, mode=PRIVATE, replaces=lambda _: False
    ) as stream:  # another list is kept
        stream.write(content)
