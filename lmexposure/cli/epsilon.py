"""`lmexposure epsilon`: bounds on epsilon from anyone's scores, without a model."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure._style import setting_value
from lmexposure.cli import options
from lmexposure.cli.console import print_section, say

if TYPE_CHECKING:
    from lmexposure.statistics import Privacy


def epsilon(  # noqa: PLR0913 - a command: its parameters are its flags
    file: Annotated[
        Path, typer.Argument(help="A .csv or .parquet file, such as the scores.parquet of a run.")
    ],
    score: Annotated[
        str | None,
        typer.Option(help="The column of scores.  [default: log_perplexity_bits, else score]"),
    ] = None,
    included: Annotated[
        str | None,
        typer.Option(
            help="The column that says which were included.  [default: role, else included]"
        ),
    ] = None,
    lower_is_in: Annotated[
        bool, typer.Option("--lower-is-in", help="Lower scores mean included, as of a loss.")
    ] = False,
    inclusion_probability: Annotated[
        float | None,
        typer.Option(
            help="Each candidate went in by its own independent coin of this probability. Say so "
            "only where it is true: the strongest bounds rest on it."
        ),
    ] = None,
    repetitions: Annotated[
        int | None,
        typer.Option(help="Copies of each candidate, where no column says so.  [default: 1]"),
    ] = None,
    significance: Annotated[
        float, typer.Option(help="How often, at most, the bounds may be wrong together.")
    ] = 0.05,
    deltas: Annotated[
        list[float] | None,
        typer.Option(
            "--delta", help="A delta that epsilon is bounded at; may be repeated.  [default: 0]"
        ),
    ] = None,
    claimed_epsilon: Annotated[float | None, options.option("claimed_epsilon")] = None,
    seed: Annotated[int, typer.Option(help="Seed of ties and splits.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print every lower bound on epsilon that the scores in FILE support."""
    from lmexposure.audit import epsilon_of_columns
    from lmexposure.errors import InputError, SettingsError
    from lmexposure.studies import read_score_file

    if claimed_epsilon is not None and not deltas:
        raise SettingsError(
            f"--claimed-epsilon {setting_value(claimed_epsilon)} needs --delta, such as 0"
        )
    columns = read_score_file(
        file, score=score, included=included, repetitions=repetitions, lower_is_in=lower_is_in
    )
    privacy = epsilon_of_columns(
        columns,
        inclusion_probability=inclusion_probability,
        deltas=deltas or (0.0,),
        claim=claimed_epsilon,
        significance=significance,
        seed=seed,
        if_reversed=f"{'leave out' if lower_is_in else 'give'} --lower-is-in if lower scores "
        f"{'do not ' if lower_is_in else ''}mean in",
    )
    _print(privacy, as_json=as_json)
    if privacy.primary is None:
        raise InputError(f"{file}: {privacy.classes[0].note}")


def _print(privacy: "Privacy", *, as_json: bool) -> None:
    if as_json:
        say(json.dumps(asdict(privacy)))
        return
    from lmexposure.studies import privacy_sections

    for section in privacy_sections(privacy):
        print_section(section)
