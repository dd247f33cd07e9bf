"""The manifest, written, read, and refused."""

import json
import os
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from manifest_files import read, signed, today
from pydantic import ValidationError

from lmexposure._record import Record
from lmexposure.canaries import Format, Manifest, Plan, insert_into_texts
from lmexposure.canaries.manifest import ManifestFile
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
)


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    texts = [f"document {number}" for number in range(6)]
    return insert_into_texts([*texts, "PIN 77"], PLAN, existing="set_aside")[1]


def test_round_trip(manifest: Manifest, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "manifest.json"
    manifest.write(path)
    again = Manifest.read(path)
    assert again == manifest
    assert again.sha256 == manifest.sha256 == json.loads(path.read_bytes())["content_sha256"]
    assert again.references("pin") == manifest.references("pin")
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_large_numbers_are_decimal_strings(manifest: Manifest) -> None:
    values = today(manifest)
    assert values["schema"] == "lmexposure.manifest/3"
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
    _, fewer = insert_into_texts(texts, PLAN.without(gone.id))
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
        ({"schema": "lmexposure.manifest/4"}, "'lmexposure.manifest/4', newer than .* install a n"),
        ({"schema": "lmexposure.manifest/0"}, "schema lmexposure.manifest/0, which there never w"),
        ({"schema": "lmexposure.result/1"}, "schema 'lmexposure.result/1'; expected 'lmexposure.m"),
        ({}, "schema None; expected 'lmexposure.manifest/3': give a manifest.json that"),
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
        for name in values[part]:
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
    manifest = insert_into_texts(["a", "b", "c"], plan)[1]
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
