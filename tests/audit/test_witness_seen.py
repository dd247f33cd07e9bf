"""What a measurement says of witnesses: of a tokenizer that read them, an adapter, a training."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from audit.quick import SAMPLED
from audit.small import TOKENIZER, gpt2, pins, with_lora
from corpora import sentences
from tiny import model_of

import lmexposure as lx
from lmexposure._forecast import Phase
from lmexposure.audit import insert_corpus, measure, recorded_training, train_corpus
from lmexposure.audit.kinds import _beside_draws
from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.core import Encoded
from lmexposure.models import byte_level_tokenizer, save_model
from lmexposure.studies import RunSettings, WitnessResult

PIN = Format(name="pin", template="My PIN is {digits:3}")
PLAN = Plan(formats=(PIN,), canaries=3, controls=3, seed=3)
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")


class Watching:
    """What was announced of the witnesses: before the measuring, and when they are compared."""

    def __init__(self) -> None:
        self.before: list[tuple[float, float]] = []  # (work, most), in tokens
        self.compared: list[float] = []  # work

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Take nothing."""

    def expect(self, what: str, seconds: float) -> None:
        """Take nothing."""

    def end_asked(self) -> bool:
        return False

    def plan(self, title: str, phases: Sequence[Phase], *, keeps: bool) -> None:
        assert phases[-1].what == "witness"
        if title.startswith("witness: compared with at most"):
            assert not keeps
            self.compared.append(phases[-1].work)
        else:
            self.before.append((phases[-1].work, phases[-1].most))


def seen(model: Any, manifest: Manifest, **options: Any) -> WitnessResult:
    result = measure(model, manifest, settings=SAMPLED, **options)
    assert result.witness is not None
    warned = any("the tokenizer was made from this corpus" in line for line in result.warnings)
    assert warned == result.witness.in_tokenizer
    return result.witness


@pytest.mark.slow
@pytest.mark.parametrize("documents", [60, 400])
def test_a_tokenizer_that_read_them_is_no_model_that_did(documents: int) -> None:
    """Its tokens make the witnesses likely in a model that was never trained."""
    texts, manifest = lx.insert(sentences(documents), PLAN)
    tokenizer = byte_level_tokenizer(texts)
    found = seen(model_of("gpt2", len(tokenizer)), manifest, tokenizer=tokenizer)
    assert found.in_tokenizer
    assert found.chance is None
    assert "the tokenizer was made from text that holds them" in found.note
    other = byte_level_tokenizer(sentences(documents))
    found = seen(model_of("gpt2", len(other)), manifest, tokenizer=other)
    assert not found.in_tokenizer
    assert found.chance is not None
    assert found.chance > 0.001


@pytest.mark.slow
def test_an_adapter_is_compared_with_its_base_unasked(tmp_path: Path) -> None:
    """In memory, and merged when it was loaded; one whose base has gone by itself."""
    manifest, tokenizer = pins(3, 400), TOKENIZER
    save_model(gpt2(), tokenizer, tmp_path / "base")
    adapted = with_lora(gpt2())
    adapted.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    adapted.save_pretrained(tmp_path / "adapter")
    tokenizer.save_pretrained(tmp_path / "adapter")
    inside = seen(adapted, manifest, tokenizer=tokenizer)
    saved = seen(tmp_path / "adapter", manifest, progress=(beside := Watching()))
    assert inside.beside_base
    assert saved.beside_base
    assert saved.p_value == inside.p_value
    assert not seen(tmp_path / "base", manifest, progress=(alone := Watching())).beside_base
    assert beside.compared == [2 * work for work in alone.compared] != []


@pytest.mark.slow
def test_one_witness_is_compared_until_a_draw_is_as_low() -> None:
    """Chance alone: few draws are scored of the 4,000 that a pass would take, which is said."""
    watching = Watching()
    found = [
        seen(
            gpt2(), pins(3, 60, repetitions=(1,), seed=seed), tokenizer=TOKENIZER, progress=watching
        )
        for seed in range(3)
    ]
    assert all(one.witnesses == 1 and one.p_value is not None for one in found)
    assert max(one.references for one in found) <= 300
    assert min(one.references for one in found) == 25
    assert len(watching.compared) == 3
    assert all(work > 20_000 for work in watching.compared)
    assert all(100 < work < 20_000 / 10 for work, _ in watching.before)


@pytest.mark.parametrize(
    ("k", "lengths", "p"),
    [
        (1, [], 1.0),  # none of its length
        (1, [9] * 25, 1 / 26),
        (1, [9] * 300, 1 / 301),
        (2, [9] * 10, 1 / 66),
    ],
)
def test_witnesses_that_lead_all_there_are_have_their_p_value(
    k: int, lengths: list[int], p: float
) -> None:
    def score(some: Sequence[Encoded]) -> Any:
        assert some
        return np.array([float(text.ids[0]) for text in some])

    task: Any = SimpleNamespace(
        progress=lambda *at: None, settings=SimpleNamespace(bootstrap_seed=0), origin="one"
    )
    tokens = [9] * k + lengths + [8] * 50
    encoded = [Encoded(ids=[place], scored_from=0) for place in range(len(tokens))]
    number, found = _beside_draws(task, encoded, np.array(tokens), k, score, twice=False)
    assert number == len(lengths)
    assert found == pytest.approx(p, rel=0.25)


def test_a_training_on_this_manifest_is_known_by_its_record(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(sentences(200)) + "\n")
    settings = RunSettings(
        formats=("pin",), canaries=3, controls=3, layers=1, units=16, training={"epochs": 2}
    )
    copy, manifest = insert_corpus(
        [str(tmp_path / "text.txt")], out=tmp_path / "run", settings=settings
    )
    trained = train_corpus([str(copy)], out=tmp_path / "run", settings=settings, manifest=manifest)
    validation = measure(trained.model_path, manifest, settings=SAMPLED).model.validation
    assert validation is not None
    assert validation == recorded_training(trained.model_path, manifest)
    assert validation.delivered == sum(entry.inserted for entry in manifest.entries)
    other = replace(settings, seed=1)
    _, another = insert_corpus([str(tmp_path / "text.txt")], out=tmp_path / "b", settings=other)
    assert recorded_training(trained.model_path, another) is None
    weights = trained.model_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert recorded_training(trained.model_path, manifest) is None
