"""`lmexposure run` and `lmexposure demo`: insert, train, measure; the whole leakage test."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import begin, say, show_run
from lmexposure.cli.insert import say_max_attainable, say_records, warn_of_share
from lmexposure.cli.long_work import long_work
from lmexposure.cli.options import Given, takes

if TYPE_CHECKING:
    from lmexposure.studies import RunSettings


@takes(settings=options.told("run"))
def run(
    corpus: options.Corpus,
    out: Annotated[Path, options.out_option("The run; the same command resumes it.")],
    settings: "RunSettings",
) -> None:
    """Insert canaries into CORPUS, train a model on it, measure what it gives away."""
    begin(options.reading(corpus))
    from lmexposure._files import only_writer
    from lmexposure.audit import (
        estimate_cost,
        preview,
        refuse_kinds_of_run,
        spooled_corpus,
        wrapping_of,
    )

    refuse_kinds_of_run(settings)
    with only_writer(out), spooled_corpus(options.opened(corpus), out, settings) as files:
        would = preview(files, settings=settings)
        say_records(wrapping_of(files, settings=settings, out=out), settings, files)
        say(estimate_cost(files, settings, would=would))
        say_max_attainable(settings)
        warn_of_share(settings, would.share_of_documents, would.share_of_bytes)
        _run(files, out, settings)


@takes(given=options.DEMO)
def demo(
    out: Annotated[
        Path | None,
        options.out_option(
            "The run; the same command resumes it; by default runs/demo, or runs/demo-quick."
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A first look in half a minute: less text and a small LSTM."),
    ] = False,
    *,
    given: Given,
) -> None:
    """Run the whole test on the language reference that comes with Python. No download."""
    begin("reading the language reference of Python")
    from lmexposure._files import only_writer
    from lmexposure.audit import demo_corpus, demo_settings, estimate_cost

    chosen = options.asked(demo_settings(quick=quick), given)
    out = out or Path("runs") / ("demo-quick" if quick else "demo")
    with only_writer(out):
        corpus = demo_corpus(out / "source" / "python_topics.txt", quick=quick)
        say(estimate_cost(corpus, chosen))
        _run(corpus, out, chosen)


def _run(corpus: "Path | list[str | Path]", out: Path, settings: "RunSettings") -> None:
    """Run it, and show what was found."""
    from lmexposure.audit import run

    with long_work() as progress:
        run(corpus, out=out, settings=settings, progress=progress)
    show_run(out)
    say(f"run directory  {out}")
