"""A manifest that says something else than its plan is refused, on reading and when made."""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
from manifest_files import read, signed, today

from lmexposure.canaries import Canary, Format, Manifest, Plan, insert_into_texts
from lmexposure.canaries.drawing import draw
from lmexposure.canaries.manifest_checks import check_entries
from lmexposure.errors import ManifestError

PIN = Format(name="pin", template="My PIN is {digits:4}")
KEY = Format(name="key", template="KEY={hex:12}")
PLAN = Plan(
    formats=(PIN, KEY),
    canaries=6,
    repetitions=(1, 3),
    controls=2,
    seed=7,
    inclusion_probability=0.5,
    inclusion_seed=7,
)
TEXTS = [f"document {number}" for number in range(5)]
OTHER = {"canary": "held_out", "held_out": "canary"}


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return insert_into_texts(TEXTS, PLAN)[1]


def refused(manifest: Manifest, entries: Sequence[Canary], message: str) -> None:
    """Both when it is made and, with its hash put right, when it is read."""
    with pytest.raises(ManifestError, match=message) as failure:
        replace(manifest, entries=tuple(entries))
    assert "insert again" in str(failure.value)
    values = today(manifest)
    values["entries"] = [
        {**asdict(one), "index": str(one.index), "positions": list(one.positions)}
        for one in entries
    ]
    with pytest.raises(ManifestError, match=message) as failure:
        read(signed(values))
    assert "insert again" in str(failure.value)


def changed(manifest: Manifest, name: str, **values: Any) -> list[Canary]:
    return [replace(one, **values) if one.id == name else one for one in manifest.entries]


def test_every_role_is_what_its_coin_says(manifest: Manifest) -> None:
    for one in manifest.entries:
        if one.role == "control":
            continue
        turned = changed(manifest, one.id, role=OTHER[one.role])
        message = f"{one.id} has role '{OTHER[one.role]}', but by the plan and its coins it is"
        refused(manifest, turned, message)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("pin/x1/0000", "control"),
        ("pin/control/0000", "canary"),
        ("pin/control/0001", "held_out"),
    ],
)
def test_other_roles(manifest: Manifest, name: str, role: str) -> None:
    refused(manifest, changed(manifest, name, role=role), f"{name} has role '{role}', but")


def test_with_fixed_coins_nobody_is_excluded() -> None:
    fixed = insert_into_texts(
        TEXTS, replace(PLAN, inclusion_probability=None, inclusion_seed=None)
    )[1]
    turned = changed(fixed, "pin/x1/0003", role="held_out")
    refused(fixed, turned, "pin/x1/0003 has role 'held_out', but .* it is 'canary'; take the man")


def test_nobody_is_missing_twice_or_unplanned(manifest: Manifest) -> None:
    all_of_them = list(manifest.entries)
    refused(manifest, all_of_them[1:], "pin/x1/0000 is missing from the manifest .1 in all.")
    kept = [one for one in all_of_them if one.role != "held_out"]
    refused(manifest, kept, r"is missing from the manifest \(\d+ in all\); to drop some")
    refused(manifest, [*all_of_them, all_of_them[0]], "pin/x1/0000 stands in the manifest twice")
    for name in ("pin/x1/0006", "pin/x9/0000", "pin/control/0002", "mine"):
        strange = [*all_of_them, replace(all_of_them[0], id=name)]
        number = len(all_of_them)
        refused(manifest, strange, rf"entries\[{number}\].id is of no entry of the manifest's own")


def test_what_the_plan_leaves_out_is_not_missed_and_may_not_stand() -> None:
    fewer = insert_into_texts(TEXTS, PLAN.without("pin/x1/0002"))[1]
    assert "pin/x1/0002" not in [one.id for one in fewer.entries]
    assert read(signed(today(fewer))) == fewer
    all_of_them = insert_into_texts(TEXTS, PLAN)[1].entries
    refused(fewer, all_of_them, r"entries\[2\].id is of no entry of the manifest's own plan")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pin/x3/0000", {"repetitions": 2}),
        ("pin/x3/0000", {"repetitions": 0}),
        ("pin/control/0000", {"repetitions": 1}),
    ],
)
def test_repetitions_are_those_of_the_class(
    manifest: Manifest, name: str, values: dict[str, Any]
) -> None:
    message = f"{name} has format 'pin' and repetitions={values['repetitions']}, but the plan says"
    refused(manifest, changed(manifest, name, **values), message)


def test_a_format_is_that_of_the_id(manifest: Manifest) -> None:
    turned = changed(manifest, "pin/x1/0000", format="My PIN is 6591")
    refused(manifest, turned, "0000 has format <not the plan's> and repetitions=1, but the plan")
    turned = changed(manifest, "pin/x1/0000", format="key")
    refused(manifest, turned, "0000 has format .* and repetitions=1, but the plan says")


@pytest.mark.parametrize("positions", [(), (1, 2), (1, 2, 2), (3, 2, 1), (2, 3, 5), (0, 1, 2, 3)])
def test_positions_are_places_in_the_corpus(manifest: Manifest, positions: tuple[int, ...]) -> None:
    turned = changed(manifest, "pin/x3/0000", positions=positions)
    refused(manifest, turned, "pin/x3/0000 must have 3 different positions, ascending, from 0 to 4")


def test_a_control_stands_nowhere(manifest: Manifest) -> None:
    turned = changed(manifest, "key/control/0001", positions=(1,))
    refused(manifest, turned, "key/control/0001 must have 0 different positions")


def test_no_two_hold_one_secret(manifest: Manifest) -> None:
    first = manifest.entries[0]
    turned = changed(manifest, "pin/x3/0001", index=first.index, text=first.text)
    refused(manifest, turned, "pin/x1/0000 and pin/x3/0001 hold the same secret")


def test_no_message_shows_a_secret(manifest: Manifest) -> None:
    first = manifest.entries[0]
    for values in ({"role": "x"}, {"repetitions": 9}, {"positions": ()}):
        with pytest.raises(ManifestError) as failure:
            replace(manifest, entries=tuple(changed(manifest, first.id, **values)))
        assert first.text not in str(failure.value)
        assert f"{first.index:04d}" not in str(failure.value).replace("0000", "")


def test_many_candidates_are_checked_in_no_time() -> None:
    plan = Plan(
        formats=(KEY,),
        canaries=20_000,
        repetitions=(1,),
        controls=0,
        seed=0,
        inclusion_probability=0.5,
        inclusion_seed=0,
    )
    canaries = draw(plan, documents=10, set_aside={})
    began = time.process_time()
    check_entries(plan, canaries, documents=10)
    assert time.process_time() - began < 2
