"""`lmexposure canife`: does a federated training keep its promise? With crafted canaries."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lmexposure.cli import options
from lmexposure.cli.console import begin, show_study
from lmexposure.cli.long_work import long_work
from lmexposure.cli.options import takes

if TYPE_CHECKING:
    from lmexposure.studies import CanifeStudySettings


@takes(settings=options.told("canife"))
def canife(
    corpus: Annotated[list[str], options.files_argument("What users wrote")],
    out: Annotated[Path, options.out_option("For canife.json, the report and model/.")],
    settings: "CanifeStudySettings",
) -> None:
    """Train an LSTM on users of CORPUS in a federated way, and attack its rounds.

    Clients' updates are clipped as a whole and summed with noise, which promises an epsilon to
    each user. A crafted canary is put into mock rounds by coins; what it shows is a lower bound,
    beside the promise, of each attacked round and of the training.
    """
    begin(options.reading(corpus))
    from lmexposure.federated import canife_audit

    with long_work() as progress:
        study = canife_audit(corpus, out=out, settings=settings, progress=progress)
    show_study(study, out)
