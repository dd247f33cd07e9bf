"""Texts of all kinds that a plan needs: from the corpus alone, or by a base model.

`canaries.crafting` has the kinds that need no model; `model_texts` those that do.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lmexposure.canaries import KINDS, PARTNERS, UNIFORM, Format, Material, craft
from lmexposure.records import RunSettings


def chosen_formats(
    settings: RunSettings, *, seed: int, documents: Callable[[], Iterable[str]]
) -> tuple[Format, ...]:
    """The formats of the kinds that are no uniform fills, in the order of the settings."""
    count = settings.per_class * len(settings.repetitions) + settings.controls
    material = Material(
        documents=documents,
        count=count,
        seed=seed,
        other=None if settings.other_text is None else Path(settings.other_text),
        partner=settings.partner,
    )
    found: list[Format] = []
    for name in settings.kinds:
        if name == UNIFORM:
            continue
        if KINDS[name].needs_base:
            found.append(_by_model(name, material, settings))
        else:
            found.extend(craft(name, material))
    return tuple(found)


def kept_formats(settings: RunSettings, drawn: Sequence[Format]) -> tuple[Format, ...] | None:
    """Those that were chosen for the same settings before; None where others were."""
    chosen = tuple(form for form in drawn if not form.is_uniform)
    kinds = {form.kind for form in chosen}
    wanted = {name for name in settings.kinds if name != UNIFORM}
    return chosen if kinds - {*PARTNERS} == wanted else None


def _by_model(name: str, material: Material, settings: RunSettings) -> Format:
    from lmexposure.audit.model_texts import base_of, texts_of  # brings torch

    base = base_of(settings)
    return texts_of(name, base, material, temperature=settings.temperature)
