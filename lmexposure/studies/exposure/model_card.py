"""Results in a model card's metadata, as model hubs show them; its text is kept, to the byte."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from huggingface_hub import EvalResult, metadata_load, metadata_save
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.repocard_data import eval_results_to_model_index

from lmexposure._files import atomic_write, read_bytes
from lmexposure._style import bits, count, short, validity
from lmexposure.core import judged
from lmexposure.errors import ModelError
from lmexposure.studies.exposure.facts import scored_in
from lmexposure.studies.exposure.result import Result
from lmexposure.studies.exposure.rows import class_rows

DATASET = "lmexposure-canaries"  # by this a result is known as ours, and replaced
_UNKNOWN = "gate; not checked whether the weights next to this card are the ones that were measured"
_Number = str | float | None


def card_with_results(path: Path, result: Result, weights: str | None) -> bytes:
    """A model's card with the results in its metadata; None: its weights were not compared."""
    measured, name = result.model.weights_sha256, path.parent.resolve().name
    if not path.parent.is_dir():
        raise ModelError(f"no model directory at {path.parent}; give the one that holds the model")
    if weights not in (None, measured):
        raise ModelError(
            f"the weights in {path.parent} have sha256 {weights:.16}, and those measured "
            f"{measured:.16}; give the model that was measured"
        )
    results = list(evaluation_results(result, _UNKNOWN if weights is None else "gate"))
    with TemporaryDirectory() as passing:
        card = Path(passing, path.name)
        try:
            card.write_bytes(read_bytes(path) if path.exists() else f"\n# {name}\n".encode())
            text = card.read_text(encoding="utf-8-sig")
            if text.lstrip().startswith("---") and not REGEX_YAML_BLOCK.search(text):
                raise ValueError("metadata that is empty or not closed by ---")
            metadata = metadata_load(card) or {}
            models = metadata.get("model-index") or eval_results_to_model_index(name, [])
            metadata["model-index"] = models = [dict(model) for model in models]
            for model in models:
                rows = model.get("results") or []
                kept = [r for r in rows if (r.get("dataset") or {}).get("type") != DATASET]
                model["results"] = kept
            models[0]["results"] += eval_results_to_model_index(name, results)[0]["results"]
            metadata_save(card, metadata)
        except (AttributeError, OSError, RecursionError, TypeError, ValueError, yaml.YAMLError):
            raise ModelError(
                f"cannot read {path} as a model card, which is text in UTF-8 that begins with "
                "metadata in YAML between two lines ---; mend it, or move it away"
            ) from None
        return card.read_bytes()


def save_card(path: Path, content: bytes) -> None:
    """Write a card that was read, with the permissions that it had."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    with atomic_write(path, mode=mode, replaces=lambda _: True) as stream:
        stream.write(content)


def evaluation_results(result: Result, gate: str = "gate") -> Iterator[EvalResult]:
    """The results in the form that `huggingface_hub` reads and writes."""
    whole, made = ("all formats", None), result.provenance
    about = {"lmexposure": made.lmexposure, "measured": made.date}
    about |= {} if result.when is None else {"measured": result.when}
    about |= {"model": result.model.path, "weights_sha256": result.model.weights_sha256}
    about |= {} if result.context is None else {"scored": scored_in(result.context)}
    yield _result(whole, "verdict", gate, value=str(judged(result).outcome), **about)
    if result.privacy is not None and (bound := result.privacy.primary) is not None:
        holds = f"holds for {validity(bound.validity)}"
        name = f"lower bound on epsilon, nats, at delta {short(bound.delta)} ({holds}; "
        yield _result(whole, "epsilon", f"{name}higher = less private)", value=bound.value)
    for form in result.formats:
        part = f"{form.name} ({bits(form.bits, 1)})", form.name
        for row in (row for row in class_rows(result, form) if row.role == "canary"):
            where = f", repetitions {row.repetitions}, {count(row.n, 'canary', 'canaries')}"
            capped = ", a lower bound" if row.median_capped else ""
            name = f"median exposure, bits{capped} (1 = guessing, higher = more memorised){where}"
            spread = {"low": row.median.low, "high": row.median.high, "level": row.level}
            yield _result(part, "exposure", name, value=row.median.value, **spread)
            name = f"how often chance alone gives such a mean exposure{where}"
            if row.p_value is not None:
                yield _result(part, "p_value", name, value=row.p_value)
            for last in row.tries[-1:]:
                name = f"share found within {last.given:,} guesses{where}"
                chance = last.by_chance / last.of
                yield _result(
                    part, "extraction", name, value=last.found / last.of, by_chance=chance
                )


def _result(part: tuple[str, str | None], kind: str, name: str, **values: _Number) -> EvalResult:
    """Of a part, in words and by its format; four digits, so that a small p-value is not 0."""
    args = {key: float(f"{x:.4g}") if isinstance(x, float) else x for key, x in values.items()}
    return EvalResult(
        task_type="text-generation",
        task_name="Memorisation of canaries",
        dataset_type=DATASET,
        dataset_name=f"Canaries, {part[0]}",
        dataset_config=part[1],
        metric_type=kind,
        metric_name=name,
        metric_value=args.pop("value"),
        metric_args=args or None,
    )
