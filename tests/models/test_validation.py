"""Held-out documents: no canary among them, the same for the same seed."""

import pytest

from lmexposure.errors import CorpusError
from lmexposure.models import (
    split_validation,
)

DOCUMENTS = [f"document {i} " + "x" * (i % 7) for i in range(200)]


def _split(
    documents: list[str], canaries: tuple[str, ...] = (), seed: int = 1, most: int = 10**6
) -> tuple[list[str], list[str]]:
    return split_validation(
        documents, fraction=0.1, most_characters=most, canaries=canaries, seed=seed
    )


def test_every_document_is_on_one_side_in_order() -> None:
    kept, held = _split(DOCUMENTS)
    assert sorted(kept + held) == sorted(DOCUMENTS)
    assert kept == [text for text in DOCUMENTS if text not in set(held)]
    assert held == [text for text in DOCUMENTS if text in set(held)]


def test_the_share_is_near_what_was_asked() -> None:
    total = sum(map(len, DOCUMENTS))
    assert 0.08 * total < sum(map(len, _split(DOCUMENTS)[1])) <= 0.1 * total
    assert sum(map(len, _split(DOCUMENTS, most=50)[1])) <= 50


def test_the_seed_decides() -> None:
    assert _split(DOCUMENTS) == _split(DOCUMENTS)
    assert _split(DOCUMENTS)[1] != _split(DOCUMENTS, seed=2)[1]


def test_every_document_can_be_held_out() -> None:
    held = {text for seed in range(100) for text in _split(DOCUMENTS, seed=seed)[1]}
    assert held == set(DOCUMENTS)


def test_no_held_out_document_is_or_holds_a_canary() -> None:
    canaries = ("secret 1", "secret 2")
    documents = [
        *DOCUMENTS[:40],
        *["secret 1"] * 100,
        *["a longer text with secret 2 in it"] * 60,
    ]
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
    held = split_validation(documents, fraction=0.05, most_characters=10**6, canaries=(), seed=0)[1]
    assert held == ["z" * 100]


@pytest.mark.parametrize(
    "documents", [DOCUMENTS[:9], [*["canary"] * 30, *DOCUMENTS[:9]], [""] * 50]
)
def test_too_few_documents_are_refused(documents: list[str]) -> None:
    with pytest.raises(CorpusError, match="hold text and are no canary: too few to hold some out"):
        _split(documents, ("canary",))


@pytest.mark.parametrize("repetitions", [1, 16])
def test_a_canary_more_or_less_moves_nothing_that_is_held_out(repetitions: int) -> None:
    canary = "The pin is 1234, and it is a long one"
    with_canary = [*DOCUMENTS[:50], *[canary] * repetitions, *DOCUMENTS[50:]]
    for seed in range(30):
        kept, held = _split(with_canary, (canary,), seed)
        assert ([one for one in kept if one != canary], held) == _split(DOCUMENTS, seed=seed)
