"""Facts of a sweep that a reader may ask for, and the command that makes such a sweep again."""

from collections.abc import Iterator

from lmexposure._settings import Setting, settings_of
from lmexposure._style import Value, number, whole
from lmexposure.core import Fact
from lmexposure.studies.setting_words import RARE, flag_words, named_facts, path_word, run_settings
from lmexposure.studies.settings import RunSettings
from lmexposure.studies.sweep_result import SweepNumbers
from lmexposure.studies.sweep_settings import SweepSettings
from lmexposure.studies.training_settings import TrainingSettings

# Of the settings of a run: what a sweep decides itself.
_NOT_OF_SWEEPS = ("inclusion_probability", "controls", "seed")
_RARE = (*RARE, "revision")


def utility_facts(result: SweepNumbers) -> tuple[Fact, ...]:
    """How useful the models are, and what they took."""
    utility = result.utility
    spread = "" if utility.sd is None else f" ± {number(utility.sd, 3)}"
    return (
        Fact(
            name="validation loss",
            value=f"{number(utility.mean, 3)}{spread} bits per token",
            meaning="mean and standard deviation over the models; lower = more useful",
        ),
        Fact(name="before training", value=f"{number(utility.initial, 3)} bits per token"),
        Fact(name="models that learned", value=f"{utility.learned:,} of {result.models:,}"),
        Fact(
            name="models without scores",
            value=whole(len(result.failed)),
            meaning="they diverged; listed under all settings" if result.failed else "",
        ),
        Fact(name="tokens a model", value=whole(round(utility.tokens)), meaning="trained on"),
        Fact(name="time a model", value=f"{number(utility.seconds, 1)} s"),
        Fact(
            name="documents",
            value=whole(result.documents),
            meaning=f"{result.population:,} of them with coins, {result.validation:,} for "
            "validation alone",
        ),
        Fact(name="canaries", value=whole(result.canaries), meaning="each in a model by a coin"),
    )


def sweep_setting_facts(result: SweepNumbers) -> tuple[Fact, ...]:
    """What was asked for."""
    return (
        *named_facts(_own(result), settings_of(SweepSettings)),
        *named_facts(_of_each_run(result), settings_of(RunSettings)),
        *named_facts(result.settings.run.training, settings_of(TrainingSettings), "training."),
    )


def sweep_origin_facts(result: SweepNumbers) -> tuple[Fact, ...]:
    """Hashes and failed models."""
    return (
        Fact(name="plan, SHA-256", value=result.plan_sha256, meaning="with the coins"),
        Fact(name="manifest, SHA-256", value=result.manifest_sha256),
        Fact(name="scores, SHA-256", value=result.matrices_sha256, meaning="matrices.npz"),
        *(
            Fact(name=f"model {failed.number} failed", value=failed.reason)
            for failed in result.failed
        ),
    )


def _own(result: SweepNumbers) -> dict[str, Value]:
    """Settings of the sweep alone; its coins are in the plan."""
    names = (name for name in settings_of(SweepSettings) if name != "inclusion_seed")
    return {name: getattr(result.settings, name) for name in names}


def _of_each_run(result: SweepNumbers) -> dict[str, Value]:
    """Settings of all its models."""
    return {
        name: value
        for name, value in run_settings(result.settings.run).items()
        if name not in _NOT_OF_SWEEPS and (name not in _RARE or value is not None)
    }


def sweep_command(result: SweepNumbers, name: str) -> str:
    """The command line, quoted for a POSIX shell; the corpus is left to the reader."""
    usual = SweepSettings()
    words = ["lmexposure sweep CORPUS", *_flags(settings_of(SweepSettings), _own(result), usual)]
    words += _flags(settings_of(RunSettings), _of_each_run(result), usual.run)
    training = dict(result.settings.run.training)
    words += _flags(settings_of(TrainingSettings), training, TrainingSettings())
    return " ".join([*words, "--out", path_word(f"{name}-again")])


def _flags(declared: dict[str, Setting], given: dict[str, Value], usual: object) -> Iterator[str]:
    for name, setting in declared.items():
        value = given.get(name)
        default = getattr(usual, "per_class" if name == "canaries" else name, None)
        if value is not None and value != default:
            yield from flag_words("sweep", setting, value)
