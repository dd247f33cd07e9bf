"""Manifests of older versions: read as one of today, and known by the name they were given."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from manifest_files import FIXED, TOSSED, of_version, read, signed, today, without_kinds

from lmexposure import insert
from lmexposure._files import content_hash
from lmexposure.canaries import Format, Manifest
from lmexposure.canaries.manifest import ManifestFile
from lmexposure.errors import ManifestError

PLANS = {1: FIXED, 2: TOSSED}
# What the versions that wrote them gave these two for a name.
NAMES = {
    1: "e2676d94cd5fb6d47673e5525384b70a4120e68246bc23e76db7a91438661fbe",
    2: "3f39c3b2fce263c0392ad63b34030296a0fe6301d53745e541d508bba5cc0dc9",
}
WRAPPED = {
    "form": "messages",
    "turn": "assistant",
    "loss": "all",
    "strings": False,
    "rendering": "chat",
    "other": None,
    "system": None,
    "template_sha256": None,
    "special_tokens": None,
}


@pytest.fixture(scope="module", params=[1, 2])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def manifest(version: int) -> Manifest:
    return insert([f"document {number}" for number in range(5)], PLANS[version])[1]


@pytest.fixture
def older(version: int, manifest: Manifest) -> dict[str, Any]:
    return of_version(version, manifest)


def test_it_is_one_of_today_but_keeps_its_name(
    older: dict[str, Any], version: int, manifest: Manifest, tmp_path: Path
) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(older))
    found = Manifest.read(path)
    assert found == manifest
    assert found.sha256 == older["checksum"] == NAMES[version]
    assert manifest.sha256 != found.sha256


def test_it_is_written_as_it_was(older: dict[str, Any], tmp_path: Path) -> None:
    path, copy = tmp_path / "manifest.json", tmp_path / "copy.json"
    path.write_text(json.dumps(older))
    Manifest.read(path).write(copy)
    assert copy.read_bytes() == path.read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o600


def test_what_is_made_from_it_is_of_today(older: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(older))
    found = Manifest.read(path)
    again = replace(found, corpus=found.corpus.model_copy(update={"name": "b.txt"}))
    again.write(path)
    assert json.loads(path.read_bytes())["schema"] == "lmexposure.manifest/5"
    assert Manifest.read(path).sha256 == again.sha256 != found.sha256


def test_a_corpus_that_was_not_verified(older: dict[str, Any]) -> None:
    assert read(signed(older, "checksum")).corpus.verified
    older["corpus"]["verified"] = False
    assert not read(signed(older, "checksum")).corpus.verified


@pytest.mark.parametrize("value", [9, float("nan"), [[[]]]])
def test_edited_by_hand(older: dict[str, Any], value: Any) -> None:
    older["canaries"][0]["repetitions"] = value
    with pytest.raises(ManifestError, match="the checksum does not fit: the manifest was edited"):
        read(json.dumps(older).encode())


def test_without_its_checksum(older: dict[str, Any]) -> None:
    del older["checksum"]
    with pytest.raises(ManifestError, match="the checksum does not fit"):
        read(json.dumps(older).encode())


@pytest.mark.parametrize("part", ["plan", "corpus", "canaries"])
def test_a_part_that_is_missing_or_another(older: dict[str, Any], part: str) -> None:
    for value in ("4711", 4711, None, [4711], {"4711": 4711}):
        spoiled = signed({**older, part: value}, "checksum")
        with pytest.raises(ManifestError, match=r"insertion wrote") as failure:
            read(spoiled)
        assert "4711" not in str(failure.value).replace("'4711'", "")
    lacking = {name: value for name, value in older.items() if name != part}
    with pytest.raises(ManifestError, match=r"is no sound lmexposure.manifest/.: it lacks "):
        read(signed(lacking, "checksum"))


def test_a_schema_that_does_not_go_with_the_coins(older: dict[str, Any], version: int) -> None:
    older["schema"] = f"lmexposure.manifest/{3 - version}"
    said = {1: "manifest/2: it lacks 'coins'", 2: "manifest/1' does not go with coins; insert ag"}
    with pytest.raises(ManifestError, match=said[version]):
        read(signed(older, "checksum"))


def test_all_upgrades_are_there() -> None:
    assert sorted(ManifestFile.UPGRADES) == [1, 2, 3, 4]
    assert ManifestFile.VERSION == 5


@pytest.mark.parametrize("claimed", [1, 2, 3, 4, 5])
def test_no_manifest_of_today_passes_for_an_older_one_without_hash(
    manifest: Manifest, claimed: int
) -> None:
    values = {**today(manifest), "schema": f"lmexposure.manifest/{claimed}"}
    with pytest.raises(ManifestError, match=r"fit its content_sha256|the checksum does not fit"):
        read(json.dumps(values).encode())


def test_version_3_said_nothing_of_wrappings(manifest: Manifest) -> None:
    """Of plain texts the name stays, so that results, sidecars and models still fit."""
    values = today(manifest)
    without_kinds(values)
    del values["corpus"]["wrapping"]
    third = {**values, "schema": "lmexposure.manifest/3"}
    again = read(json.dumps({**third, "content_sha256": content_hash(third)}).encode())
    assert again == manifest
    assert again.sha256 == manifest.sha256 == content_hash(third)
    assert not again.is_older


def test_version_4_said_nothing_of_kinds(manifest: Manifest) -> None:
    """Of chats the name is that of version 4, which was the first to say anything of them."""
    values = today(manifest)
    without_kinds(values)
    values["corpus"]["wrapping"] = WRAPPED
    fourth = {**values, "schema": "lmexposure.manifest/4"}
    again = read(json.dumps({**fourth, "content_sha256": content_hash(fourth)}).encode())
    assert {form.kind for form in again.plan.formats} == {"uniform"}
    assert again.entries == manifest.entries
    assert again.sha256 == content_hash(fourth)
    assert not again.is_older


def test_chosen_texts_have_a_name_of_version_5(tmp_path: Path) -> None:
    texts = [f"the text {n} that was chosen" for n in range(9)]
    chosen = Format.of_texts("unigram", texts, kind="unigram", known=[9] * 9)
    plan = replace(PLANS[2], formats=(*PLANS[2].formats, chosen), canaries=3)
    manifest = insert([f"document {number}" for number in range(5)], plan)[1]
    manifest.write(tmp_path / "manifest.json")
    written = json.loads((tmp_path / "manifest.json").read_bytes())
    again = Manifest.read(tmp_path / "manifest.json")
    assert written["schema"] == "lmexposure.manifest/5"
    values = today(manifest)
    assert values["plan"].pop("witness") is False
    assert manifest.sha256 == content_hash(values) == again.sha256
    assert again == manifest
    assert again.formats["unigram"] == chosen
