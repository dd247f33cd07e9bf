"""The manifest, written, read, and refused; also one that says something else than its plan."""

import json
import os
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from manifest_files import FIXED, SHORT_KEY, TOSSED, read, signed, today
from pydantic import ValidationError

from lmexposure import insert
from lmexposure._files import content_hash
from lmexposure._record import Record
from lmexposure.canaries import Canary, Format, Manifest, Plan, Wrapping, WrappingRecord
from lmexposure.canaries.manifest import ManifestFile, check_entries
from lmexposure.canaries.plan import draw
from lmexposure.errors import FileError, ManifestError, PlanError

PIN = Format(name="pin", template="PIN {digits:2}")
NAME = Format(name="name", template="I am {choice:c}{hex:30}", lists={"c": ["Al", "Bo"]})
PLAN = Plan(
    formats=(PIN, NAME),
    canaries=2,
    repetitions=(1, 3),
    controls=2,
    seed=2**62,
    inclusion_probability=0.5,
    inclusion_seed=2**62 + 1,
    witness=False,
)


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    texts = [f"document {number}" for number in range(6)]
    return insert([*texts, "PIN 77"], PLAN, existing="set_aside")[1]


def test_round_trip(manifest: Manifest, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "manifest.json"
    manifest.write(path)
    again = Manifest.read(path)
    assert again == manifest
    values = json.loads(path.read_bytes())
    assert values.pop("content_sha256") == content_hash(values) == again.sha256 == manifest.sha256
    assert again.references("pin") == manifest.references("pin")
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_large_numbers_are_decimal_strings(manifest: Manifest) -> None:
    values = today(manifest)
    assert values["schema"] == "lmexposure.manifest/5"
    assert values["plan"]["seed"] == str(2**62)
    assert values["plan"]["inclusion_seed"] == str(2**62 + 1)
    assert values["set_aside"] == {"pin": ["77"]}
    last = manifest.entries[-1].index
    assert last > 2**53
    assert values["entries"][-1]["index"] == str(last)
    assert values["plan"]["formats"][1]["lists"] == {"c": ["Al", "Bo"]}


def test_each_entry_is_in_the_view_of_its_role(manifest: Manifest) -> None:
    views = {"canary": manifest.canaries, "held_out": manifest.held_out}
    views["control"] = manifest.controls
    for role, members in views.items():
        assert members
        assert members == tuple(one for one in manifest.entries if one.role == role)
    assert sum(map(len, views.values())) == len(manifest.entries)


def test_references_are_disjoint_and_the_first_of_more(manifest: Manifest) -> None:
    drawn = {entry.index for entry in manifest.entries if entry.format == "pin"}
    everything = manifest.references("pin")
    assert manifest.references_left("pin") == len(everything) == 100 - 6 - 1
    assert not drawn & set(everything)
    assert drawn | set(everything) | {77} == set(range(100))
    assert manifest.references("pin", 10) == everything[:10]
    assert len(manifest.references("name")) == 10_000
    assert manifest.references("pin", 0) == []


def test_refused_references(manifest: Manifest) -> None:
    assert len(manifest.references("pin", 93, strict=True)) == 93
    with pytest.raises(PlanError, match=r"'pin' has 93 secrets left .* ask for at most 93"):
        manifest.references("pin", 94, strict=True)
    with pytest.raises(PlanError, match="n=-1 must be a whole number at least 0"):
        manifest.references("pin", -1)
    with pytest.raises(ManifestError, match="no format 'ssn'; it has pin, name"):
        manifest.references("ssn")


def test_leaving_a_canary_out_makes_it_no_reference(manifest: Manifest) -> None:
    gone = manifest.entries[0]
    texts = [f"document {number}" for number in range(7)]
    _, fewer = insert(texts, PLAN.without(gone.id))
    assert gone.index not in fewer.references("pin")
    assert gone.id not in [entry.id for entry in fewer.entries]


def test_edited_by_hand(manifest: Manifest) -> None:
    values = json.loads(signed(today(manifest)))
    for value in (9, float("nan")):
        values["entries"][0]["repetitions"] = value
        with pytest.raises(ManifestError, match="does not fit its content_sha256: it was edited"):
            read(json.dumps(values).encode())


def test_without_its_hash(manifest: Manifest) -> None:
    with pytest.raises(ManifestError, match="does not fit its content_sha256"):
        read(json.dumps(today(manifest)).encode())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schema": "lmexposure.result/1"}, "schema 'lmexposure.result/1'; expected 'lmexposure.m"),
        ({}, "schema None; expected 'lmexposure.manifest/5': give a manifest.json that"),
        ([1], "schema None; expected"),
    ],
)
def test_other_schemas(values: Any, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        read(json.dumps(values).encode())


def entry(number: int, **changes: Any) -> dict[str, Any]:
    return {"entries": {number: changes}}


# What is changed, and the message; each with its hash put right.
DAMAGES: dict[str, tuple[dict[str, Any], str]] = {
    "an index that a float cannot hold": (entry(6, index=2**60), r"entries\[6\].index: Input shou"),
    "a negative index": (entry(0, index="-1"), r"entries\[0\].index: Input should be a decimal st"),
    "an index in other digits": (entry(0, index="١٢"), r"entries\[0\].index: Input should be a de"),
    "a long index": (entry(0, index="1" * 5000), r"entries\[0\].index: Input should be a decimal"),
    "an index beyond the format": (entry(0, index="4711"), "text of pin/x1/0000 is not the fill"),
    "another text": (entry(0, text="PIN xx"), "the text of pin/x1/0000 is not the fill of its ind"),
    "another role": (entry(0, role="excluded"), r"entries\[0\].role: Input should be 'canary', 'h"),
    "a number for a text": (entry(0, text=5), r"entries\[0\].text: Input should be a valid string"),
    "a truth for a number": (entry(0, repetitions=True), r"entries\[0\].repetitions: Input should"),
    "a part of a position": (entry(0, positions=[0.5]), r"entries\[0\].positions\[0\]: Input shou"),
    "a negative position": (entry(0, positions=[-1]), r"entries\[0\].positions\[0\]: Input should"),
    "an unknown format": (
        entry(0, format="ssn"),
        "pin/x1/0000 has format <not the plan's> and repetitions=1,",
    ),
    "something extra": (entry(0, extra=1), r"entries\[0\]: Extra inputs are not permitted"),
    "a number for the seed": ({"plan": {"seed": 5}}, "plan.seed: Input should be a decimal str"),
    "a large seed": ({"plan": {"seed": str(2**63)}}, "plan.seed: Input should be less than or eq"),
    "a large seed of the coins": (
        {"plan": {"inclusion_seed": str(2**63)}},
        "plan.inclusion_seed: Input should be less than or equal to 9223372036854775807",
    ),
    "no seed of the coins": (
        {"plan": {"inclusion_seed": None}},
        "the manifest is not sound: inclusion_probability=0.5 needs an inclusion_seed.*insert aga",
    ),
    "another probability": ({"plan": {"inclusion_probability": 1.5}}, "plan.inclusion_probability"),
    "no canaries": ({"plan": {"canaries": 0}}, "is not sound: canaries=0 must be a whole number"),
    "a negative number": ({"plan": {"controls": -1}}, "plan.controls: Input should be greater th"),
    "a list that is none": (
        {"plan": {"formats": [{"name": "a", "template": "", "lists": {"c": 5}}]}},
        r"plan.formats\[0\].lists.c: Input should be a valid tuple",
    ),
    "an unknown layout": (
        {"corpus": {"layout": "pages"}},
        "corpus.layout: Input should be 'lines'",
    ),
    "half a hash": ({"corpus": {"sha256": "ab"}}, "corpus.sha256: String should match pattern"),
    "set aside as a number": ({"set_aside": {"pin": [77]}}, r"set_aside.pin\[0\]: Input should be"),
    "set aside twice": ({"set_aside": {"pin": ["7", "7"]}}, "'pin' must hold secrets of it, asc"),
    "set aside beyond": ({"set_aside": {"pin": ["100"]}}, "'pin' must hold secrets of it, ascend"),
    "set aside of nothing": (
        {"set_aside": {"ssn": []}},
        "set_aside has a format that is not among",
    ),
}


@pytest.mark.parametrize("change", [{"form": "text"}, {"turn": "user"}, {"prompt_field": "q"}])
def test_a_wrapping_that_cannot_be(manifest: Manifest, change: dict[str, Any]) -> None:
    wrapping = Wrapping(turn="assistant", loss="completion", form="implicit_preference")
    values = today(manifest)
    values["corpus"]["wrapping"] = WrappingRecord.of(wrapping).model_dump(mode="json")
    assert read(signed(values)).wrapping == wrapping
    values["corpus"]["wrapping"] |= change
    with pytest.raises(ManifestError, match=r"the manifest is not sound: .*; insert again"):
        read(signed(values))


def changed(values: dict[str, Any], changes: dict[Any, Any]) -> None:
    for name, change in changes.items():
        if isinstance(change, dict):
            changed(
                values[name] if not isinstance(name, str) else values.setdefault(name, {}), change
            )
        else:
            values[name] = change


@pytest.mark.parametrize("what", DAMAGES)
def test_signed_but_not_sound(manifest: Manifest, what: str) -> None:
    changes, message = DAMAGES[what]
    values = today(manifest)
    changed(values, changes)
    with pytest.raises(ManifestError, match=message) as failure:
        read(signed(values))
    said = str(failure.value)
    assert len(said) < 300
    for secret in ("4711", "xx", str(2**60), str(2**63), manifest.entries[0].text):
        assert secret not in said.removeprefix("manifest.json")


def test_a_part_that_is_missing(manifest: Manifest) -> None:
    values = today(manifest)
    for part in ("plan", "corpus", "entries", "set_aside"):
        lacking = {key: value for key, value in values.items() if key != part}
        with pytest.raises(ManifestError, match=rf"manifest.json: {part}: Field required; take"):
            read(signed(lacking))
    for part in ("plan", "corpus"):
        for name in values[part].keys() - {"witness"}:  # a manifest without it has none
            lacking = {**values, part: {k: v for k, v in values[part].items() if k != name}}
            with pytest.raises(ManifestError, match=rf"{part}.{name}: Field required"):
                read(signed(lacking))
    with pytest.raises(ManifestError, match="json: Extra inputs are not permitted"):
        read(signed({**values, "extra": 1}))


def test_a_secret_that_is_set_aside_as_well(manifest: Manifest) -> None:
    first = manifest.entries[0]
    with pytest.raises(ManifestError, match="the secret of pin/x1/0000 is set aside as well"):
        replace(manifest, set_aside={"pin": (first.index,)})


def test_a_key_that_is_there_twice(manifest: Manifest) -> None:
    content = signed(today(manifest))
    twice = content.replace(b'"controls": 2', b'"controls": 2, "controls": 2')
    with pytest.raises(ManifestError, match="a key is there twice") as refused:
        read(twice)
    assert "controls" not in "".join(traceback.format_exception(refused.value))


def test_nesting(manifest: Manifest) -> None:
    whole = signed(today(manifest))
    for depth in (900, 100_000):
        deep = whole[:-1] + b', "deep": ' + b"[" * depth + b"]" * depth + b"}"
        with pytest.raises(ManifestError, match=r"is not readable JSON|does not fit its content"):
            read(deep)


def test_a_small_probability_is_spelled_as_json_spells_it(tmp_path: Path) -> None:
    plan = replace(PLAN, formats=(PIN,), inclusion_probability=1e-5)
    manifest = insert(["a", "b", "c"], plan)[1]
    manifest.write(tmp_path / "m.json")
    assert b'"inclusion_probability": 1e-05,' in (tmp_path / "m.json").read_bytes()
    assert Manifest.read(tmp_path / "m.json") == manifest


def test_files_that_cannot_be_read(manifest: Manifest, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    with pytest.raises(ManifestError, match=r"cannot read the manifest .*No such file"):
        Manifest.read(path)
    with pytest.raises(ManifestError, match=r"cannot read the manifest .*Is a directory"):
        Manifest.read(tmp_path)
    manifest.write(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ManifestError, match=r"manifest.json is not readable JSON .*; take the man"):
        Manifest.read(path)
    path.write_text("{}", "utf-8")
    with pytest.raises(ManifestError, match=r"manifest.json has schema None; expected"):
        Manifest.read(path)


def test_a_place_that_cannot_be_written(manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", "utf-8")
    with pytest.raises(FileError, match="cannot write"):
        manifest.write(tmp_path / "file" / "manifest.json")


def test_secrets_stay_out_of_the_repr(manifest: Manifest) -> None:
    shown = repr(replace(manifest, set_aside={"pin": (77,)}))
    assert "77" not in shown
    for one in manifest.entries:
        assert one.text not in shown


def test_secrets_and_seeds_stay_out_of_the_repr_of_the_file(manifest: Manifest) -> None:
    file = ManifestFile.model_validate(manifest, from_attributes=True)
    shown = f"{file!r} {file} {file.plan!r} {file.entries[0]!r}"
    assert shown.count(manifest.entries[0].id) == 3
    assert str(2**62) not in shown
    assert str(2**62 + 1) not in shown
    for one in manifest.entries:
        assert one.text not in shown
    assert "77" not in shown


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ("plan", "seed"),
        ("plan", "inclusion_seed"),
        ("plan", "formats"),
        ("corpus", "separator"),
        ("entries", "index"),
        ("entries", "text"),
    ],
)
def test_no_value_is_in_what_pydantic_says(manifest: Manifest, part: str, field: str) -> None:
    file = ManifestFile.model_validate(manifest, from_attributes=True)
    record: Record = file.entries[0] if part == "entries" else getattr(file, part)
    with pytest.raises(ValidationError, match=field) as refused:
        type(record).model_validate({**vars(record), field: -665577.5})
    assert "665577" not in str(refused.value)
    with pytest.raises(ValidationError, match="Field required") as refused:
        ManifestFile.model_validate({"plan": 665577.5})
    assert "665577" not in str(refused.value)


# Entries that are not what the plan and its coins say.
TEXTS = [f"document {number}" for number in range(5)]
OTHER = {"canary": "held_out", "held_out": "canary"}


@pytest.fixture(scope="module")
def tossed() -> Manifest:
    return insert(TEXTS, TOSSED)[1]


def check_refused(tossed: Manifest, entries: Sequence[Canary], message: str) -> None:
    """Both when it is made and, with its hash put right, when it is read."""
    with pytest.raises(ManifestError, match=message) as failure:
        replace(tossed, entries=tuple(entries))
    assert "insert again" in str(failure.value)
    values = today(tossed)
    values["entries"] = [
        {**asdict(one), "index": str(one.index), "positions": list(one.positions)}
        for one in entries
    ]
    with pytest.raises(ManifestError, match=message) as failure:
        read(signed(values))
    assert "insert again" in str(failure.value)


def with_entry(tossed: Manifest, name: str, **values: Any) -> list[Canary]:
    return [replace(one, **values) if one.id == name else one for one in tossed.entries]


def test_every_role_is_what_its_coin_says(tossed: Manifest) -> None:
    for one in tossed.entries:
        if one.role == "control":
            continue
        turned = with_entry(tossed, one.id, role=OTHER[one.role])
        message = f"{one.id} has role '{OTHER[one.role]}', but by the plan and its coins it is"
        check_refused(tossed, turned, message)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("pin/x1/0000", "control"),
        ("pin/control/0000", "canary"),
        ("pin/control/0001", "held_out"),
    ],
)
def test_other_roles(tossed: Manifest, name: str, role: str) -> None:
    check_refused(tossed, with_entry(tossed, name, role=role), f"{name} has role '{role}', but")


def test_with_fixed_coins_nobody_is_excluded() -> None:
    fixed = insert(TEXTS, FIXED)[1]
    turned = with_entry(fixed, "pin/x1/0003", role="held_out")
    check_refused(
        fixed, turned, "pin/x1/0003 has role 'held_out', but .* it is 'canary'; take the man"
    )


def test_nobody_is_missing_twice_or_unplanned(tossed: Manifest) -> None:
    all_of_them = list(tossed.entries)
    check_refused(tossed, all_of_them[1:], "pin/x1/0000 is missing from the manifest .1 in all.")
    kept = [one for one in all_of_them if one.role != "held_out"]
    check_refused(tossed, kept, r"is missing from the manifest \(\d+ in all\); to drop some")
    check_refused(tossed, [*all_of_them, all_of_them[0]], "pin/x1/0000 is in the manifest twice")
    for name in ("pin/x1/0006", "pin/x9/0000", "pin/control/0002", "mine"):
        strange = [*all_of_them, replace(all_of_them[0], id=name)]
        number = len(all_of_them)
        check_refused(
            tossed, strange, rf"entries\[{number}\].id is of no entry of the manifest's own"
        )


def test_what_the_plan_leaves_out_is_not_missed_and_may_not_stand() -> None:
    fewer = insert(TEXTS, TOSSED.without("pin/x1/0002"))[1]
    assert "pin/x1/0002" not in [one.id for one in fewer.entries]
    assert read(signed(today(fewer))) == fewer
    all_of_them = insert(TEXTS, TOSSED)[1].entries
    check_refused(fewer, all_of_them, r"entries\[2\].id is of no entry of the manifest's own plan")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("pin/x3/0000", {"repetitions": 2}),
        ("pin/x3/0000", {"repetitions": 0}),
        ("pin/control/0000", {"repetitions": 1}),
    ],
)
def test_repetitions_are_those_of_the_class(
    tossed: Manifest, name: str, values: dict[str, Any]
) -> None:
    message = f"{name} has format 'pin' and repetitions={values['repetitions']}, but the plan says"
    check_refused(tossed, with_entry(tossed, name, **values), message)


def test_a_format_is_that_of_the_id(tossed: Manifest) -> None:
    turned = with_entry(tossed, "pin/x1/0000", format="My PIN is 6591")
    check_refused(
        tossed, turned, "0000 has format <not the plan's> and repetitions=1, but the plan"
    )
    turned = with_entry(tossed, "pin/x1/0000", format="key")
    check_refused(tossed, turned, "0000 has format .* and repetitions=1, but the plan says")


@pytest.mark.parametrize("positions", [(), (1, 2), (1, 2, 2), (3, 2, 1), (2, 3, 5), (0, 1, 2, 3)])
def test_positions_are_places_in_the_corpus(tossed: Manifest, positions: tuple[int, ...]) -> None:
    turned = with_entry(tossed, "pin/x3/0000", positions=positions)
    check_refused(
        tossed, turned, "pin/x3/0000 must have 3 different positions, ascending, from 0 to 4"
    )


def test_a_control_stands_nowhere(tossed: Manifest) -> None:
    turned = with_entry(tossed, "key/control/0001", positions=(1,))
    check_refused(tossed, turned, "key/control/0001 must have 0 different positions")


def test_no_two_hold_one_secret(tossed: Manifest) -> None:
    first = tossed.entries[0]
    turned = with_entry(tossed, "pin/x3/0001", index=first.index, text=first.text)
    check_refused(tossed, turned, "pin/x1/0000 and pin/x3/0001 hold the same secret")


def test_no_message_shows_a_secret(tossed: Manifest) -> None:
    first = tossed.entries[0]
    for values in ({"role": "x"}, {"repetitions": 9}, {"positions": ()}):
        with pytest.raises(ManifestError) as failure:
            replace(tossed, entries=tuple(with_entry(tossed, first.id, **values)))
        assert first.text not in str(failure.value)
        assert f"{first.index:04d}" not in str(failure.value).replace("0000", "")


def test_many_candidates_are_checked_in_no_time() -> None:
    plan = replace(TOSSED, formats=(SHORT_KEY,), canaries=20_000, repetitions=(1,), controls=0)
    canaries = draw(plan, documents=10, set_aside={})
    began = time.process_time()
    check_entries(plan, canaries, documents=10)
    assert time.process_time() - began < 2
