"""Witnesses: how many, drawn for their plan alone, inserted, counted, removed, and never judged."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from manifest_files import read, signed, today

import lmexposure as lx
from lmexposure.canaries import WITNESS, Format, Manifest, Plan, witness_copies
from lmexposure.canaries.plan import draw
from lmexposure.errors import ManifestError, PlanError
from lmexposure.studies import SweepSettings

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=0)
TEXTS = [f"document {number}" for number in range(200)]


@pytest.mark.parametrize(
    ("documents", "expected"),
    [(0, (0, 0)), (39, (0, 0)), (40, (1, 5)), (191, (1, 23)), (192, (2, 12)), (10**9, (2, 48))],
)
def test_how_many_and_how_often(documents: int, expected: tuple[int, int]) -> None:
    assert witness_copies(documents) == expected


def secrets_of(plan: Plan) -> list[str]:
    drawn = draw(plan, documents=200, set_aside={})
    return [entry.text for entry in drawn if entry.role == "witness"]


CHANGES: list[Callable[[Plan], Plan]] = [
    lambda plan: replace(plan, seed=1),
    lambda plan: replace(plan, canaries=4),
    lambda plan: replace(plan, repetitions=(1, 3)),
    lambda plan: replace(plan, formats=(Format(name="key", template="KEY={hex:8}"),)),
    lambda plan: replace(plan, inclusion_probability=0.5, inclusion_seed=1),
]


@pytest.mark.parametrize("change", CHANGES)
def test_another_plan_has_others_though_its_seed_is_the_same(
    change: Callable[[Plan], Plan],
) -> None:
    own = secrets_of(PLAN)
    assert len(own) == len(set(own)) == 2
    assert own == secrets_of(PLAN)
    assert not set(own) & set(secrets_of(change(PLAN)))


def test_leaving_a_canary_out_moves_none() -> None:
    assert secrets_of(PLAN.without("pin/x1/0000")) == secrets_of(PLAN)


def test_they_go_in_are_counted_and_come_out() -> None:
    texts, manifest = lx.insert(TEXTS, PLAN)
    assert [entry.inserted for entry in manifest.witnesses] == [12, 12]
    for entry in manifest.witnesses:
        assert texts.count(entry.text) == 12
        assert entry not in manifest.canaries
    assert list(manifest.formats) == ["pin"]
    assert lx.verify(texts, manifest).as_inserted
    gone = manifest.witnesses[0]
    fewer = [text for text in texts if text != gone.text]
    assert lx.verify(fewer, manifest).changed == {gone.id: (12, 0)}
    assert lx.remove(texts, manifest) == TEXTS


def test_a_corpus_with_witnesses_takes_a_second_insertion() -> None:
    once, first = lx.insert(TEXTS, PLAN)
    other = replace(PLAN, formats=(Format(name="key", template="KEY={hex:8}"),))
    twice, second = lx.insert(once, other)
    assert set(second.set_aside) == {"witness"}
    assert not {w.index for w in second.witnesses} & {w.index for w in first.witnesses}
    assert lx.verify(twice, second).as_inserted
    assert lx.remove(lx.remove(twice, second), first) == TEXTS


def test_names_and_fills_that_would_be_taken_for_one() -> None:
    for form in (
        Format(name="witness", template="w {hex:8}"),
        Format(name="d", template="mark {printable:1}"),
    ):
        with pytest.raises(PlanError, match=r"leave the witness out \(witness=False\)"):
            lx.insert(TEXTS, Plan(formats=[form], canaries=1, repetitions=(1,), controls=1, seed=0))
        plan = Plan(formats=[form], canaries=1, repetitions=(1,), controls=1, seed=0, witness=False)
        assert lx.insert(TEXTS, plan)[1].witnesses == ()


def test_a_manifest_keeps_them_and_refuses_others(tmp_path: Path) -> None:
    manifest = lx.insert(TEXTS, PLAN)[1]
    manifest.write(tmp_path / "manifest.json")
    again = Manifest.read(tmp_path / "manifest.json")
    assert (again, again.sha256) == (manifest, manifest.sha256)
    values: dict[str, Any] = json.loads(json.dumps(today(manifest)))
    dropped = {**values, "entries": values["entries"][:-1]}
    with pytest.raises(ManifestError, match="witness/0001 is missing from the manifest"):
        read(signed(dropped))
    values["entries"][-1]["positions"][0] = 10**6
    with pytest.raises(ManifestError, match="witness/0001 must have 12 different positions"):
        read(signed(values))


def test_references_are_none_of_them() -> None:
    manifest = lx.insert(TEXTS, PLAN)[1]
    drawn = manifest.references(WITNESS.name, 300)
    assert len(set(drawn)) == 300
    assert not set(drawn) & {entry.index for entry in manifest.witnesses}


def test_a_sweep_has_none() -> None:
    assert SweepSettings().run.witness is False
