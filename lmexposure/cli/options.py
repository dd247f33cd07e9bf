"""Flags that several commands share. One that is not given is None: a settings file may speak."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.models import OptionInfo

from lmexposure.errors import SettingsError

if TYPE_CHECKING:
    from lmexposure.records import RunSettings

# The one rule of --out, which every help of it ends with.
_OUT_RULE = (
    "A directory, made with its parents where it is missing; a file is refused, and the records of "
    "another run are not written over."
)


def out_option(what: str) -> OptionInfo:
    """The flag --out, by its one rule, in every command that has it.

    Args:
        what: is written there, for the help.
    """
    option: OptionInfo = typer.Option("--out", help=f"{what} {_OUT_RULE}", callback=_directory)
    return option


def _directory(out: Path | None) -> Path | None:
    """What --out names, unless something that is no directory has the name.

    Raises:
        SettingsError: a file, a pipe or a device has the name, or one of its parents has.
    """
    if out is None:
        return None
    for place in (out, *out.parents):
        if place.exists():
            if place.is_dir():
                return out
            what = f"--out {out} is a file" if place == out else f"--out {out}: {place} is a file"
            raise SettingsError(f"{what}; --out names a directory: choose another name")
    return out


Corpus = Annotated[Path, typer.Argument(help="The corpus: a UTF-8 text file or JSONL.")]
Model = Annotated[
    str | None,
    typer.Option(help="lstm, gpt2-tiny, or a path or hub name to fine-tune.  [default: lstm]"),
]
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        help="A shipped format or a .toml file; may be repeated.  [default: random_number]",
    ),
]
Canaries = Annotated[
    int | None, typer.Option(help="Canaries per format and repetition class.  [default: 10]")
]
InclusionProbability = Annotated[
    float | None, typer.Option(help="With which each candidate is inserted.")
]
InclusionSeed = Annotated[int | None, typer.Option(help="Decides which candidates are inserted.")]
Repetitions = Annotated[
    str | None, typer.Option(help="How often they are inserted, as 1,4,16.  [default: 1,4,16]")
]
Controls = Annotated[
    int | None, typer.Option(help="Canaries per format never inserted.  [default: 32]")
]
References = Annotated[
    int | None,
    typer.Option(help="Fills to compare with, per format.  [default: 10000, or all there are]"),
]
Seed = Annotated[
    int | None, typer.Option(help="Decides all that is random but coins.  [default: 0]")
]
MeasureSeed = Annotated[
    int | None,
    typer.Option(
        help="Of draws, bootstraps and permutations; secrets and references follow from the "
        "manifest.  [default: 0]"
    ),
]
InsertSeed = Annotated[
    int | None,
    typer.Option(
        help="Decides secrets and positions: who has it has the secrets, and a small one is "
        "guessed.  [default: fresh from the operating system, kept in the manifest]"
    ),
]
RunSeed = Annotated[
    int | None,
    typer.Option(
        help="Decides all that is random but coins: secrets, positions, training.  [default: "
        "secrets and positions fresh from the operating system, kept in the manifest; the "
        "training's is 0]"
    ),
]
Layout = Annotated[
    str | None,
    typer.Option(
        help="lines (a document a line), paragraphs (blank lines between), or jsonl.  "
        "[default: by the file's suffix, else lines]"
    ),
]
TextField = Annotated[
    str | None, typer.Option(help="The JSONL field that holds the text.  [default: text]")
]
Existing = Annotated[
    str | None,
    typer.Option(
        help="Fills already in the corpus: refuse, or set_aside (not drawn, not counted).  "
        "[default: refuse]"
    ),
]
Revealed = Annotated[
    int | None, typer.Option(help="Reveal up to this many characters.  [default: 4]")
]
Beam = Annotated[
    int | None,
    typer.Option("--beam-width", help="Beam width.  [default: 100, and twice the canaries]"),
]
Method = Annotated[
    str | None,
    typer.Option(
        help="The estimate of exposure that is shown: auto, exact, importance, sampled, "
        "certificate; skew_normal stands beside what was counted.  [default: auto]"
    ),
]
BudgetSteps = Annotated[
    int | None,
    typer.Option(help="Model steps for the exact search of a format.  [default: by model size]"),
]
BudgetSeconds = Annotated[
    float | None, typer.Option(help="An end in seconds besides.  [default: none]")
]
Draws = Annotated[
    int | None, typer.Option(help="Fills drawn for importance sampling.  [default: 20000]")
]
Guesses = Annotated[
    int | None, typer.Option(help="Likeliest fills that best-first search finds.  [default: 1000]")
]
LiveStates = Annotated[
    int | None, typer.Option(help="Model states that a search holds at once.  [default: found]")
]
Quick = Annotated[
    bool | None,
    typer.Option(
        "--quick",
        help="A first look in about a tenth of the time: fewer references, draws and steps of the "
        "search, no extraction with characters given. The result says what is coarser.",
    ),
]
Significance = Annotated[
    float | None,
    typer.Option(help="How often, at most, a bound on epsilon may be wrong.  [default: 0.05]"),
]
Delta = Annotated[
    float | None,
    typer.Option(help="Beside which epsilon is bounded.  [default: 0, and 1 / documents]"),
]
ClaimedEpsilon = Annotated[
    float | None, typer.Option(help="An epsilon to hold the bound against; needs --delta.")
]
Batch = Annotated[
    int | None, typer.Option("--batch-size", help="Texts a forward pass.  [default: found]")
]
TrainingBatch = Annotated[int | None, typer.Option("--batch-size", help="Blocks a training step.")]
Epochs = Annotated[
    int | None, typer.Option(help="Most epochs; training stops earlier when it can.")
]
MaxSeconds = Annotated[float | None, typer.Option(help="End training after so many seconds.")]
Patience = Annotated[
    int | None, typer.Option(help="Evaluations without a better one before training stops.")
]
BlockSize = Annotated[int | None, typer.Option(help="Tokens in a training block.")]
LearningRate = Annotated[float | None, typer.Option(help="The highest learning rate.")]
Accumulation = Annotated[
    int | None, typer.Option(help="Parts of a step, to save memory; changes no result.")
]
Precision = Annotated[str | None, typer.Option(help="Training in float32 or bf16.")]
Layers = Annotated[int | None, typer.Option(help="Layers of the LSTM.  [default: 2]")]
Units = Annotated[int | None, typer.Option(help="Units of the LSTM.  [default: 200]")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps.  [default: auto]")]
Dtype = Annotated[
    str | None, typer.Option(help="float32, bfloat16 or float16.  [default: float32]")
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Of the CPU; what is resumed keeps its own.  [default: 1 for a small model, else all]"
    ),
]
Offline = Annotated[bool | None, typer.Option("--offline", help="Never ask a model hub.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")]
SettingsFile = Annotated[
    Path | None, typer.Option("--settings", help="A TOML file of settings; flags win.")
]


# Arguments of commands that are settings of training, by their names there.
_TRAINING = {
    "epochs": "epochs",
    "patience": "patience",
    "training_batch": "batch_size",
    "block_size": "block_size",
    "learning_rate": "learning_rate",
    "accumulation": "accumulation",
    "precision": "precision",
    "max_seconds": "max_seconds",
}


def numbers(name: str, text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas.

    Raises:
        SettingsError: something between the commas is no whole number.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(
            f"{name}={text!r} must be whole numbers separated by commas, such as 1,4,16"
        ) from None


def merged(
    flags: Mapping[str, object], *, apart: Collection[str] = (), base: "RunSettings | None" = None
) -> "RunSettings":
    """Defaults, then the settings file, then the flags that were given (not None).

    Args:
        flags: a command's arguments by name, its settings file among them.
        apart: arguments of the command that are no settings.
        base: the defaults, where they are not those of `RunSettings`.
    """
    from lmexposure.records import RunSettings, read_settings_file

    given = {k: v for k, v in flags.items() if v is not None and k not in apart}
    file = given.pop("settings", None)
    said = {} if file is None else read_settings_file(Path(str(file)))
    if "repetitions" in given:
        given["repetitions"] = numbers("--repetitions", str(given["repetitions"]))
    training = {_TRAINING[name]: given.pop(name) for name in _TRAINING if name in given}
    from_file = said.get("training", {})
    if isinstance(from_file, Mapping):
        given["training"] = {**from_file, **training}
    # Both at once, for one may be right only with the other.
    return (base or RunSettings()).override({**said, **given})
