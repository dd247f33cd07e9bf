import numpy as np
import pytest
import torch
from scoring.families import VOCABULARY, family

from lmexposure.scoring import runtime
from lmexposure.scoring.runtime import LmHead

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


@torch.inference_mode()
def _expected(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    """Bits of every token after every position, (T, V)."""
    logits = model(input_ids=torch.tensor([ids])).logits[0].double()
    bits: torch.Tensor = -torch.log_softmax(logits, dim=-1) / np.log(2)
    return bits


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma2", "granite", "cohere", "opt", "lstm"])
@pytest.mark.parametrize("block", [1 << 22, 300 * 8])
def test_gives_the_models_own_bits_in_blocks(
    kind: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(runtime._BLOCK, "cpu", block)
    monkeypatch.setattr(runtime, "_ROWS", 5)
    model = family(kind)
    readout = LmHead(model, IDS)
    assert readout.split
    hidden, _ = readout.hidden(input_ids=torch.tensor([IDS]))
    rows, columns = (torch.randint(n, (200,)) for n in (len(IDS), VOCABULARY))
    expected = _expected(model, IDS)
    found = readout.bits(hidden[0], rows, columns)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected[rows, columns].numpy(), atol=1e-4)
    own = readout.sequence_bits(hidden[0], IDS)
    assert np.isnan(own[0])
    np.testing.assert_allclose(own[1:], expected[range(7), IDS[1:]].numpy(), atol=1e-4)


def test_a_head_that_does_more_than_it_seems_is_read_whole() -> None:
    """Gemma 2 caps its logits; without the cap's size only its own forward knows how."""
    model = family("gemma2")
    capped = _expected(model, IDS)
    readout = LmHead(model, IDS)
    readout._cap = None
    assert not readout._is_right(IDS)
    readout.split = False
    hidden, _ = readout.hidden(input_ids=torch.tensor([IDS]))
    assert hidden.shape == (1, len(IDS), VOCABULARY)
    found = readout.bits(hidden[0], torch.arange(8), torch.tensor(IDS))
    np.testing.assert_allclose(found, capped[range(8), IDS].numpy(), atol=1e-4)


def test_nan_stays_nan() -> None:
    model = family("gpt2")
    readout = LmHead(model, IDS)
    hidden, _ = readout.hidden(input_ids=torch.tensor([IDS]))
    hidden = hidden.clone()
    hidden[0, 2] = float("nan")
    found = readout.bits(hidden[0], torch.arange(8), torch.tensor(IDS))
    assert np.isnan(found).tolist() == [i == 2 for i in range(8)]
