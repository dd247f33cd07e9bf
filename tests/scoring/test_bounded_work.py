"""What ties and large vocabularies may cost: never more than a stated bound, and said where hit."""

import os

import numpy as np
import pytest
from faulty_steps import Interrupted
from scoring.test_likeliest_fills import search
from slow_search import Small, listed, naive_places, steps_of
from tiny import byte_level_bpe

from lmexposure.canaries import Format
from lmexposure.scoring import (
    BranchAndBound,
    Budget,
    Leaves,
    RankSearch,
    Rescorer,
    branch_and_bound,
    exact_search,
)


@pytest.mark.parametrize("most", [0, 7])
def test_what_is_not_scored_again_stays_open(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, space, bits = listed("thousand")
    steps = steps_of(model, space)
    monkeypatch.setattr(exact_search, "_MARGIN_BITS", 0.5)  # so that many are near
    monkeypatch.setattr(exact_search, "_MOST_NEAR", most)
    monkeypatch.setattr(exact_search, "_FEWEST_NEAR", most)
    indices = [3, 500, 999]
    places = naive_places(bits)[indices]
    found = RankSearch(space, steps, model).ranks(indices, budget=Budget())
    assert all(a.place_low <= p <= a.place_high for a, p in zip(found, places, strict=True))
    assert not all(one.exact for one in found)


def test_too_many_alike_are_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, space, bits = listed("thousand")
    monkeypatch.setattr(exact_search, "_MOST_ALIKE", 2)
    found = search(model, space, 20, margin=0.4)
    order = np.argsort(bits, kind="stable").tolist()
    assert found.proven < 20
    assert list(found.indices[: found.proven]) == order[: found.proven]


def test_ctrl_c_in_best_first_keeps_what_is_proven() -> None:
    model, _, space, bits = listed("thousand")
    found = search(model, space, 20, steps=Interrupted(steps_of(model, space), after=2))
    order = np.argsort(bits, kind="stable").tolist()
    assert found.interrupted
    assert list(found.indices[: found.proven]) == order[: found.proven]


def test_a_batch_has_no_more_children_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"{a}{b}" for a in range(10, 70) for b in "PIN"]
    form = Format(name="w", template="PIN is {choice:w}{digits:1}", lists={"w": words})
    model, _, space = Small("gpt2", byte_level_bpe, form).made()
    steps = steps_of(model, space)
    seen: list[int] = []
    children_of = branch_and_bound.children_of

    def watched(*given: object) -> object:
        found = children_of(*given)  # type: ignore[arg-type]
        seen.append(len(found))
        return found

    monkeypatch.setattr(branch_and_bound, "children_of", watched)
    monkeypatch.setattr(branch_and_bound, "_MOST_CHILDREN", 25)
    costs: list[float] = []

    def visit(leaves: Leaves) -> None:
        costs.extend(leaves.costs.tolist())

    assert BranchAndBound(space, steps, limit=1e9, visit=visit, budget=Budget()).run()
    assert len(costs) == form.size
    most = max(len(space.continuations(s).tokens) for s in range(3))
    assert max(seen[1:]) <= max(25, most)


def test_a_copy_that_fits_nowhere_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, space, _ = listed("thousand")
    paths = [space.path(0), space.path(1)]
    expected = Rescorer(model, space).bits(paths)
    monkeypatch.setattr(os, "sysconf", lambda name: 1)
    rescorer = Rescorer(model, space)
    np.testing.assert_allclose(rescorer.bits(paths), expected, rtol=0, atol=1e-4)
    assert rescorer.failure == "it takes 0.0 GiB, and 0.0 GiB of memory are free"
    assert (exact_search.TIE_BITS, rescorer.tie_bits) == (1e-6, 2e-5)
