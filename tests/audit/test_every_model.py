"""Which study takes which model: every pair is tried, and the documentation's table says so.

What is refused is refused before any long work, in a sentence that names what the study needs.
`LMEXPOSURE_GOLDEN=accept` writes the table anew, for a change that is meant.
"""

import json
import math
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
from audit import test_encoder_decoders as encoder_decoders
from audit.quick import QUICK, SAMPLED
from audit.small import TOKENIZER, gpt2, pins, with_lora
from audit.test_model_files import BUILDER, llama, scores_of, write_gguf
from cli.conftest import run_command
from corpora import write_corpus

import lmexposure as lx
from lmexposure._settings import own_values
from lmexposure.audit import read_scores, write_texts
from lmexposure.canaries import Format
from lmexposure.errors import LmexposureError

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "any-model.md"
MANIFEST = pins(2)
KEY = Format(name="key", template="the key {hex:8}")
# What a study needs beyond the bits of a few texts, and how a refusal names it.
NEEDS = {
    "gradients": re.compile("needs (the )?gradients of"),
    "steps": re.compile("needs (steps|a model that answers token by token)"),
    "samples": re.compile("needs samples"),
    "sources": re.compile("needs a source for each text"),
    "a model": re.compile("for a model that is asked|give a causal language model"),
}
_ACCEPT = os.environ.get("LMEXPOSURE_GOLDEN") == "accept"
BEGIN, END = "<!-- by tests/audit/test_every_model.py -->\n\n", "\n<!-- end -->"


@dataclass(frozen=True)
class Given:
    """A model as a person gives it."""

    model: Any
    more: Mapping[str, Any] = field(default_factory=dict)  # keywords that go with it
    base: Any = "other"
    manifest: Any = "manifest.json"
    corpus: str = "corpus.txt"
    training: Mapping[str, Any] = field(default_factory=dict)  # what its corpus needs to be said


def checkpoint() -> Given:
    Path("builders_of_a_table.py").write_text(BUILDER)
    torch.save({"model": gpt2().state_dict(), "iterations": 5}, "ckpt.pt")
    builder = "builders_of_a_table:build"
    return Given("ckpt.pt", {"builder": builder})


def adapter() -> Given:
    adapted = with_lora(gpt2())
    adapted.peft_config["default"].base_model_name_or_path = saved(gpt2(), "base")
    adapted.save_pretrained("adapter")
    return Given("adapter", base="base")


def saved(model: Any, name: str) -> str:
    model.save_pretrained(name)
    TOKENIZER.save_pretrained(name)
    return str(Path(name).absolute())


def encoder_decoder() -> Given:
    encoder_decoders.planned().write("pairs.json")
    encoder_decoders.corpus(Path())
    fields = {"prompt_field": "source", "completion_field": "target"}
    places = [encoder_decoders.directory(Path(name), "bart") for name in ("pairs", "before")]
    model, _ = encoder_decoders.made("bart", init_std=0.2)
    model.save_pretrained(places[1])
    one, other = map(str, places)
    return Given(one, base=other, manifest="pairs.json", corpus="records.jsonl", training=fields)


def scores() -> Given:
    write_texts(MANIFEST, "texts.jsonl", references=60)
    Path("scores.jsonl").write_text(scores_of(llama(), Path("texts.jsonl")))
    return Given(read_scores("scores.jsonl", MANIFEST, references=60))


def function() -> Any:
    return lx.language_model(gpt2(), tokenizer=TOKENIZER, window=96)


# Row of the table -> the model, made in the working directory. Another implementation is a line.
MODELS: dict[str, Callable[[], Given]] = {
    "a directory": lambda: Given(saved(gpt2(), "directory")),
    "a model in memory": lambda: Given(gpt2(), {"tokenizer": TOKENIZER}),
    "an adapter": adapter,
    "a GGUF file": lambda: Given(str(write_gguf(Path("small.gguf"), llama()))),
    "a function": lambda: Given(function()),
    "a checkpoint with `--builder`": checkpoint,
    "an encoder and a decoder": encoder_decoder,
    "texts and scores": scores,
}


class Begun(Exception):  # noqa: N818 - no error
    """Raised by what watches a comparison, as soon as it has trained a model."""


def begun(what: str, done: int, total: int, note: str = "") -> None:
    if what.endswith(": models") and done:
        raise Begun


def sampled(given: Given) -> None:
    frame = measured(given, SAMPLED).to_frame()
    assert set(frame["method"]) == {"sampled"}
    assert frame["exposure"].map(math.isfinite).all()


def exact(given: Given) -> None:
    result = measured(given, replace(QUICK, references=60, estimate="exact"))
    assert result.to_frame()["method"].str.startswith("exact").all()
    assert result.to_frame()["guesses_tried"].min() > 0


def measured(given: Given, settings: Any, **more: Any) -> lx.Result:
    chosen = own_values(replace(settings, bootstraps=39, draws=100))
    return lx.measure(given.model, given.manifest, **chosen, **given.more, **more)


def beside_a_base(given: Given) -> None:
    assert measured(given, SAMPLED, base=given.base).base is not None


def check(given: Given) -> None:
    if not isinstance(given.model, str):
        assert lx.check(measured(given, SAMPLED)).outcome == "inconclusive"
        return
    settings = {"references": 60, "estimate": "sampled", **given.more}
    lines = (f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    Path("settings.toml").write_text("".join(lines))
    named = ("--model", given.model, "--manifest", given.manifest, "--settings", "settings.toml")
    assert run_command("check", *named) == 2


RUN: dict[str, Any] = {"formats": ["pin"], "canaries": 4, "repetitions": (2,), "seed": 3}
RUN |= {"layers": 1, "units": 8, "epochs": 1, "batch_size": 8}


def run(given: Given) -> None:
    few: dict[str, Any] = {"controls": 4, "references": 40, "draws": 50, "extraction": False}
    few |= {"estimate": "sampled", **given.training, **RUN}
    assert lx.run(given.corpus, model=given.model, **few).canaries


def sweep(given: Given) -> None:
    few: dict[str, Any] = {"models": 5, "population": 4, "workers": 1, "inclusion_seed": 1}
    few |= {**given.training, **RUN, "repetitions": (1,)}
    assert lx.sweep(given.corpus, model=given.model, **few)


def defences(given: Given) -> None:
    few = RUN | {"formats": ["random_number"], "canaries": 200, "repetitions": (1,)}
    few |= {"methods": ("early-stop",), "models": 6, "population": 5, "repeated": 0, "tries": 3}
    few |= given.training
    lx.compare_defences(given.corpus, model=given.model, workers=1, progress=begun, **few)


def verbatim(given: Given) -> None:
    few: dict[str, Any] = {
        "prefix_tokens": 8,
        "suffix_tokens": 8,
        "samples": 2,
        "sample_tokens": 20,
    }
    few |= {"near_windows": 1, "least_match": 10}
    record = lx.verbatim(given.model, "corpus.txt", **few, **given.more)
    assert record.corpus.windows > 0


def identifiers(given: Given) -> None:
    found = lx.identifiers(given.model, "keyed.txt", formats=[KEY], draws=99, left=5, **given.more)
    assert found.claim == "nothing found"


def canife(given: Given) -> None:
    lx.canife("corpus.txt", model=given.model)  # type: ignore[call-arg]


# Column of the table -> a tiny study of a model.
STUDIES: dict[str, Callable[[Given], None]] = {
    "sampled ranks": sampled,
    "`check`": check,
    "exact ranks and extraction": exact,
    "beside a base": beside_a_base,
    "`verbatim`": verbatim,
    "`identifiers`": identifiers,
    "`run`": run,
    "`sweep`": sweep,
    "`defences`": defences,
    "`canife`": canife,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a manifest, corpora, and a base of all models but an adapter."""
    place = tmp_path_factory.mktemp("every")
    MANIFEST.write(place / "manifest.json")
    write_corpus(place / "corpus.txt", 60)
    draw = random.Random(1)
    keys = (f"no {draw.randrange(100)} has {draw.randbytes(4).hex()} now\n" for _ in range(150))
    (place / "keyed.txt").write_text("".join(keys))
    other = gpt2()
    with torch.no_grad():
        other.lm_head.weight.mul_(0.5)
    saved(other, str(place / "other"))
    return place


def cell(study: Callable[[Given], None], given: Given) -> str:
    """What the table says: that it works, or what it would need."""
    try:
        with suppress(Begun):
            study(given)
    except LmexposureError as refused:
        said = str(refused)
        needed = [need for need, words in NEEDS.items() if words.search(said)]
        assert len(needed) == 1, (study.__name__, said)
        assert len(said) < 300, said
        assert not re.search(r"[.!?] |\n", said), said
        return f"needs {needed[0]}"
    return "yes"


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, list[str]]]:
    """The rows of the table; where a change is meant, the page gets them."""
    rows: dict[str, list[str]] = {}
    yield rows
    if _ACCEPT and rows.keys() == MODELS.keys():
        before, _, behind = parts()
        PAGE.write_text(before + BEGIN + table(rows) + END + behind, encoding="utf-8")


def parts() -> tuple[str, str, str]:
    """Of the page, what is before its table, the table, and what is behind."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    shown, _, behind = rest.partition(END)
    return before, shown, behind


def shown_rows() -> dict[str, list[str]]:
    """The table of the page, with a column for each study."""
    lines = [line.strip("|").split("|") for line in parts()[1].splitlines()]
    widths = [len(names.split(",")) for names in lines[0][1:]]
    return {
        line[0].strip(): [
            cell.strip() for cell, width in zip(line[1:], widths, strict=True) for _ in range(width)
        ]
        for line in lines[2:]
    }


def test_the_page_has_a_row_for_each_model_and_a_column_for_each_study() -> None:
    rows = shown_rows()
    assert rows.keys() == MODELS.keys()
    assert parts()[1] == table(rows)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_every_study_takes_a_model_or_says_what_it_needs(
    name: str, home: Path, found: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    given = MODELS[name]()
    found[name] = [cell(study, given) for study in STUDIES.values()]
    assert _ACCEPT or found[name] == shown_rows()[name]


def table(rows: Mapping[str, list[str]]) -> str:
    """In Markdown; studies beside each other that differ in no row are a column together."""
    columns = zip(STUDIES, zip(*rows.values(), strict=True), strict=True)
    groups = [
        (", ".join(name for name, _ in group), cells)
        for cells, group in groupby(columns, key=lambda column: column[1])
    ]
    lines = [("", *(names for names, _ in groups)), ("---",) * (len(groups) + 1)]
    by_row = zip(*(cells for _, cells in groups), strict=True)
    lines += [(name, *cells) for name, cells in zip(rows, by_row, strict=True)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("|  |", "| |") + "\n"
