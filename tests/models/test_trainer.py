"""Every block once an epoch, whatever the number of processes.

Losses are sums of the model's own log-probabilities, padding left out.
"""

import numpy as np
import pytest
import torch

from lmexposure.models import LstmConfig, LstmForCausalLM, Packed, character_tokenizer, pack
from lmexposure.models.packing import Blocks, epoch_steps, micro_batches, steps_per_epoch


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_each_block_is_dealt_out_once(processes: int, accumulation: int) -> None:
    steps = list(epoch_steps(23, batch_size=4, seed=1, epoch=0))
    dealt = [
        micro_batches(step, process=p, processes=processes, accumulation=accumulation)
        for step in steps
        for p in range(processes)
    ]
    assert all(len(parts) == accumulation for parts in dealt)
    flat = np.concatenate([part for parts in dealt for part in parts])
    assert sorted(flat.tolist()) == list(range(23))


def test_no_more_parts_than_the_step_has_blocks() -> None:
    for process in range(3):
        parts = micro_batches(np.arange(4), process=process, processes=3, accumulation=10**30)
        assert len(parts) == 4


def test_a_step_has_batch_size_blocks_but_the_last() -> None:
    sizes = [len(step) for step in epoch_steps(10, batch_size=4, seed=1, epoch=0)]
    assert sizes == [4, 4, 2]
    assert steps_per_epoch(10, 4) == 3
    assert steps_per_epoch(8, 4) == 2


def test_order_depends_on_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        steps = epoch_steps(50, batch_size=8, seed=seed, epoch=epoch)
        return np.concatenate(list(steps)).tolist()  # type: ignore[no-any-return]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


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
