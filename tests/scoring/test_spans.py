"""Texts shared by several processes."""

import json

import numpy as np
import pytest
from forks import together
from hypothesis import given
from hypothesis import strategies as st
from scoring import score_in_processes
from scoring.families import family
from scoring.score_in_processes import texts

from lmexposure.scoring import score_encoded
from lmexposure.scoring.spans import share_spans, spans


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 8))
def test_spans_cover_every_place_once_at_about_the_same_cost(costs: list[int], parts: int) -> None:
    found = spans(np.array(costs), parts)
    assert len(found) == parts
    assert [place for span in found for place in span] == list(range(len(costs)))
    share = (sum(costs) + len(costs)) / parts
    for span in found:
        assert sum(costs[place] + 1 for place in span) <= share + 51


def test_one_process_does_everything() -> None:
    assert share_spans(np.ones(5, dtype=np.int64), list) == [0, 1, 2, 3, 4]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    out = tmp_path_factory.mktemp("processes")
    together(2, score_in_processes.main, out, said=out / "said.txt")
    return [json.loads((out / f"process-{i}.json").read_text()) for i in (0, 1)]


def test_two_processes_share_the_texts_and_both_get_the_bits_of_one(
    said: list[dict[str, object]],
) -> None:
    assert [one["processes"] for one in said] == [2, 2]
    assert said[0]["totals"] == said[1]["totals"]
    counts = [int(str(one["scored"])) for one in said]
    assert sum(counts) == len(texts())
    assert min(counts) > 0.3 * len(texts())
    found = [float.fromhex(bits) for bits in said[0]["totals"]]  # type: ignore[attr-defined]
    np.testing.assert_allclose(found, score_encoded(family("gpt2"), texts()).totals, atol=1e-3)


def test_what_one_process_meets_is_raised_in_both(said: list[dict[str, object]]) -> None:
    assert said[0]["failure"] == said[1]["failure"]
    assert "log-probabilities for text 200 of 201" in str(said[0]["failure"])
