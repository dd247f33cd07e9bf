from dataclasses import replace
from pathlib import Path

import pytest

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
    would = preview(corpus, settings=settings)
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
    tossed = replace(settings, canaries=None, coins=0.5, candidates=20)
    _, manifest = insert_corpus(corpus, out=tmp_path / "o", settings=tossed)
    assert (manifest.plan.canaries, manifest.plan.coins) == (20, 0.5)
    roles = [one.role for one in manifest.canaries]
    assert roles.count("canary") + roles.count("excluded") == 40
    would = preview(corpus, settings=tossed)
    assert (would.canaries, would.excluded) == (roles.count("canary"), roles.count("excluded"))
    with pytest.raises(ResultError, match="manifest of another plan"):
        insert_corpus(corpus, out=tmp_path / "o", settings=replace(tossed, coins=0.4))
