import copy
import random
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scoring.families import FAMILIES, VOCABULARY, family

from lmexposure.core import Encoded
from lmexposure.scoring import Rescorer, score_encoded
from lmexposure.scoring.forward import PlainPass, choose_forward

BY_LAYER = {"qwen2_sliding", "gemma2", "cohere2", "exaone4", "gpt_oss"}
# A recurrent state is the natural way of those that are not told to be slower.
LEVELS = {"mamba", "mamba2", "jamba", "lstm", "bamba", "falcon_h1", "zamba2", "qwen3_next"}
SLOWER_LEVELS = {
    "bloom": "packed: ValueError",
    "mpt": "packed: gives other",
    "lfm2": "packed: Index",
}
ALONE = {
    "recurrent_gemma": "level by level: its cache fails with KeyError",
    "rwkv": "level by level: its cache fails with KeyError",
    "openai-gpt": "packed: RuntimeError",
    "xlstm": "level by level: its cache fails with ValueError",
    "minimax": "packed: ValueError: MiniMax uses cache of its own",
}
NO_FLOAT64 = {"xglm"}  # its mask overflows


def _texts(n: int, *, seed: int = 0, start: int = 1) -> list[Encoded]:
    """Texts that begin alike and then branch, some longer than the sliding window."""
    rng = random.Random(seed)
    rows = [[1, 5, 9, 9, 3, *rng.choices(range(2, 7), k=rng.randrange(2, 8))] for _ in range(n)]
    return [Encoded(ids=row, scored_from=start) for row in rows]


@torch.inference_mode()
def _alone(model: Any, encoded: list[Encoded]) -> list[Any]:
    plain = PlainPass(model)
    return [plain.bits([one])[0] for one in encoded]


def _name_of(way: Any) -> str:
    nodes = getattr(way, "_nodes", None)
    by_layer = getattr(nodes, "_kinds", None) is not None
    return type(nodes or way).__name__ + " by layer" * by_layer


@torch.inference_mode()
def _naive(model: Any, encoded: list[Encoded]) -> list[NDArray[np.float64]]:
    """In float64 with plain loops over the experts, one text at a time, without a cache."""
    twin = copy.deepcopy(model)
    twin.set_experts_implementation("eager")
    twin = twin.to(torch.float32 if model.config.model_type in NO_FLOAT64 else torch.float64)
    found = []
    for one in encoded:
        logits = twin(input_ids=torch.tensor([one.ids]), use_cache=False).logits[0].double()
        nats = -logits.log_softmax(-1)[range(len(one.ids) - 1), one.ids[1:]]
        found.append(nats.numpy()[one.scored_from - 1 :] / np.log(2))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_has_the_bits_of_each_text_alone(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, encoded = family(kind), _texts(24)
    expected = _naive(model, encoded)
    way = choose_forward(model, encoded)
    module = import_module("lmexposure.scoring.perplexity")
    monkeypatch.setattr(module, "choose_forward", lambda *_: way)  # choosing costs most
    found = score_encoded(model, encoded)
    for a, b in zip(found.bits, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-3)
    packed = "PackedNodes by layer" if kind in BY_LAYER else "PackedNodes"
    levels = kind in LEVELS or kind in SLOWER_LEVELS
    assert _name_of(way) == (
        "LevelNodes" if levels else "PlainForward" if kind in ALONE else packed
    )
    reason = {**SLOWER_LEVELS, **ALONE}.get(kind, "")
    assert reason in found.slower
    assert bool(reason) == bool(found.slower)
    _is_scored_again(model, encoded, expected)


def _is_scored_again(
    model: Any, encoded: list[Encoded], expected: list[NDArray[np.float64]]
) -> None:
    """What settles near ties is right, and leaves the model's own kernels as they are."""
    kernels = model.config._experts_implementation
    rescorer = Rescorer(model, SimpleNamespace(beginning=encoded[0].ids[:5]))  # type: ignore[arg-type]
    found = rescorer.bits([one.ids[5:] for one in encoded])
    # Some compute a part in float32 whatever their dtype.
    np.testing.assert_allclose(found, [bits[4:].sum() for bits in expected], rtol=0, atol=2e-5)
    assert bool(rescorer.failure) == (model.config.model_type in NO_FLOAT64)
    assert model.config._experts_implementation == kernels
    assert model.dtype == torch.float32


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["gpt2", "gemma2", "recurrent_gemma", "lstm"])
def test_in_bfloat16_a_leak_between_branches_is_found(kind: str) -> None:
    """RecurrentGemma reads its siblings, by less than bfloat16 rounds."""
    model, encoded = family(kind).to(torch.bfloat16), _texts(120)
    for a, b in zip(score_encoded(model, encoded).bits, _alone(model, encoded), strict=True):
        np.testing.assert_allclose(a, b, atol=0.25)
    trusted = _name_of(choose_forward(model, encoded)) != "PlainForward"
    assert trusted == (kind != "recurrent_gemma")


@pytest.mark.parametrize("kind", ["gpt2", "lstm"])
def test_texts_with_nothing_in_common_are_scored_too(kind: str) -> None:
    rng = random.Random(2)
    encoded = [
        Encoded(ids=rng.choices(range(VOCABULARY), k=rng.randrange(2, 30)), scored_from=1)
        for _ in range(40)
    ]
    found = score_encoded(family(kind), encoded)
    expected = [b.sum() for b in _alone(family(kind), encoded)]
    np.testing.assert_allclose(found.totals, expected, atol=1e-3)
    assert _name_of(choose_forward(family(kind), encoded)) == "PlainForward"


@pytest.mark.parametrize("kind", ["gpt2", "mistral", "gemma2", "lstm"])
def test_each_text_is_scored_from_its_own_token_through_the_tree(kind: str) -> None:
    """Texts that end inside others, that are twins, and that are scored from the prefix on."""
    encoded = _texts(60) + _texts(20)
    encoded += [replace(one, ids=one.ids[:-1]) for one in encoded[:20]]
    encoded = [replace(one, scored_from=1 + i % 6) for i, one in enumerate(encoded)]
    model = family(kind)
    expected = _alone(model, encoded)
    found = score_encoded(model, encoded)
    assert _name_of(choose_forward(model, encoded)) != "PlainForward"
    for a, b in zip(found.bits, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_deep_trees_are_packed_with_their_ancestors() -> None:
    """A row holds fewer tokens than a text has."""
    rng = random.Random(3)
    stems = [[1, *rng.choices(range(VOCABULARY), k=100)] for _ in range(3)]
    rows = [[*stems[i % 3], *rng.choices(range(VOCABULARY), k=4)] for i in range(60)]
    encoded = [Encoded(ids=row, scored_from=1) for row in rows]
    model = family("gpt2")
    assert _name_of(choose_forward(model, encoded)) == "PackedNodes"
    expected = [b.sum() for b in _alone(model, encoded)]
    np.testing.assert_allclose(score_encoded(model, encoded).totals, expected, atol=1e-3)


def test_memory_that_runs_out_halves_the_batch_and_changes_nothing() -> None:
    model, encoded = family("gpt2"), _texts(300)
    expected = score_encoded(model, encoded).totals
    largest = 0

    def refuse(_: Any, __: Any, options: dict[str, Any]) -> None:
        nonlocal largest
        largest = max(largest, options["input_ids"].numel())
        if options["input_ids"].numel() > 300:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    model.register_forward_pre_hook(refuse, with_kwargs=True)
    seen: list[int] = []
    found = score_encoded(model, encoded, progress=lambda done, _: seen.append(done))
    np.testing.assert_allclose(found.totals, expected, atol=1e-3)
    assert largest > 300
    assert len(seen) > 1
    assert seen[-1] == 300


@pytest.mark.parametrize("kind", ["gpt2", "lstm"])
def test_no_signal_gives_the_same_bits_for_all(kind: str) -> None:
    model = family(kind)
    with torch.no_grad():
        model.get_output_embeddings().weight.zero_()
        if kind == "lstm":
            model.lm_head.bias.zero_()
    encoded = [one for one in _texts(200) if len(one.ids) == 9]
    assert len(encoded) > 16
    np.testing.assert_allclose(
        score_encoded(model, encoded).totals, 8 * np.log2(VOCABULARY), atol=1e-3
    )
