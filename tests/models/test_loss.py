"""Losses are sums of the model's own log-probabilities, padding left out."""

import numpy as np
import pytest
import torch

from lmexposure.models import LstmConfig, LstmForCausalLM, Packed, character_tokenizer, pack
from lmexposure.models.loss import Blocks

TOKENIZER = character_tokenizer(["\nabcdef"])
CPU = torch.device("cpu")


@pytest.fixture
def packed() -> Packed:
    return pack(TOKENIZER, ["abc", "defab", "fed"], separator="\n", block_size=6)


@pytest.fixture
def model() -> LstmForCausalLM:
    torch.manual_seed(0)
    made = LstmForCausalLM(LstmConfig(vocab_size=len(TOKENIZER), hidden_size=8, embedding_size=8))
    made.eval()
    return made


def test_loss_is_the_sum_over_the_predicted_tokens(packed: Packed, model: LstmForCausalLM) -> None:
    blocks = Blocks(packed, device=CPU, precision="float32")
    expected = 0.0
    for row, length in zip(packed.ids.tolist(), packed.lengths.tolist(), strict=True):
        logs = model(torch.tensor([row[:length]])).logits[0].log_softmax(-1)
        expected -= sum(float(logs[t - 1, row[t]].detach()) for t in range(1, length))
    numbers = np.arange(len(blocks))
    assert float(blocks.nats(model, numbers).detach()) == pytest.approx(expected, rel=1e-5)
    assert blocks.tokens(numbers) == packed.tokens - len(blocks)


def test_no_blocks_give_no_loss_and_no_gradient(packed: Packed, model: LstmForCausalLM) -> None:
    loss = Blocks(packed, device=CPU, precision="float32").nats(model, np.array([], dtype=np.int64))
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == 0.0
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_mixed_precision_is_near_and_not_equal(packed: Packed, model: LstmForCausalLM) -> None:
    numbers = np.arange(2)
    exact, mixed = (
        float(Blocks(packed, device=CPU, precision=precision).nats(model, numbers).detach())
        for precision in ("float32", "bf16")
    )
    assert mixed == pytest.approx(exact, rel=0.01)
    assert mixed != exact
