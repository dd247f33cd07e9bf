"""The LSTM as a transformers model: state, padding, saving; and that of private training."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from lmexposure.errors import ModelError
from lmexposure.models import LstmConfig, LstmForCausalLM, LstmState
from lmexposure.models.lstm import PrivateLstm


@pytest.fixture
def model() -> LstmForCausalLM:
    torch.manual_seed(3)
    made = LstmForCausalLM(LstmConfig(vocab_size=11, hidden_size=7, embedding_size=5))
    made.eval()
    return made


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(0, 11, (4, 9), generator=torch.Generator().manual_seed(1))


def test_logits_are_those_of_the_bare_torch_modules(
    model: LstmForCausalLM, ids: torch.Tensor
) -> None:
    bare = nn.LSTM(5, 7, num_layers=2, batch_first=True)
    bare.load_state_dict(model.lstm.state_dict())
    expected = model.lm_head(bare(model.embed_tokens(ids))[0])
    assert torch.equal(model(ids).logits, expected)


def test_initial_weights_have_torchs_own_scale() -> None:
    torch.manual_seed(0)
    model = LstmForCausalLM(LstmConfig(vocab_size=300))
    assert float(model.embed_tokens.weight.detach().std()) == pytest.approx(1.0, abs=0.02)
    for part in (model.lstm, model.lm_head):
        largest = max(float(p.detach().abs().max()) for p in part.parameters())
        assert 0.99 * 200**-0.5 < largest <= 200**-0.5


def test_reading_in_two_parts_gives_the_same_logits(
    model: LstmForCausalLM, ids: torch.Tensor
) -> None:
    whole = model(ids).logits
    first = model(ids[:, :4])
    rest = model(ids[:, 4:], past_key_values=first.past_key_values)
    assert torch.allclose(rest.logits, whole[:, 4:], atol=1e-6)
    assert rest.past_key_values is first.past_key_values
    assert rest.past_key_values.get_seq_length() == 9


def test_reorder_cache_repeats_and_drops_rows(model: LstmForCausalLM, ids: torch.Tensor) -> None:
    index = torch.tensor([2, 2, 0])
    state = model(ids[:, :4]).past_key_values
    state.reorder_cache(index)
    continued = model(ids[index, 4:], past_key_values=state).logits
    assert state.hidden.shape == (2, 3, 7)
    assert torch.allclose(continued, model(ids).logits[index, 4:], atol=1e-6)


def test_right_padding_changes_neither_logits_nor_state(
    model: LstmForCausalLM, ids: torch.Tensor
) -> None:
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    padded = model(ids.masked_fill(mask == 0, 0), attention_mask=mask)
    alone = model(ids[1:2, :6])
    assert torch.allclose(padded.logits[1, :6], alone.logits[0], atol=1e-6)
    assert torch.allclose(padded.logits[0], model(ids).logits[0], atol=1e-6)
    state: LstmState = padded.past_key_values
    assert torch.allclose(state.cell[:, 1], alone.past_key_values.cell[:, 0], atol=1e-6)


def test_mask_may_cover_the_tokens_read_earlier(model: LstmForCausalLM, ids: torch.Tensor) -> None:
    mask = torch.ones_like(ids)
    mask[0, 8] = 0
    state = model(ids[:, :4]).past_key_values
    continued = model(ids[:, 4:], attention_mask=mask, past_key_values=state).logits
    assert torch.allclose(continued[0, :4], model(ids).logits[0, 4:8], atol=1e-6)


@pytest.mark.parametrize(
    ("masked", "message"),
    [
        ((2, 0), r"padded on the right only; set tokenizer\.padding_side"),
        ((3, slice(None)), "row 3 has no token at all; leave that row out"),
    ],
)
def test_padding_elsewhere_is_refused(
    model: LstmForCausalLM, ids: torch.Tensor, masked: tuple[int, Any], message: str
) -> None:
    mask = torch.ones_like(ids)
    mask[masked] = 0
    with pytest.raises(ModelError, match=message):
        model(ids, attention_mask=mask)


def test_logits_to_keep_takes_a_number_or_positions(
    model: LstmForCausalLM, ids: torch.Tensor
) -> None:
    whole = model(ids).logits
    places = torch.tensor([1, 5])
    assert torch.equal(model(ids, logits_to_keep=0).logits, whole)
    assert torch.allclose(model(ids, logits_to_keep=2).logits, whole[:, -2:], atol=1e-6)
    assert torch.allclose(model(ids, logits_to_keep=places).logits, whole[:, places], atol=1e-6)


def test_loss_is_the_shifted_mean_in_nats(model: LstmForCausalLM, ids: torch.Tensor) -> None:
    labels = ids.clone()
    labels[:, :3] = -100
    output = model(ids, labels=labels)
    logs = output.logits.log_softmax(-1)
    expected = -torch.stack([logs[b, t - 1, ids[b, t]] for b in range(4) for t in range(3, 9)])
    assert float(output.loss.detach()) == pytest.approx(float(expected.mean().detach()), abs=1e-6)


def test_state_is_kept_only_where_it_is_wanted(model: LstmForCausalLM, ids: torch.Tensor) -> None:
    assert model(ids, use_cache=False).past_key_values is None
    assert model.train()(ids).past_key_values is None
    assert isinstance(model(ids, return_dict=False), tuple)


def test_saving_as_safetensors_and_loading_is_bit_equal(
    model: LstmForCausalLM, ids: torch.Tensor, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, use_safetensors=True).eval()
    assert isinstance(loaded, LstmForCausalLM)
    assert AutoConfig.from_pretrained(tmp_path).embedding_size == 5
    assert (tmp_path / "model.safetensors").exists()
    assert torch.equal(loaded(ids).logits, model(ids).logits)


def both(layers: int = 2, dropout: float = 0.0) -> tuple[nn.LSTM, PrivateLstm]:
    torch.manual_seed(3)
    lstm = nn.LSTM(3, 5, num_layers=layers, batch_first=True, dropout=dropout).double()
    return lstm, PrivateLstm(lstm)


def read(tokens: int = 7) -> Tensor:
    made = torch.randn((4, tokens, 3), dtype=torch.float64)
    return made.requires_grad_()


def gradients(
    lstm: nn.Module, given: Tensor, arriving: Tensor, weights: list[Tensor]
) -> list[Tensor]:
    outputs, _ = lstm(given)
    return list(torch.autograd.grad(outputs, [given, *weights], arriving))


@pytest.mark.parametrize(("layers", "tokens"), [(1, 1), (1, 7), (2, 7), (3, 2)])
def test_it_is_the_lstm_of_torch_forward_and_back(layers: int, tokens: int) -> None:
    lstm, private = both(layers)
    given = read(tokens)
    outputs, state = private(given)
    assert state is None
    assert torch.allclose(outputs, lstm(given)[0], rtol=1e-12, atol=1e-14)
    weights: list[Tensor] = list(lstm.parameters())
    arriving = torch.randn_like(outputs)
    expected = gradients(lstm, given, arriving, weights)
    for found, wanted in zip(gradients(private, given, arriving, weights), expected, strict=True):
        assert torch.allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_units_are_dropped_between_layers_and_in_training_alone() -> None:
    lstm, private = both(dropout=0.5)
    given = read()
    assert not torch.equal(private(given)[0], private(given)[0])
    assert torch.allclose(private.eval()(given)[0], lstm.eval()(given)[0], rtol=1e-12, atol=1e-14)
    _, one = both(layers=1, dropout=0.0)
    one.dropout.p = 0.5
    assert torch.equal(one(given)[0], one(given)[0])
