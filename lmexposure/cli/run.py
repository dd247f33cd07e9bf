"""`lmexposure run`: insert, train, measure; the whole leakage test."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lmexposure.cli import options
from lmexposure.cli.console import say
from lmexposure.cli.flags import takes
from lmexposure.cli.insert import say_attainable, warn_of_share
from lmexposure.cli.long_work import long_work

if TYPE_CHECKING:
    from lmexposure.records import RunSettings


@takes(settings=options.RUN)
def run(
    corpus: options.Corpus,
    out: Annotated[Path, options.out_option("The run; the same command resumes it.")],
    settings: "RunSettings",
) -> None:
    """Insert canaries into CORPUS, train a model on it, measure what it gives away."""
    from lmexposure._locks import only_writer
    from lmexposure.audit import (
        corpus_kept,
        estimate_cost,
        preview,
    )
    from lmexposure.audit import run as run_audit
    from lmexposure.cli.reporting import print_result, write_and_say

    with only_writer(out), corpus_kept(options.opened(corpus), out, settings) as files:
        would = preview(files, settings=settings)
        say(estimate_cost(files, settings, would=would))
        say_attainable(settings)
        warn_of_share(settings, would.share_of_documents, would.share_of_bytes)
        with long_work() as progress:
            result = run_audit(files, out=out, settings=settings, progress=progress)
        print_result(result)
        write_and_say(out)
    say(f"run directory  {out}")
