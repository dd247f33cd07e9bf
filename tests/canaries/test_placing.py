import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries import Format, Plan, insert_into_texts
from lmexposure.canaries.placing import Placement, manifest_without_corpus
from lmexposure.errors import PlanError

FORMAT = Format(name="code", template="My code is {digits:6}.")


def plan(seed: int = 3, **more: object) -> Plan:
    settings = {"canaries": 3, "repetitions": (1, 4), "controls": 2, **more}
    return Plan(formats=(FORMAT,), seed=seed, **settings)  # type: ignore[arg-type]


@given(st.integers(0, 40), st.integers(4, 60), st.lists(st.integers(0, 60), max_size=6))
def test_parts_together_are_the_whole(seed: int, documents: int, cuts: list[int]) -> None:
    texts = [f"document {i}" for i in range(documents)]
    whole, manifest = insert_into_texts(texts, plan(seed))
    placement = Placement(manifest.entries)
    edges = [0, *sorted(min(cut, documents) for cut in cuts), documents]
    parts = []
    for start, stop in itertools.pairwise(edges):
        for number in range(start, stop):
            parts += [c.text for c in placement.before(number)] + [texts[number]]
        counted = [c.id for number in range(start, stop) for c in placement.before(number)]
        assert [c.id for _, c in placement.within(start, stop)] == counted
    assert parts == whole


def test_the_manifest_knows_the_same_without_the_corpus() -> None:
    _, read = insert_into_texts([f"document {i}" for i in range(30)], plan())
    unread = manifest_without_corpus(plan(), documents=30, layout="texts")
    assert unread.entries == read.entries
    assert (unread.corpus.sha256, unread.corpus.documents) == ("", 30)


def test_excluded_candidates_and_controls_stand_nowhere() -> None:
    tossed = plan(inclusion_probability=0.5, inclusion_seed=11, canaries=8)
    manifest = manifest_without_corpus(tossed, documents=50, layout="texts")
    standing = [c for _, c in Placement(manifest.entries).within(0, 50)]
    assert {c.role for c in manifest.entries} == {"canary", "held_out", "control"}
    assert {c.role for c in standing} == {"canary"}
    assert len(standing) == sum(c.inserted for c in manifest.entries)


def test_too_few_documents() -> None:
    with pytest.raises(PlanError, match="repetitions=4 need as many documents"):
        manifest_without_corpus(plan(), documents=3, layout="texts")
