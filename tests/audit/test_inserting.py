import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from manifest_files import of_version

from lmexposure.audit import RunSettings, insert_corpus, preview
from lmexposure.errors import PlanError, ResultError


def test_writes_corpus_and_manifest_once(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    inserted, manifest = insert_corpus(corpus, out=out, settings=settings)
    assert inserted == out / "corpus" / "corpus.txt"
    assert len(inserted.read_text().splitlines()) == 600 + 3 * (1 + 30)
    before = inserted.stat().st_mtime_ns
    assert insert_corpus(corpus, out=out, settings=settings)[1] == manifest
    assert inserted.stat().st_mtime_ns == before


def test_a_damaged_corpus_is_written_again(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    inserted, _ = insert_corpus(corpus, out=tmp_path / "out", settings=settings)
    whole = inserted.read_bytes()
    inserted.write_bytes(whole[:100])
    insert_corpus(corpus, out=tmp_path / "out", settings=settings)
    assert inserted.read_bytes() == whole


@pytest.mark.parametrize("coins", [{}, {"canaries": 6, "inclusion_probability": 0.5}])
def test_the_manifest_of_an_older_version_is_kept(
    corpus: Path, settings: RunSettings, tmp_path: Path, coins: dict[str, Any]
) -> None:
    """Trained models and results know it by the name that it has there."""
    chosen, record = replace(settings, **coins), tmp_path / "out" / "manifest.json"
    inserted, manifest = insert_corpus(corpus, out=tmp_path / "out", settings=chosen)
    record.write_text(json.dumps(of_version(2 if coins else 1, manifest)))
    older, whole = record.read_bytes(), inserted.read_bytes()
    for content in (whole, whole[:100]):
        inserted.write_bytes(content)
        again = insert_corpus(corpus, out=tmp_path / "out", settings=chosen)[1]
        assert (again, again.sha256) == (manifest, json.loads(older)["checksum"])
        assert (record.read_bytes(), inserted.read_bytes()) == (older, whole)


def test_refuses_what_another_insertion_left(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    insert_corpus(corpus, out=out, settings=settings)
    with pytest.raises(ResultError, match="manifest of another plan"):
        insert_corpus(corpus, out=out, settings=replace(settings, seed=8))
    with pytest.raises(ResultError, match="manifest of another layout"):
        insert_corpus(corpus, out=out, settings=replace(settings, layout="paragraphs"))
    (tmp_path / "a.jsonl").write_text('{"text": "x", "note": "y"}\n' * 40)
    insert_corpus(tmp_path / "a.jsonl", out=tmp_path / "j", settings=settings)
    with pytest.raises(ResultError, match="manifest of another text field"):
        insert_corpus(
            tmp_path / "a.jsonl", out=tmp_path / "j", settings=replace(settings, text_field="note")
        )
    corpus.write_text("something else\n" * 40)
    with pytest.raises(ResultError, match="manifest of another corpus"):
        insert_corpus(corpus, out=out, settings=settings)


def test_a_choice_about_existing_fills_is_not_forgotten(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    with corpus.open("a") as stream:
        stream.write("My PIN is 0042\n")
    aside = replace(settings, existing="set_aside")
    insert_corpus(corpus, out=tmp_path / "o", settings=aside)
    with pytest.raises(ResultError, match="another choice about existing fills"):
        insert_corpus(corpus, out=tmp_path / "o", settings=settings)


def test_a_plan_that_leaves_no_reference_is_refused_before_the_work(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    (tmp_path / "f.toml").write_text('name = "f"\ntemplate = "Code {digits:1}"\n')
    tiny = settings.override(
        {"formats": [str(tmp_path / "f.toml")], "canaries": 1, "controls": 8, "references": None}
    )
    with pytest.raises(PlanError, match="1 references do not fit"):
        insert_corpus(corpus, out=tmp_path / "o", settings=tiny)


def test_preview_writes_nothing(corpus: Path, settings: RunSettings, tmp_path: Path) -> None:
    would = preview([corpus], settings=settings)
    assert (would.insertions, would.canaries, would.controls) == (93, 6, 8)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus.txt"]


def test_references_that_the_space_cannot_give_are_refused_before_anything_is_written(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    asked = settings.override({"references": 9_999})
    with pytest.raises(PlanError, match="the largest plan that fits"):
        insert_corpus(corpus, out=tmp_path / "out", settings=asked)
    assert not (tmp_path / "out").exists()


def test_coins_decide_who_of_the_candidates_is_inserted(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    tossed = replace(settings, inclusion_probability=0.5, canaries=20, inclusion_seed=5)
    _, manifest = insert_corpus(corpus, out=tmp_path / "o", settings=tossed)
    plan = manifest.plan
    assert (plan.canaries, plan.inclusion_probability, plan.inclusion_seed) == (20, 0.5, 5)
    roles = [one.role for one in manifest.entries]
    assert roles.count("canary") + roles.count("held_out") == 40
    would = preview([corpus], settings=tossed)
    assert (would.canaries, would.held_out) == (roles.count("canary"), roles.count("held_out"))
    with pytest.raises(ResultError, match="manifest of another plan"):
        insert_corpus(
            corpus, out=tmp_path / "o", settings=replace(tossed, inclusion_probability=0.4)
        )
    with pytest.raises(ResultError, match="manifest of another plan"):
        insert_corpus(corpus, out=tmp_path / "o", settings=replace(tossed, inclusion_seed=6))


def test_coins_are_fresh_and_decide_nothing_else(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    tossed = replace(settings, inclusion_probability=0.5, canaries=20)
    one, other = (
        insert_corpus(corpus, out=tmp_path / name, settings=tossed)[1] for name in ("a", "b")
    )
    # Two fresh seeds are equal once in 2^63, and 40 coins fall alike once in 2^40.
    assert one.plan.inclusion_seed != other.plan.inclusion_seed
    assert [c.role for c in one.entries] != [c.role for c in other.entries]
    assert replace(one.plan, inclusion_seed=0) == replace(other.plan, inclusion_seed=0)
    assert [replace(c, role="canary") for c in one.entries] == [
        replace(c, role="canary") for c in other.entries
    ]
    assert one.references("pin", 50) == other.references("pin", 50)
    again = replace(tossed, inclusion_seed=one.plan.inclusion_seed)
    path, same = insert_corpus(corpus, out=tmp_path / "c", settings=again)
    assert same == one
    assert path.read_bytes() == (tmp_path / "a" / "corpus" / "corpus.txt").read_bytes()


def test_coins_are_tossed_once_for_a_directory(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    tossed = replace(settings, inclusion_probability=0.5, canaries=20)
    path, first = insert_corpus(corpus, out=tmp_path / "o", settings=tossed)
    whole = path.read_bytes()
    assert insert_corpus(corpus, out=tmp_path / "o", settings=tossed)[1] == first
    path.write_bytes(whole[:100])
    assert insert_corpus(corpus, out=tmp_path / "o", settings=tossed)[1] == first
    assert path.read_bytes() == whole
    assert (tmp_path / "o" / "manifest.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ResultError, match="manifest of another plan"):
        insert_corpus(corpus, out=tmp_path / "o", settings=settings)


def test_a_preview_tosses_no_fresh_coin(corpus: Path, settings: RunSettings) -> None:
    tossed = replace(settings, inclusion_probability=0.25, canaries=20)
    would = preview([corpus], settings=tossed)
    assert would.expected
    assert (would.canaries, would.held_out, would.insertions) == (10, 30, 155)
    everyone = preview([corpus], settings=replace(settings, canaries=20))
    assert would.bytes_added == round(everyone.bytes_added / 4)
    assert not everyone.expected


def test_secrets_are_fresh_and_drawn_once_for_a_directory(
    corpus: Path, settings: RunSettings, tmp_path: Path
) -> None:
    fresh = replace(settings, seed=None)
    path, first = insert_corpus(corpus, out=tmp_path / "a", settings=fresh)
    other = insert_corpus(corpus, out=tmp_path / "b", settings=fresh)[1]
    assert first.plan.seed != other.plan.seed
    assert [one.text for one in first.entries] != [one.text for one in other.entries]
    whole = path.read_bytes()
    path.unlink()
    assert insert_corpus(corpus, out=tmp_path / "a", settings=fresh)[1] == first
    assert path.read_bytes() == whole
