"""The results in a model card: the metadata that model hubs show as evaluation results.

Only the part `model-index` is written anew, and of it only what an earlier call wrote: text, other
metadata, comments and other people's results stay as they are, to the byte where YAML allows.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.repocard_data import EvalResult, eval_results_to_model_index

from lmexposure._files import atomic_write
from lmexposure._style import bits, count, short
from lmexposure.errors import ModelError
from lmexposure.records import Privacy
from lmexposure.reporting.data import ClassRow, FormatData, ReportData

# By this an entry is known as ours, and replaced.
DATASET = "lmexposure-canaries"
_KEY = "model-index"
_GATE = "gate"
_UNKNOWN = "not checked whether the weights next to this card are the ones that were measured"


def write_card(path: Path, text: str) -> Path:
    """Write a card with the permissions that it had; returns its path.

    Raises:
        FileError: the disk refused.
    """
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    with atomic_write(path, mode=mode, replaces=lambda _: True) as stream:  # it was read
        stream.write(text.encode())
    return path


def card_with_results(
    model_directory: str | Path, data: ReportData, *, weights_known: bool = False
) -> tuple[Path, str]:
    """The card of a model with the results in its metadata, and where it belongs.

    An entry of an earlier call is replaced. No secret is in it, whatever the data holds.

    Args:
        model_directory: the directory that holds, or shall hold, README.md.
        data: what `report_data` gave.
        weights_known: whether the weights in that directory were compared with those measured, and
            are the same. If not, the card says so in the name of its verdict.

    Returns:
        the path of README.md, and its text.

    Raises:
        ModelError: no such directory, or a card that is not UTF-8 or whose metadata cannot be read.
    """
    directory = Path(model_directory)
    if not directory.is_dir():
        raise ModelError(f"no model directory at {directory}; give the one that holds the model")
    path, name = directory / "README.md", directory.resolve().name
    before = _read(path) if path.exists() else f"# {name}\n"
    results = evaluation_results(data, weights_known=weights_known)
    return path, _with_results(path, before, name, results)


def evaluation_results(data: ReportData, *, weights_known: bool = False) -> list[EvalResult]:
    """The results in the form that `huggingface_hub` reads and writes.

    Args:
        data: what `report_data` gave.
        weights_known: whether they are known to be of the weights that the card describes.
    """
    name = _GATE if weights_known else f"{_GATE}; {_UNKNOWN}"
    made = data.provenance
    verdict = _result(
        "all formats",
        None,
        "verdict",
        name,
        str(data.verdict.outcome),
        lmexposure=made.lmexposure or made.version,
        measured=made.measured or made.date,
        model=made.model,
        weights_sha256=made.weights_sha256,
        **({"scored": data.scored} if data.scored else {}),
    )
    rows = [_exposures(form) for form in data.formats]
    return [verdict, *_epsilon(data.privacy), *(result for form in rows for result in form)]


def _result(
    about: str,
    config: str | None,
    kind: str,
    name: str,
    value: str | float,
    **args: str | float | None,
) -> EvalResult:
    return EvalResult(
        task_type="text-generation",
        task_name="Memorisation of canaries",
        dataset_type=DATASET,
        dataset_name=f"Canaries, {about}",
        dataset_config=config,
        metric_type=kind,
        metric_name=name,
        metric_value=_rounded(value),
        metric_args={key: _rounded(arg) for key, arg in args.items()} or None,
    )


def _rounded(value: str | float | None) -> str | float | None:
    """To significant digits: a small p-value does not become 0."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _epsilon(privacy: Privacy | None) -> Iterator[EvalResult]:
    bound = None if privacy is None else privacy.primary
    if bound is not None:
        name = (
            f"lower bound on epsilon, nats, at delta {short(bound.delta)} ({bound.validity}; "
            "higher = less private)"
        )
        yield _result("all formats", None, "epsilon", name, bound.value)


def _exposures(form: FormatData) -> Iterator[EvalResult]:
    about = f"{form.name} ({bits(form.bits, 1)})"
    for row in form.classes:
        if row.role != "canary":
            continue
        where = f"repetitions {row.repetitions}, {count(row.n, 'canary', 'canaries')}"
        for kind, name, value, args in _metrics(row):
            if value is not None:
                yield _result(about, form.name, kind, f"{name}, {where}", value, **args)


def _metrics(row: ClassRow) -> Iterator[tuple[str, str, float | None, Mapping[str, float | None]]]:
    """Kind, name, value and what belongs to the value, of each number of a class."""
    bound = ", a lower bound" if row.capped else ""
    spread = {"low": row.low, "high": row.high, "level": row.level}
    name = f"median exposure, bits{bound} (1 = guessing, higher = more memorised)"
    yield "exposure", name, row.median, spread
    yield "p_value", "how often chance alone gives such a mean exposure", row.p_value, {}
    if row.guesses:
        last = row.guesses[-1]
        chance = {"by_chance": last.by_chance / last.of}
        yield (
            "extraction",
            f"share found within {last.given:,} guesses",
            last.found / last.of,
            chance,
        )


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise ModelError(
            f"cannot read {path} as UTF-8 text ({type(failure).__name__}); mend it, or move it away"
        ) from None


def _with_results(path: Path, card: str, name: str, results: list[EvalResult]) -> str:
    """The card with our results instead of our earlier ones; first line end and BOM are kept."""
    bom, text = ("\ufeff", card[1:]) if card.startswith("\ufeff") else ("", card)
    line_end = "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
    found = REGEX_YAML_BLOCK.search(text)
    if found is None and text.lstrip().startswith("---"):
        raise ModelError(f"{path}: its metadata is empty or not closed by ---; mend it first")
    block = found.group(2) if found else ""
    values = _parsed(path, block)
    values[_KEY] = _merged(path, values.get(_KEY), name, results)
    written = _written(block.replace("\r\n", "\n"), values).replace("\n", line_end)
    rest = text[found.end() :] if found else line_end + text
    return f"{bom}---{line_end}{written}---{line_end}{rest}"


def _parsed(path: Path, block: str) -> dict[str, object]:
    try:
        values = yaml.safe_load(block)
    except (yaml.YAMLError, ValueError, RecursionError) as failure:
        raise ModelError(
            f"{path}: its metadata is not YAML ({type(failure).__name__}); mend it first"
        ) from None
    if values is not None and not isinstance(values, dict):
        raise ModelError(f"{path}: its metadata is no table of names and values; mend it first")
    return dict(values or {})


def _merged(path: Path, index: object, name: str, results: list[EvalResult]) -> Sequence[object]:
    """The index with our results behind those of others, under the first model it names."""
    models = [] if index is None else index
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        raise ModelError(f"{path}: its {_KEY} is no list of models; mend it first")
    kept: list[dict[str, list[object]]] = [
        {**model, "results": _foreign(path, model.get("results"))} for model in models
    ]
    (ours,) = eval_results_to_model_index(name, results)
    if not kept:
        return [ours]
    kept[0]["results"] += ours["results"]
    return kept


def _foreign(path: Path, results: object) -> list[object]:
    rows = [] if results is None else results
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ModelError(f"{path}: the results in its {_KEY} are no list of tables; mend it first")
    return [row for row in rows if not _is_ours(row)]


def _is_ours(row: Mapping[str, object]) -> bool:
    dataset = row.get("dataset")
    return isinstance(dataset, dict) and dataset.get("type") == DATASET


def _written(block: str, values: Mapping[str, object]) -> str:
    """The metadata with its index replaced where it is, or added at the end.

    Where that does not give the values wanted (the block is one line, or parts of the index are
    referred to from elsewhere) all of it is written anew.
    """
    entry = _dumped({_KEY: values[_KEY]})
    start, end = _span(block)
    before, after = block[:start], block[end:]
    if before and not before.endswith("\n"):
        before += "\n"
    edited = before + entry + after.lstrip("\n")
    edited += "" if edited.endswith("\n") else "\n"
    try:
        if yaml.safe_load(edited) == values:
            return edited
    except yaml.YAMLError:
        pass
    return _dumped(values)


def _dumped(values: Mapping[str, object]) -> str:
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=10_000))


def _span(block: str) -> tuple[int, int]:
    """Where the index begins and ends in the metadata; comments behind it are not part of it."""
    node = yaml.compose(block, Loader=yaml.SafeLoader)
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.value == _KEY:
            lines = block[key.start_mark.index : value.end_mark.index].splitlines(keepends=True)
            while len(lines) > 1 and (not lines[-1].strip() or lines[-1].startswith("#")):
                lines.pop()
            return key.start_mark.index, key.start_mark.index + len("".join(lines))
    return len(block), len(block)
