"""`lmexposure epsilon`: bounds on epsilon from anyone's scores, without a model."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lmexposure.cli import options
from lmexposure.cli.console import say

__all__ = ["epsilon"]


def epsilon(
    file: Annotated[
        Path, typer.Argument(help="A .csv or .parquet file; scores.parquet of a run, for one.")
    ],
    score: Annotated[
        str | None,
        typer.Option(help="The column of scores.  [default: log_perplexity_bits, else score]"),
    ] = None,
    included: Annotated[
        str | None,
        typer.Option(help="The column that says who was in.  [default: role, else included]"),
    ] = None,
    lower_is_in: Annotated[
        bool, typer.Option("--lower-is-in", help="Lower scores mean in, as of a loss.")
    ] = False,
    coins: Annotated[
        float | None,
        typer.Option(
            help="Each candidate went in by its own independent coin of this probability. Say so "
            "only where it is true: the strongest bounds rest on it."
        ),
    ] = None,
    repetitions: Annotated[int, typer.Option(help="Copies of each candidate that went in.")] = 1,
    significance: Annotated[
        float, typer.Option(help="How often, at most, the bounds may be wrong together.")
    ] = 0.05,
    delta: Annotated[
        list[float] | None,
        typer.Option(help="Beside which epsilon is bounded; may be repeated.  [default: 0]"),
    ] = None,
    claimed_epsilon: options.ClaimedEpsilon = None,
    seed: Annotated[int, typer.Option(help="Of ties and splits.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print every lower bound on epsilon that the scores in FILE support."""
    from lmexposure.errors import SettingsError
    from lmexposure.score_files import read_score_file
    from lmexposure.statistics import Claim, joint_bounds

    if claimed_epsilon is not None and not delta:
        raise SettingsError(f"--claimed-epsilon {claimed_epsilon:g} needs --delta, such as 0")
    claim = None
    if claimed_epsilon is not None and delta:
        claim = Claim(epsilon=claimed_epsilon, delta=delta[0])
    classes = read_score_file(
        file, score=score, included=included, repetitions=repetitions, lower_is_in=lower_is_in
    )
    found: list[dict[str, Any]] = []
    for one in classes:
        bounds = joint_bounds(
            one.scores,
            one.included,
            references=one.references,
            coins=coins,
            significance=significance / len(classes),
            deltas=delta or (0.0,),
            repetitions=one.repetitions,
            seed=seed,
        )
        found.append(
            {
                "repetitions": one.repetitions,
                "canaries": int(one.included.sum()),
                "excluded": int((~one.included).sum()),
                "references": int(one.references.size),
                **_metrics(one),
                "bounds": bounds.to_dict(),
                "claim": None if claim is None else claim.against(bounds.primary).to_dict(),
            }
        )
    if as_json:
        say(json.dumps({"file": str(file), "significance": significance, "classes": found}))
    else:
        _print(found, significance)


def _metrics(one: Any) -> dict[str, Any]:
    import numpy as np

    from lmexposure.statistics import membership_metrics

    outside = np.concatenate([one.scores[~one.included], one.references])
    return {"membership": membership_metrics(one.scores[one.included], outside)}


def _print(found: list[dict[str, Any]], significance: float) -> None:
    from lmexposure.cli.privacy_tables import (
        LEGEND,
        assumptions,
        print_bounds,
        print_claim,
        print_membership,
    )

    say(
        "Epsilon of one document in nats: lower bounds that hold together at significance "
        f"{significance:g}; higher = less private"
    )
    for one in found:
        out = one["excluded"] + one["references"]
        say(
            f"\nrepetitions {one['repetitions']}: {one['canaries']:,} candidates in, {out:,} scores"
            " of others"
        )
        print_bounds(one["bounds"])
        print_membership(one["membership"])
        print_claim(one["claim"])
    say("")
    for line in LEGEND:
        say(line)
    primary = [one["bounds"]["primary"] for one in found]
    for line in assumptions(primary):
        say(f"the primary bound assumes: {line}")
