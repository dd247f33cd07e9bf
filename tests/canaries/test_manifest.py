"""The manifest, written, read, and refused."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmexposure._files import canonical_json, sha256_bytes
from lmexposure.canaries import CanaryFormat, Manifest, Plan, insert_into_texts
from lmexposure.errors import FileError, ManifestError, PlanError

PIN = CanaryFormat(name="pin", template="PIN {digits:2}")
NAME = CanaryFormat(name="name", template="I am {choice:c}{hex:30}", lists={"c": ["Al", "Bo"]})
PLAN = Plan(formats=(PIN, NAME), canaries=2, repetitions=(1, 3), controls=2, seed=2**62)


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    texts = [f"document {number}" for number in range(6)]
    return insert_into_texts([*texts, "PIN 77"], PLAN, existing="set_aside")[1]


def signed(values: dict[str, Any]) -> dict[str, Any]:
    contents = {key: value for key, value in values.items() if key != "checksum"}
    return {**contents, "checksum": sha256_bytes(canonical_json(contents))}


def test_round_trip(manifest: Manifest, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "manifest.json"
    manifest.write(path)
    again = Manifest.read(path)
    assert again == manifest
    assert again.sha256 == manifest.sha256
    assert again.references("pin") == manifest.references("pin")
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_large_numbers_are_decimal_strings(manifest: Manifest) -> None:
    values = json.loads(json.dumps(manifest.to_dict()))
    assert values["schema"] == "lmexposure.manifest/1"
    assert values["plan"]["seed"] == str(2**62)
    assert values["set_aside"] == {"pin": ["77"]}
    assert values["canaries"][-1]["index"] == str(manifest.canaries[-1].index)
    assert values["plan"]["formats"][1]["lists"] == {"c": ["Al", "Bo"]}


def test_references_are_disjoint_and_the_first_of_more(manifest: Manifest) -> None:
    drawn = {canary.index for canary in manifest.canaries if canary.format == "pin"}
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
    gone = manifest.canaries[0]
    texts = [f"document {number}" for number in range(7)]
    _, fewer = insert_into_texts(texts, PLAN.without(gone.id))
    assert gone.index not in fewer.references("pin")
    assert gone.id not in [canary.id for canary in fewer.canaries]


def test_edited_by_hand(manifest: Manifest) -> None:
    values = manifest.to_dict()
    values["canaries"][0]["repetitions"] = 9
    with pytest.raises(ManifestError, match="the checksum does not fit: the manifest was edited"):
        Manifest.from_dict(values)
    values["canaries"][0]["repetitions"] = float("nan")
    with pytest.raises(ManifestError, match="the checksum does not fit"):
        Manifest.from_dict(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schema": "lmexposure.manifest/3"}, "'lmexposure.manifest/3' is newer .* upgrade"),
        ({"schema": "lmexposure.result/1"}, "schema 'lmexposure.result/1' is no manifest"),
        ({}, "schema None is no manifest"),
        ([1], "schema None is no manifest"),
    ],
)
def test_other_schemas(values: Any, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        Manifest.from_dict(values)


def test_signed_but_not_sound(manifest: Manifest) -> None:
    values = manifest.to_dict()
    for part in ("plan", "corpus", "canaries", "set_aside"):
        lacking = signed({key: value for key, value in values.items() if key != part})
        with pytest.raises(ManifestError, match="not sound: KeyError; insert again"):
            Manifest.from_dict(lacking)
    with pytest.raises(ManifestError, match="not sound: canaries=0 must be a whole number"):
        Manifest.from_dict(signed({**values, "plan": {**values["plan"], "canaries": 0}}))
    first = {**values["canaries"][0], "text": "PIN xx"}
    with pytest.raises(ManifestError, match=r"the text of pin/x1/0000 is not the fill"):
        Manifest.from_dict(signed({**values, "canaries": [first, *values["canaries"][1:]]}))


def test_a_schema_that_does_not_go_with_the_coins(manifest: Manifest) -> None:
    later = signed({**manifest.to_dict(), "schema": "lmexposure.manifest/2"})
    with pytest.raises(ManifestError, match="manifest/2' does not go with coins=fixed, which "):
        Manifest.from_dict(later)
    # Written while coins followed from the public seed: no such coins prove anything.
    values = manifest.to_dict()
    early = signed({**values, "plan": {**values["plan"], "coins": 0.5}})
    with pytest.raises(ManifestError, match=r"coins=0\.5 need a coin_seed of their own"):
        Manifest.from_dict(early)


def test_files_that_cannot_be_read(manifest: Manifest, tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    with pytest.raises(ManifestError, match=r"cannot read the manifest .*No such file"):
        Manifest.read(path)
    manifest.write(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ManifestError, match=r"manifest.json is cut short or not JSON"):
        Manifest.read(path)
    path.write_text("{}", "utf-8")
    with pytest.raises(ManifestError, match=r"manifest.json: schema None is no manifest"):
        Manifest.read(path)


def test_a_place_that_cannot_be_written(manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", "utf-8")
    with pytest.raises(FileError, match="cannot write"):
        manifest.write(tmp_path / "file" / "manifest.json")


def test_secrets_stay_out_of_the_repr(manifest: Manifest) -> None:
    shown = repr(replace(manifest, set_aside={"pin": (77,)}))
    assert "77" not in shown
    for canary in manifest.canaries:
        assert canary.text not in shown
