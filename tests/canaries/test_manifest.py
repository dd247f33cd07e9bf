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
from pydantic import TypeAdapter, ValidationError

from lmexposure import insert
from lmexposure._files import content_hash
from lmexposure.canaries import Canary, Format, Manifest, Plan, Wrapping
from lmexposure.canaries.manifest import ManifestFile, check_entries
from lmexposure.canaries.plan import draw
from lmexposure.errors import ManifestError, PlanError

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


def test_files_that_cannot_be_read(manifest: Manifest, tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"cannot read the manifest .*No such file"):
        Manifest.read(tmp_path / "manifest.json")
    whole = signed(today(manifest))
    for wrong in (whole[:-20], whole[:-1] + b', "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"):
        with pytest.raises(ManifestError, match=r"json is not readable JSON .*; take the man"):
            read(wrong)


# Where something is changed, to what, and the message; each with its hash put right.
DAMAGES: list[tuple[str, Any, str]] = [
    ("entries.6.index", 2**60, r"entries\[6\].index: Input shou"),  # a float cannot hold it
    ("entries.0.index", "-1", r"entries\[0\].index: Input should be a decimal st"),
    ("entries.0.index", "١٢", r"entries\[0\].index: Input should be a de"),
    ("entries.0.index", "1" * 5000, r"entries\[0\].index: Input should be a decimal"),
    ("entries.0.index", "4711", "text of pin/x1/0000 is not that"),
    ("entries.0.text", "PIN xx", "the text of pin/x1/0000 is not that of its ind"),
    ("entries.0.role", "excluded", r"entries\[0\].role: Input should be 'canary', 'h"),
    ("entries.0.text", 5, r"entries\[0\].text: Input should be a valid string"),
    ("entries.0.repetitions", True, r"entries\[0\].repetitions: Input should"),
    ("entries.0.positions", [0.5], r"entries\[0\].positions\[0\]: Input shou"),
    ("entries.0.positions", [-1], r"entries\[0\].positions\[0\]: Input should"),
    ("entries.0.format", "ssn", "pin/x1/0000 has format <not the plan's> and repetitions=1,"),
    ("entries.0.extra", 1, r"entries\[0\]: Extra inputs are not permitted"),
    ("extra", 1, "json: Extra inputs are not permitted"),
    ("plan.seed", 5, "plan.seed: Input should be a decimal str"),
    ("plan.seed", str(2**63), "plan.seed: Input should be less than or eq"),
    ("plan.inclusion_seed", str(2**63), "plan.inclusion_seed: Input should be less than or equal"),
    (
        "plan.inclusion_seed",
        None,
        "plan: inclusion_probability needs the inclusion_seed of its coins; .*insert aga",
    ),
    ("plan.inclusion_probability", 1.5, "plan.inclusion_probability"),
    ("plan.canaries", 0, "plan: canaries=0 must be a whole number"),
    ("plan.controls", -1, "plan.controls: Input should be greater th"),
    (
        "plan.formats",
        [{"name": "a", "template": "", "lists": {"c": 5}}],
        r"plan.formats\[0\].lists.c: Input should be a valid tuple",
    ),
    ("corpus.layout", "pages", "corpus.layout: Input should be 'lines'"),
    ("corpus.sha256", "ab", "corpus.sha256: String should match pattern"),
    ("set_aside.pin", [77], r"set_aside.pin\[0\]: Input should be"),
    ("set_aside.pin", ["7", "7"], "'pin' must hold secrets of it, asc"),
    ("set_aside.pin", ["100"], "'pin' must hold secrets of it, ascend"),
    ("set_aside.ssn", [], "set_aside has a format that is not among"),
]


@pytest.mark.parametrize(("place", "value", "message"), DAMAGES)
def test_signed_but_not_sound(manifest: Manifest, place: str, value: Any, message: str) -> None:
    values = today(manifest)
    inner: Any = values
    *way, last = place.split(".")
    for part in way:
        inner = inner[int(part) if part.isdecimal() else part]
    inner[last] = value
    with pytest.raises(ManifestError, match=message) as failure:
        read(signed(values))
    said = str(failure.value)
    assert len(said) < 300
    for secret in ("4711", "xx", str(2**60), str(2**63), manifest.entries[0].text):
        assert secret not in said.removeprefix("manifest.json")


@pytest.mark.parametrize(
    "change",
    [
        {"form": "text"},
        {"turn": "user"},
        {"prompt_field": "q"},
        {"context": "secret"},
        {"chat_template": "secret"},
        {"template_sha256": "ab"},
        {"turn": "plain", "form": "text", "loss": "all"},
    ],
)
def test_a_wrapping_that_cannot_be(manifest: Manifest, change: dict[str, Any]) -> None:
    wrapping = Wrapping(turn="assistant", loss="completion", form="implicit_preference")
    values = today(manifest)
    values["corpus"]["wrapping"] = TypeAdapter(Wrapping).dump_python(wrapping, mode="json")
    assert read(signed(values)).wrapping == wrapping
    for later in ("prompt_field", "completion_field", "parts", "chat_date"):
        del values["corpus"]["wrapping"][later]
    del values["plan"]["witness"]
    earlier = read(signed(values))
    assert (earlier.wrapping, earlier.plan.witness) == (wrapping, False)
    values["corpus"]["wrapping"] |= change
    with pytest.raises(ManifestError, match=r"corpus.{1,2}wrapping.*: .*insert again"):
        read(signed(values))


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


def test_secrets_and_seeds_stay_out_of_reprs(manifest: Manifest) -> None:
    file = ManifestFile.model_validate(manifest, from_attributes=True)
    shown = f"{file!r} {file} {file.plan!r} {file.entries[0]!r}"
    assert shown.count(manifest.entries[0].id) == 3
    assert str(2**62) not in shown
    assert str(2**62 + 1) not in shown
    shown += repr(replace(manifest, set_aside={"pin": (77,)}))
    for one in manifest.entries:
        assert one.text not in shown
    assert "77" not in shown


def test_no_value_is_in_what_pydantic_says(manifest: Manifest) -> None:
    file = ManifestFile.model_validate(manifest, from_attributes=True)
    damages: list[tuple[str, Any, str]] = [
        *(("plan", file.plan, name) for name in ("seed", "inclusion_seed", "formats")),
        ("corpus", file.corpus, "separator"),
        *(("entries", file.entries[0], name) for name in ("index", "text")),
    ]
    for part, record, name in damages:
        damaged = {**vars(record), name: -665577.5}
        with pytest.raises(ValidationError, match=name) as refused:
            ManifestFile.model_validate(
                {**vars(file), part: [damaged] if part == "entries" else damaged}
            )
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
    assert tossed.entries[0].text not in str(failure.value)
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


FIRST = "pin/x1/0000"
AMISS: list[tuple[str, dict[str, Any], str]] = [
    (FIRST, {"role": "control"}, "has role 'control', but"),
    ("pin/control/0000", {"role": "canary"}, "has role 'canary', but"),
    ("pin/control/0001", {"role": "held_out"}, "has role 'held_out', but"),
    ("pin/x3/0000", {"repetitions": 2}, "has format 'pin' and repetitions=2, but the plan says"),
    ("pin/x3/0000", {"repetitions": 0}, "has format 'pin' and repetitions=0, but the plan says"),
    ("pin/control/0000", {"repetitions": 1}, "has format 'pin' and repetitions=1, but the plan"),
    (FIRST, {"format": "My PIN is 6591"}, "has format <not the plan's> and repetitions=1, but the"),
    (FIRST, {"format": "key"}, "has format .* and repetitions=1, but the plan says"),
    *(
        ("pin/x3/0000", {"positions": places}, "must have 3 different positions, asc.* from 0 to 4")
        for places in ((), (1, 2), (1, 2, 2), (3, 2, 1), (2, 3, 5), (0, 1, 2, 3))
    ),
    ("key/control/0001", {"positions": (1,)}, "must have 0 different positions"),
]


@pytest.mark.parametrize(("name", "values", "message"), AMISS)
def test_an_entry_that_is_not_as_planned(
    tossed: Manifest, name: str, values: dict[str, Any], message: str
) -> None:
    check_refused(tossed, with_entry(tossed, name, **values), f"{name} {message}")


def test_no_two_hold_one_secret(tossed: Manifest) -> None:
    first = tossed.entries[0]
    turned = with_entry(tossed, "pin/x3/0001", index=first.index, text=first.text)
    check_refused(tossed, turned, "pin/x1/0000 and pin/x3/0001 hold the same secret")


def test_fixed_coins_leave_no_canary_out() -> None:
    fixed = insert(TEXTS, FIXED)[1]
    turned = with_entry(fixed, "pin/x1/0003", role="held_out")
    check_refused(fixed, turned, "pin/x1/0003 has role 'held_out', but .* it is 'canary'; take")


def test_no_entry_is_missing_twice_or_unplanned(tossed: Manifest) -> None:
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


def test_many_candidates_are_checked_in_no_time() -> None:
    plan = replace(TOSSED, formats=(SHORT_KEY,), canaries=5_000, repetitions=(1,), controls=0)
    canaries = draw(plan, documents=10, set_aside={})
    began = time.process_time()
    check_entries(plan, canaries, documents=10)
    assert time.process_time() - began < 0.5
