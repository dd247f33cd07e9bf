"""`lmexposure defences`: defences side by side at one utility, each under attacks that fit it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lmexposure.cli import options
from lmexposure.cli.console import begin, say, show_study
from lmexposure.cli.long_work import long_work
from lmexposure.cli.options import takes

if TYPE_CHECKING:
    from lmexposure.studies import DefencesSettings


@takes(settings=options.told("defences"))
def defences(
    corpus: Annotated[list[str], options.files_argument()],
    out: Annotated[
        Path,
        options.out_option("The comparison; the same command goes on where it was ended."),
    ],
    workers: options.Workers = None,
    address: options.Address = None,
    *,
    settings: "DefencesSettings",
) -> None:
    """Compare defences on CORPUS: as useful as each other, what does each still show?

    The settings of each method are searched first, on other canaries and seeds; then many models
    of each are trained with the same canaries, and attacked in every way that fits. What each
    costs is said before time is spent.
    """
    begin(options.reading(corpus))
    from lmexposure.defences import compare_defences

    with long_work() as progress:
        study = compare_defences(
            corpus,
            out=out,
            settings=settings,
            workers=workers,
            address=address,
            progress=progress,
            say=say,
        )
    show_study(study, out)
