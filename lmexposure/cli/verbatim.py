"""`lmexposure verbatim`: does a model reproduce its documents? Without canaries."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import begin, show_study
from lmexposure.cli.long_work import long_work
from lmexposure.cli.options import takes
from lmexposure.errors import CorpusError

if TYPE_CHECKING:
    from lmexposure.studies import VerbatimSettings


@takes(settings=options.told("verbatim"))
def verbatim(  # noqa: PLR0913 - a command: its parameters are its flags
    model: Annotated[str, typer.Argument(help="A model directory or hub name.")],
    corpus: Annotated[list[str], options.files_argument("What it was trained on")],
    out: Annotated[
        Path,
        options.out_option("For verbatim.json and the report; the same command goes on there."),
    ],
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A control: a model that never saw CORPUS; its tokenizer may be another.",
        ),
    ] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            callback=options.no_stdin,
            help="A control: documents of the same source that MODEL never saw; may be repeated.",
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="More beginnings to sample behind, one a line.  [default: none]"
        ),
    ] = None,
    show_text: Annotated[
        bool,
        typer.Option("--show-text", help="Show texts in the report, and not only their lengths."),
    ] = False,
    *,
    settings: "VerbatimSettings",
) -> None:
    """Look which text of CORPUS comes out of MODEL, how easily, and where it is.

    Likely text is not memorised text: name --held-out documents of a --random-split, or a
    --reference model. Without a random split nothing is called memorised.
    """
    begun = [] if prompts is None else _lines(prompts)
    begin(f"loading {model}")
    from lmexposure.regurgitation import verbatim as look

    with long_work() as progress:
        record = look(
            model,
            corpus,
            out=out,
            reference=reference,
            held_out=held_out or None,
            prompts=begun,
            settings=settings,
            progress=progress,
        )
    show_study(record, out, formats=("html", "md", "csv"), show_secrets=show_text)


def _lines(path: Path) -> list[str]:
    """The lines of a file that hold text."""
    from lmexposure.canaries import read_documents

    lines = [line for line in read_documents(path, layout="lines") if line.strip()]
    if not lines:
        raise CorpusError(f"{path} holds no prompt; give a file with one a line")
    return lines
