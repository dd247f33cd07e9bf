"""`lmexposure demo`: the leakage test on text that every Python carries."""

from pathlib import Path
from typing import Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import say
from lmexposure.cli.flags import Given, takes
from lmexposure.cli.long_work import long_work


@takes(given=options.DEMO)
def demo(
    out: Annotated[
        Path | None,
        options.out_option(
            "The run; the same command resumes it; without it, runs/demo, or runs/demo-quick."
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="In half a minute: less text, a small LSTM, a first look."),
    ] = False,
    *,
    given: Given,
) -> None:
    """Run the whole test on the language reference that comes with Python. No download."""
    from lmexposure._locks import only_writer
    from lmexposure.audit import demo_corpus, demo_settings, estimate_cost
    from lmexposure.audit import run as run_audit
    from lmexposure.cli.reporting import print_result, write_and_say

    chosen = options.merged(given, base=demo_settings(quick=quick))
    out = out or Path("runs") / ("demo-quick" if quick else "demo")
    with only_writer(out):
        corpus = demo_corpus(out / "source" / "python_topics.txt", quick=quick)
        say(estimate_cost(corpus, chosen))
        with long_work() as progress:
            result = run_audit(corpus, out=out, settings=chosen, progress=progress)
        print_result(result)
        write_and_say(out)
    say(f"run directory  {out}")
