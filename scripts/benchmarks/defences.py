"""Defences on a toy corpus: their order at one utility over seeds, and what each leaves open.

The toy is that of `sweep_kinds`: 400 lines of made-up words, and an LSTM that reads characters.
Everything trained is kept in --out: the same command goes on.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from harness import Claims, Namespace
from sweep_kinds import corpus_lines

from lmexposure.audit import run
from lmexposure.canaries import Manifest
from lmexposure.cli.console import say
from lmexposure.defences import DefencesSettings, compare_defences
from lmexposure.models import encode_in_context, left_out, load_model
from lmexposure.scoring import details_of_encoded
from lmexposure.studies import Defences, RunSettings, SweepResult, SweepSettings
from lmexposure.sweeps import sweep

ARGUMENTS = {
    "models": 16,
    "texts": 128,
    "seeds": 10,
    "epochs": 5,
    "workers": 2,
    "out": "runs/benchmark_defences",
}
_SYMBOLS, _DIGITS = "{printable:20}", "my code is the number {digits:9}"
_RATE, _FPR = 0.01, 0.01
_TARGET = 1.05
_GOLDFISH = {"method": "goldfish", "goldfish_k": 4, "goldfish_width": 13}
_SELENA = {"method": "selena", "selena_parts": 5, "selena_absent": 2}
_HAMP = {"method": "hamp", "hamp_entropy": 0.1}


def _order(arguments: Namespace) -> Claims:
    """At one utility: the undefended training shows most, DP-SGD least, RelaxLoss in between."""
    in_order = []
    for seed in range(arguments.seeds):
        home = Path(arguments.out) / f"order-{seed}"
        settings = DefencesSettings(
            methods=("relaxloss", "dp-sgd"),
            target=_TARGET,
            repeated=0,
            full=True,
            sweep=_sweep_settings(home, arguments, _SYMBOLS, seed=seed, epochs=arguments.epochs),
        )
        record = compare_defences(
            _corpus(home, seed), out=home / "defences", settings=settings, workers=arguments.workers
        )
        rates = [_strongest(record, name) for name in ("none", "relaxloss", "dp-sgd")]
        in_order.append(rates[0] > rates[1] > rates[2])
        ratios = [f"{row.name} {row.ratio:.3f}" for row in record.rows]
        say(
            f"seed {seed}: none {rates[0]:.3f}, relaxloss {rates[1]:.3f}, dp-sgd {rates[2]:.3f}; "
            f"losses {', '.join(ratios)}; epsilon {record.rows[-1].epsilon}"
        )
    least = round(0.9 * len(in_order))
    yield (
        sum(in_order) >= least,
        f"none > relaxloss > dp-sgd in {sum(in_order)} of {len(in_order)} seeds (at least {least})",
    )


def _strongest(record: Defences, name: str) -> float:
    row = next((row for row in record.rows if row.name == name), None)
    if row is None or row.strongest is None or row.strongest.tpr is None:
        return float("nan")
    return row.strongest.tpr


def _goldfish(arguments: Namespace) -> Claims:
    """Canaries that stand ten times: what carried no loss was not learned, the rest was.

    Below guessing is no leak: where a digit was never asked for, the model is often sure of the
    digit behind it, which it will be asked for, and so of one that is not the true one.
    """
    home = Path(arguments.out) / "goldfish"
    formats = _format(home, _DIGITS)
    settings = RunSettings(
        formats=(formats,),
        canaries=40,
        repetitions=(10,),
        controls=0,
        seed=1,
        **_model(20, _GOLDFISH),
    )
    settings = settings.override({"effort": "quick"})
    run(_corpus(home, 1), out=home / "run", settings=settings)
    manifest = Manifest.read(home / "run" / "manifest.json")
    loaded = load_model(home / "run" / "model")
    texts = [canary.text for canary in manifest.canaries]
    symbols = np.array(loaded.tokenizer.convert_tokens_to_ids(list("0123456789")))
    exposures: dict[str, list[float]] = {"masked": [], "kept": []}
    for encoded in encode_in_context(loaded.tokenizer, texts, context="\n"):
        ids = np.array(encoded.ids)
        digits = np.arange(len(ids) - 9, len(ids))
        dropped = left_out(ids[None, :-1].astype(np.int32), ids[None, 1:], k=4, width=13)[0]
        for place in digits:
            name = "masked" if dropped[place - 1] else "kept"
            exposures[name].append(_exposure(loaded.model, encoded, ids, int(place), symbols))
    # Of a uniform rank among ten.
    chance = np.log2(10) - np.log2(np.arange(1, 11))
    masked, kept = (np.array(exposures[name]) for name in ("masked", "kept"))
    away = (masked.mean() - chance.mean()) / (chance.std() / np.sqrt(len(masked)))
    yield (
        away < 3,
        f"goldfish: exposure of the {len(masked)} digits without loss is {masked.mean():.2f} bits "
        f"in the mean, guessing {chance.mean():.2f} ({away:+.1f} standard errors)",
    )
    yield (
        kept.mean() > 3,
        f"goldfish: that of the {len(kept)} digits with loss {kept.mean():.2f} of at most "
        f"{np.log2(10):.2f} bits",
    )


def _exposure(model: Any, encoded: Any, ids: Any, place: int, symbols: Any) -> float:
    """By the rank of a text's own digit at a place among the ten, behind what stands in front."""
    rows = np.tile(ids, (len(symbols), 1))
    rows[:, place] = symbols
    texts = [replace(encoded, ids=row.tolist()) for row in rows]
    bits = np.stack(details_of_encoded(model, texts).bits)[:, place - encoded.scored_from]
    own = bits[int(np.flatnonzero(symbols == ids[place])[0])]
    return float(np.log2(len(symbols)) - np.log2((bits <= own).sum()))


def _selena(arguments: Namespace) -> Claims:
    """Alone a canary is protected; of a pair, each one's teachers may have seen the other."""
    home = Path(arguments.out) / "selena"
    result = _swept(home, arguments, arguments.epochs, _SELENA, repetitions=(1, 2))
    alone, pairs = (_rate(result, "secret_tokens", f"canary/x{copies}") for copies in (1, 2))
    yield pairs >= 2 * alone, f"selena: of pairs {pairs:.3f} is at least twice {alone:.3f}"


def _hamp(arguments: Namespace) -> Claims:
    """The masked output hides likelihoods, and not which token is the likeliest."""
    home = Path(arguments.out) / "hamp"
    result = _swept(home, arguments, arguments.epochs, _HAMP)
    likelihood = max(_rate(result, "secret_tokens"), _rate(result, "log_perplexity"))
    labels = _rate(result, "label_only")
    yield likelihood <= 0.05, f"hamp: the likelihood attack finds {likelihood:.3f} (at most .05)"
    yield (
        labels >= 3 * likelihood,
        f"hamp: label-only finds {labels:.3f}, at least three times {likelihood:.3f}",
    )


def _swept(
    home: Path,
    arguments: Namespace,
    epochs: int,
    training: Mapping[str, object],
    repetitions: tuple[int, ...] = (1,),
) -> SweepResult:
    settings = _sweep_settings(home, arguments, _SYMBOLS, seed=3, epochs=epochs)
    run_settings = replace(
        settings.run,
        repetitions=repetitions,
        training={**settings.run.training, **training},
    )
    result = sweep(
        _corpus(home, 3),
        out=home / "sweep",
        settings=replace(settings, run=run_settings),
        workers=arguments.workers,
    )
    say(f"{home.name}: {result.utility.mean:.2f} bits a character")
    return result


def _rate(result: SweepResult, score: str, group: str = "canaries") -> float:
    """TPR at 1 % FPR of a group, by LiRA."""
    row = next(
        row for row in result.scores if (row.group, row.score, row.attack) == (group, score, "lira")
    )
    value = next(rate.value for rate in row.rates if rate.fpr == _FPR)
    return float("nan") if value is None else value


def _sweep_settings(
    home: Path, arguments: Namespace, template: str, *, seed: int, epochs: int
) -> SweepSettings:
    own = RunSettings(
        formats=(_format(home, template),),
        kinds=("uniform",),
        canaries=arguments.texts,
        repetitions=(1,),
        controls=0,
        seed=seed,
        **_model(epochs, {}),
    )
    return SweepSettings(
        models=arguments.models, shares=(1.0,), population=0, inclusion_seed=seed, run=own
    )


def _model(epochs: int, training: Mapping[str, object]) -> dict[str, Any]:
    own = {"epochs": epochs, "patience": epochs, "learning_rate": _RATE, "batch_size": 11}
    return {"layers": 1, "units": 96, "device": "cpu", "training": {**own, **training}}


def _format(home: Path, template: str) -> str:
    home.mkdir(parents=True, exist_ok=True)
    path = home / "canary.toml"
    path.write_text(f'name = "canary"\ntemplate = "{template}"\n', encoding="utf-8")
    return str(path)


def _corpus(home: Path, seed: int) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    path = home / "corpus.txt"
    path.write_text("\n".join(corpus_lines(seed)) + "\n", encoding="utf-8")
    return path


PARTS = {"order": _order, "goldfish": _goldfish, "selena": _selena, "hamp": _hamp}
