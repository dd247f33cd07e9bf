"""Blocks hold every token in order and canaries whole, as counted; none is held out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.errors import CorpusError, ModelError
from lmexposure.models import (
    IGNORED,
    LstmConfig,
    LstmForCausalLM,
    Packed,
    TrainingSettings,
    byte_level_tokenizer,
    character_tokenizer,
    pack,
)
from lmexposure.models.packing import (
    Blocks,
    check_deliveries,
    count_deliveries,
    epoch_steps,
    micro_batches,
    split_validation,
    steps_per_epoch,
)

TOKENIZER = character_tokenizer(["\nabcdefgh0123456789"])


def _text(packed: Packed) -> list[str]:
    """Each block's text, padding left out."""
    return [
        TOKENIZER.decode(row[:length].tolist())
        for row, length in zip(packed.ids, packed.lengths, strict=True)
    ]


def test_records_begin_with_the_end_of_text_token() -> None:
    packed = pack(TOKENIZER, ["ab", "c"], separator=None, block_size=8)
    end = TOKENIZER.eos_token_id
    assert packed.ids[0, :5].tolist() == [
        end,
        *TOKENIZER.encode("ab"),
        end,
        TOKENIZER.encode("c")[0],
    ]
    assert packed.openers == {end}


def test_labels_are_the_next_tokens_and_nothing_at_padding() -> None:
    packed = pack(TOKENIZER, ["abc", "d"], separator="\n", block_size=4)
    expected = packed.ids[:, 1:].tolist()
    expected[1][1:] = [IGNORED, IGNORED]
    assert packed.labels.tolist() == expected


def _naive(documents: list[str], atomic: set[str], block_size: int) -> list[str]:
    """Packing by hand, one character at a time."""
    blocks = [""]
    for document in documents:
        text = "\n" + document
        if document in atomic and len(blocks[-1]) + len(text) > block_size:
            blocks.append("")
        for character in text:
            if len(blocks[-1]) == block_size:
                blocks.append("")
            blocks[-1] += character
    return blocks


@given(
    st.lists(st.sampled_from(["", "a", "bcd", "efghabcdefgh", "01", "23456", "789"]), min_size=1),
    st.integers(min_value=6, max_value=17),
)
def test_packing_equals_packing_by_hand(documents: list[str], block_size: int) -> None:
    atomic = {"01", "23456", "789"}
    packed = pack(TOKENIZER, documents, separator="\n", block_size=block_size, atomic=atomic)
    assert _text(packed) == _naive(documents, atomic, block_size)
    assert packed.lengths.sum() == sum(1 + len(text) for text in documents)


def test_many_documents_are_encoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [f"{i}" for i in range(100)]
    whole = pack(TOKENIZER, documents, separator="\n", block_size=16)
    monkeypatch.setattr("lmexposure.models.packing._DOCUMENTS_AT_ONCE", 7)
    parts = pack(TOKENIZER, documents, separator="\n", block_size=16)
    assert np.array_equal(whole.ids, parts.ids)


def test_unknown_characters_of_ordinary_documents_are_no_reason_to_stop() -> None:
    packed = pack(TOKENIZER, ["aZb"], separator="\n", block_size=4)
    assert packed.ids[0, 2] == TOKENIZER.unk_token_id


def test_what_cannot_be_packed_is_refused() -> None:
    for documents, atomic, error, message in (
        (["a"], ["01234", "0"], ModelError, r"canary 1 of 2 has 6 tokens .* block_size=5; it must"),
        (["a"], ["0Z"], ModelError, "the tokenizer has no token for character 1 of 2"),
        ([], [], CorpusError, "the documents have no tokens at all; give a corpus"),
    ):
        with pytest.raises(error, match=message):
            pack(TOKENIZER, documents, separator="\n", block_size=5, atomic=atomic)


def test_an_empty_record_without_any_start_token_takes_no_room() -> None:
    bare = byte_level_tokenizer(["ab"])
    bare.eos_token = None
    packed = pack(bare, ["", "ab", "", "cd"], separator=None, block_size=8, atomic=["cd"])
    assert bare.decode(packed.ids[0, : packed.lengths[0]].tolist()) == "abcd"


DOCUMENTS = [f"document {i} " + "x" * (i % 7) for i in range(200)]


def _split(
    documents: list[str], canaries: tuple[str, ...] = (), seed: int = 1, most: int = 10**6
) -> tuple[list[str], list[str]]:
    chosen = TrainingSettings(validation_fraction=0.1, validation_characters=most, seed=seed)
    return split_validation(documents, canaries, chosen)


def test_every_document_is_on_one_side_in_order() -> None:
    kept, held = _split(DOCUMENTS)
    assert sorted(kept + held) == sorted(DOCUMENTS)
    assert kept == [text for text in DOCUMENTS if text not in set(held)]
    assert held == [text for text in DOCUMENTS if text in set(held)]
    assert held != _split(DOCUMENTS, seed=2)[1]


def test_the_share_is_near_what_was_asked() -> None:
    total = sum(map(len, DOCUMENTS))
    assert 0.08 * total < sum(map(len, _split(DOCUMENTS)[1])) <= 0.1 * total
    assert sum(map(len, _split(DOCUMENTS, most=50)[1])) <= 50


def test_no_held_out_document_is_or_holds_a_canary() -> None:
    canaries = ("secret 1", "secret 2")
    documents = [*DOCUMENTS[:40], *["secret 1"] * 100, *["a longer text with secret 2 in it"] * 60]
    for seed in range(20):
        kept, held = _split(documents, canaries, seed)
        assert held
        assert not any(canary in text for canary in canaries for text in held)
        assert kept.count("secret 1") == 100
        assert kept.count(documents[-1]) == 60


def test_one_huge_document_is_not_held_out() -> None:
    documents = ["y" * 5000, *DOCUMENTS[:20]]
    assert all("y" not in _split(documents, seed=seed)[1][0] for seed in range(20))


def test_documents_longer_than_the_share_give_the_shortest() -> None:
    documents = ["z" * (100 + i) for i in range(10)]
    chosen = TrainingSettings(validation_fraction=0.05, validation_characters=10**6, seed=0)
    held = split_validation(documents, (), chosen)[1]
    assert held == ["z" * 100]


@pytest.mark.parametrize(
    "documents", [DOCUMENTS[:9], [*["canary"] * 30, *DOCUMENTS[:9]], [""] * 50]
)
def test_too_few_documents_are_refused(documents: list[str]) -> None:
    with pytest.raises(CorpusError, match="hold text and are no canary: too few to hold some out"):
        _split(documents, ("canary",))


def test_a_canary_more_or_less_moves_nothing_that_is_held_out() -> None:
    canary = "The pin is 1234, and it is a long one"
    with_canary = [*DOCUMENTS[:50], *[canary] * 16, *DOCUMENTS[50:]]
    for seed in range(30):
        kept, held = _split(with_canary, (canary,), seed)
        assert ([one for one in kept if one != canary], held) == _split(DOCUMENTS, seed=seed)


DELIVERED_TOKENIZER = character_tokenizer(["\nabc 0123456789"])


def _documents(seed: int) -> tuple[list[str], dict[str, int]]:
    generator = np.random.Generator(np.random.PCG64(seed))
    canaries = {f"ab {i:03d}": int(generator.integers(0, 5)) for i in range(20)}
    documents = ["c" * int(n) for n in generator.integers(0, 9, size=60)]
    documents += [text for text, count in canaries.items() for _ in range(count)]
    generator.shuffle(documents)
    return documents, canaries


@pytest.mark.parametrize("separator", ["\n", "\n\n", None])
@pytest.mark.parametrize("block_size", [9, 16, 64])
def test_packing_delivers_each_canary_as_planned(separator: str | None, block_size: int) -> None:
    documents, canaries = _documents(block_size)
    packed = pack(
        DELIVERED_TOKENIZER, documents, separator=separator, block_size=block_size, atomic=canaries
    )
    assert count_deliveries(DELIVERED_TOKENIZER, packed, canaries, separator=separator) == canaries
    check_deliveries(DELIVERED_TOKENIZER, packed, canaries, separator=separator)


@pytest.mark.parametrize(
    ("documents", "block_size", "cut", "count"),
    [
        (["cc", "ab 012"], 8, 0, 0),  # in two blocks
        (["ab 0123", "cab 012", "ab 012"], 64, 0, 1),  # amid other text
        (["ab 012"], 64, 1, 0),  # its last token is padding
        (["ab 012"], 4, 0, 0),  # longer than the blocks
    ],
)
def test_only_whole_canaries_are_counted(
    documents: list[str], block_size: int, cut: int, count: int
) -> None:
    packed = pack(DELIVERED_TOKENIZER, documents, separator="\n", block_size=block_size)
    packed = replace(packed, lengths=packed.lengths - cut)
    found = count_deliveries(DELIVERED_TOKENIZER, packed, {"ab 012": 1}, separator="\n")
    assert found == {"ab 012": count}


def test_equal_hashes_of_other_tokens_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lmexposure.models.packing._window_hashes",
        lambda ids, length: np.zeros((len(ids), ids.shape[1] - length + 1), np.uint64),
    )
    documents, canaries = _documents(9)
    packed = pack(DELIVERED_TOKENIZER, documents, separator="\n", block_size=16, atomic=canaries)
    assert count_deliveries(DELIVERED_TOKENIZER, packed, canaries, separator="\n") == canaries


def test_wrong_numbers_are_refused_without_showing_the_canary() -> None:
    packed = pack(DELIVERED_TOKENIZER, ["ab 012", "ab 345"], separator="\n", block_size=16)
    with pytest.raises(
        ModelError, match=r"1 of 2 canaries .* canary 1 .* 1 times instead of 2;"
    ) as e:
        check_deliveries(DELIVERED_TOKENIZER, packed, {"ab 012": 1, "ab 345": 2}, separator="\n")
    assert "345" not in str(e.value)


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


ALPHABET = character_tokenizer(["\nabcdef"])
CPU = torch.device("cpu")


@pytest.fixture
def packed() -> Packed:
    return pack(ALPHABET, ["abc", "defab", "fed"], separator="\n", block_size=6)


@pytest.fixture
def model() -> LstmForCausalLM:
    torch.manual_seed(0)
    made = LstmForCausalLM(LstmConfig(vocab_size=len(ALPHABET), hidden_size=8, embedding_size=8))
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
    assert blocks.tokens(numbers) == packed.lengths.sum() - len(blocks)


def test_no_blocks_give_no_loss_and_no_gradient(packed: Packed, model: LstmForCausalLM) -> None:
    loss = Blocks(packed, device=CPU, precision="float32").nats(model, np.array([], dtype=np.int64))
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == 0.0
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())
