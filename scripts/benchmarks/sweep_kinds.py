"""Which text makes a strong canary: each kind swept alone, over several seeds.

A toy that trains within a second: 400 lines of eight words, drawn by Zipf's law from 300 words that
are made up, and an LSTM of 96 units that reads characters. Every promise is a line "reached"
or "MISSED" at the end, and the exit code counts the missed. The sweeps are kept in --out: the same
command goes on with what is missing.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lmexposure.cli.console import print_table, say
from lmexposure.studies import RunSettings
from lmexposure.sweeps import SweepResult, SweepSettings, sweep

_LINES, _WORDS, _WORDS_A_LINE = 400, 300, 8
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
_SLACK = 0.02  # LiRA may be worse than the plain loss by this much


@dataclass(frozen=True)
class Kind:
    """What is hidden, and how it is trained.

    Attributes:
        template: of uniform fills.
        chosen: the kind of canary; of all but uniform fills the template says nothing.
        group: whose rates count: the canaries', or those of ordinary lines.
        epochs: of the training.
        learning_rate: one of nearly 0 leaves the models as they were.
    """

    template: str = "my code is {digits:9}"
    chosen: str = "uniform"
    group: str = "canaries"
    epochs: int = 6
    learning_rate: float = 0.01


KINDS = {
    "lines of the corpus": Kind(group="population"),
    "nine digits": Kind(),
    "20 random letters": Kind("{lower:20}"),
    "20 random symbols": Kind("{printable:20}"),
    "a new token": Kind(chosen="new_token"),
    "20 random letters, untrained": Kind("{lower:20}", epochs=1, learning_rate=1e-12),
}
_CORPUS, _, *_STRONG, _UNTRAINED = KINDS
_NEW_TOKEN = "a new token"
_ATTACKS = ("plain", "lira", "lira_offline")
_ROCS = (0.01, 0.001)
Rates = Mapping[tuple[str, float], float]


def main() -> int:
    arguments = parse()
    median: dict[str, Rates] = {}
    for name, kind in KINDS.items():
        if arguments.only in name:
            found = [_swept(name, kind, seed, arguments) for seed in range(arguments.seeds)]
            median[name] = {
                key: statistics.median(rates[key] for rates in found) for key in found[0]
            }
    _show(median)
    promises = [*_promises(median)]
    for kept, promise in promises:
        say(f"{'reached' if kept else 'MISSED '}  {promise}")
    return sum(not kept for kept, _ in promises)


def corpus_lines(seed: int, lines: int = _LINES) -> list[str]:
    """Lines of words by Zipf's law.

    Args:
        seed: of words and lines.
        lines: how many.
    """
    draw = np.random.default_rng([seed, 1])
    words: dict[str, None] = {}
    while len(words) < _WORDS:
        words["".join(draw.choice(_SYLLABLES, size=draw.integers(1, 4)))] = None
    shares = 1 / np.arange(1, _WORDS + 1)
    shares /= shares.sum()
    drawn = draw.choice(list(words), size=(lines, _WORDS_A_LINE), p=shares)
    return [" ".join(line) for line in drawn]


def _swept(name: str, kind: Kind, seed: int, arguments: argparse.Namespace) -> Rates:
    """TPR by attack and FPR of one sweep."""
    began = time.perf_counter()
    home = Path(arguments.out) / f"{name.replace(' ', '-').replace(',', '')}-{seed}"
    result = sweep(
        _corpus(home, kind, seed, arguments.texts),
        out=home / "sweep",
        settings=_settings(home, kind, seed, arguments),
        workers=arguments.workers,
    )
    rates = dict(_rates(result, kind.group))
    shown = ", ".join(f"{attack} {rates[attack, _ROCS[0]]:.3f}" for attack in _ATTACKS)
    say(
        f"{name}, seed {seed}: TPR at 1 % FPR: {shown}; "
        f"{result.utility.mean:.2f} bits a character, {time.perf_counter() - began:.0f} s"
    )
    return rates


def _corpus(home: Path, kind: Kind, seed: int, texts: int) -> Path:
    """The text; lines that have coins come on top of the 400."""
    home.mkdir(parents=True, exist_ok=True)
    more = texts if kind.group == "population" else 0
    path = home / "corpus.txt"
    path.write_text("\n".join(corpus_lines(seed, _LINES + more)) + "\n", encoding="utf-8")
    return path


def _settings(home: Path, kind: Kind, seed: int, arguments: argparse.Namespace) -> SweepSettings:
    """A sweep of one kind; where lines count, of these and two canaries."""
    of_lines = kind.group == "population"
    form = home / "canary.toml"
    form.write_text(f'name = "canary"\ntemplate = "{kind.template}"\n', encoding="utf-8")
    run = RunSettings(
        formats=(str(form),),
        kinds=(kind.chosen,),
        canaries=2 if of_lines else arguments.texts,
        repetitions=(1,),
        controls=0,
        seed=seed,
        layers=1,
        units=96,
        device="cpu",
        training={
            "epochs": kind.epochs,
            "patience": kind.epochs,
            "learning_rate": kind.learning_rate,
            "batch_size": 11,
        },
    )
    return SweepSettings(
        models=arguments.models,
        population=arguments.texts if of_lines else 0,
        inclusion_seed=seed,
        run=run,
    )


def _rates(result: SweepResult, group: str) -> Iterator[tuple[tuple[str, float], float]]:
    """(attack, FPR) -> TPR of a group; NaN where it cannot be told. A line is all secret."""
    score = "log_perplexity" if group == "population" else "secret_tokens"
    for row in result.scores:
        if (row.group, row.score) == (group, score) and row.attack in _ATTACKS:
            for rate in row.rates:
                yield (row.attack, rate.fpr), float("nan") if rate.value is None else rate.value


def _show(median: Mapping[str, Rates]) -> None:
    heads = ["kind", *(f"{attack}, {fpr:.1%}" for attack in _ATTACKS for fpr in _ROCS)]
    rows = [
        [name, *(f"{rates[attack, fpr]:.3f}" for attack in _ATTACKS for fpr in _ROCS)]
        for name, rates in median.items()
    ]
    say("\nTPR at two FPR, median over the seeds")
    print_table(heads, rows, right=range(1, len(heads)))


def _promises(median: Mapping[str, Rates]) -> Iterator[tuple[bool, str]]:
    """What is promised of the kinds that were swept, and whether it holds."""
    low = _ROCS[0]
    for name in _STRONG:
        if name in median:
            least = 0.95 if name == _NEW_TOKEN else 0.7
            found = median[name]["lira", low]
            yield found >= least, f"{name}: LiRA finds {least} and more at 1 % FPR"
    if _CORPUS in median:
        yield median[_CORPUS]["lira", low] <= 0.25, f"{_CORPUS}: LiRA finds at most .25 at 1 % FPR"
    if _UNTRAINED in median:
        for attack in _ATTACKS:
            rate = median[_UNTRAINED][attack, low]
            yield abs(rate - low) <= 0.01, f"untrained: {attack} finds .01 +- .01 at 1 % FPR"
    for name, rates in median.items():
        worse = rates["plain", low] - rates["lira", low]
        yield worse <= _SLACK, f"{name}: LiRA is never below the plain loss by more than {_SLACK}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--texts", type=int, default=128, help="canaries, or lines with coins")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="kinds whose names hold this text")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", default="runs/sweep_kinds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
