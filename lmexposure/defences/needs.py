"""What a comparison takes, known before any model is trained, and before torch is imported."""

from lmexposure._style import count
from lmexposure.canaries import UNIFORM
from lmexposure.defences.catalogue import NONE, chosen, refuse_own
from lmexposure.errors import SettingsError
from lmexposure.statistics import models_needed
from lmexposure.studies import GOLDFISH, DefencesSettings

# The attacks on every kind of canary: a score, and what other models make of it.
PAIRS = (("secret_tokens", "lira"), ("log_perplexity", "lira"), ("label_only", "lira"))


def paid_level(level: float, classes: int, *, goldfish: bool, methods: int) -> float:
    """The level of each interval, so that those of all methods hold together (Bonferroni).

    This pays for every pair of methods at once, however the methods depend on each other through
    the coins and seeds that they share: where all intervals hold, two methods whose intervals do
    not overlap differ, whichever two they are.
    """
    return 1 - (1 - level) / (methods * classes * (len(PAIRS) + goldfish))


def check_models(settings: DefencesSettings) -> None:
    """Refuse methods that there are not, or that all would have.

    And a FPR that one class is too small for, when its choice is paid for.
    """
    sweep, run = settings.sweep, settings.sweep.run
    refuse_own(run.training, chosen(settings.methods))
    texts = run.per_class
    others = sum(kind != UNIFORM for kind in run.kinds)
    classes = (len(run.uniform_formats) + others) * len(run.classes)
    methods = 1 + sum(name != NONE for name in settings.methods)
    goldfish = GOLDFISH in settings.methods
    level = paid_level(sweep.level, classes, goldfish=goldfish, methods=methods)
    needed = models_needed(settings.fpr, texts, level=level)
    if sweep.models < needed:
        raise SettingsError(
            f"models={sweep.models} with {count(texts, 'canary', 'canaries')} a class are too few "
            f"for a false-positive rate of {settings.fpr:g} when the choice among all attacks and "
            f"{count(methods, 'method')} is corrected for; it takes {needed:,} models, more "
            "canaries, or fewer methods"
        )
