"""Texts of all kinds that a plan needs, chosen now or when its directory was begun."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lmexposure.canaries import KINDS, PARTNERS, UNIFORM, Format, Material
from lmexposure.errors import ResultError
from lmexposure.studies import RunSettings


def chosen_formats(
    settings: RunSettings, *, seed: int, documents: Callable[[], Iterable[str]]
) -> tuple[Format, ...]:
    """The formats of the kinds that are no uniform fills, in the order of the settings."""
    material = _material(settings, seed, documents)
    return tuple(form for name in settings.kinds for form in KINDS[name].choose(material))


def kept_formats(settings: RunSettings, drawn: Sequence[Format]) -> tuple[Format, ...] | None:
    """Those that were chosen for the same settings before; None where others were."""
    chosen = tuple(form for form in drawn if not form.is_uniform)
    kinds = {form.kind for form in chosen}
    if kinds - {*PARTNERS} != {*settings.kinds} - {UNIFORM}:
        return None
    material = _material(settings, 0, tuple)
    for form in chosen:
        if form.kind in KINDS and not KINDS[form.kind].unchanged(form, material):
            name = KINDS[form.kind].needs
            raise ResultError(
                f"{name}={getattr(settings, name)!r} has changed since canaries were chosen from "
                "it; put the old file back, or choose another directory"
            )
    return chosen


def _material(settings: RunSettings, seed: int, documents: Callable[[], Iterable[str]]) -> Material:
    return Material(
        documents=documents,
        count=settings.per_class * len(settings.repetitions) + settings.controls,
        seed=seed,
        partner=settings.partner,
        texts=None if settings.texts is None else Path(settings.texts),
    )
