"""Chosen texts in one training: judged by their coins, and in no rank."""

import csv
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from audit.quick import QUICK
from audit.small import task_of
from corpora import sentences
from known import known

from lmexposure.audit import measure
from lmexposure.audit.workload import Paces, measurement_phases, measurement_title
from lmexposure.canaries import PARTNER, Format, Manifest, Plan
from lmexposure.core import write_report
from lmexposure.errors import InputError, ManifestError, ModelError
from lmexposure.integrations import insert
from lmexposure.models import (
    LoadedModel,
    LstmSizes,
    TrainingSettings,
    encode_in_context,
    new_model,
    train,
)
from lmexposure.scoring import score_encoded
from lmexposure.studies import KindMembership, Result

FEW = replace(QUICK, references=60, extraction=False, estimate="sampled")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words_behind(n: int, *, beginning: str, seed: int) -> list[str]:
    """Different words of eight letters behind the same beginning."""
    drawn = np.random.default_rng(seed).integers(0, 26, (n, 8))
    return [beginning + "".join(_LETTERS[i] for i in row) for row in drawn]


def chosen(n: int, name: str = "texts", *, kind: str | None = None, seed: int = 1) -> Format:
    words = words_behind(n, beginning="so we said ", seed=seed)
    return Format.of_texts(name, words, kind=kind or name, known=[len("so we said ")] * n)


PIN = Format(name="pin", template="My PIN is {digits:4}.")


def inserted(
    *formats: Format,
    candidates: int = 40,
    repetitions: tuple[int, ...] = (1,),
    probability: float | None = 0.5,
    coins: int = 3,
    documents: int = 60,
) -> tuple[list[str], Manifest]:
    plan = Plan(
        formats=formats,
        canaries=candidates,
        repetitions=repetitions,
        controls=4,
        seed=5,
        inclusion_probability=probability,
        inclusion_seed=None if probability is None else coins,
    )
    found = insert(sentences(documents), plan)
    return list(found.documents), found.manifest


def lstm(manifest: Manifest, sizes: LstmSizes | None = None) -> LoadedModel:
    characters = "".join(form.characters for form in manifest.plan.formats)
    return new_model(
        "lstm", sentences(60), seed=3, separator="\n", extra_characters=characters, lstm=sizes
    )


@cache
def both() -> Manifest:
    """Fair coins, a uniform fill and two kinds of two classes of repetitions."""
    formats = PIN, chosen(84), chosen(84, "near_duplicate", seed=2)
    return inserted(*formats, repetitions=(1, 3))[1]


@cache
def untrained() -> Result:
    return measure(lstm(both()), both(), settings=FEW)


def only(result: Result) -> KindMembership:
    (row,) = result.kinds
    return row


def test_a_model_that_never_saw_them_tells_nothing() -> None:
    rows = untrained().kinds
    assert [row.group for row in rows] == [
        "texts/x1",
        "texts/x3",
        "near_duplicate/x1",
        "near_duplicate/x3",
    ]
    for row in rows:
        area = known(row.area_under_curve)
        assert area.low < 0.5 < area.high
        assert known(row.test).p_value > 0.001
        assert known(row.bound).method == "one_run_audit"
    assert sum(known(row.bound).value > 0 for row in rows) == 0
    # The primary bound has the other half.
    assert sum(row.significance for row in rows) == pytest.approx(FEW.significance / 2)


def test_uniform_fills_alone_have_ranks() -> None:
    result = untrained()
    assert {canary.format for canary in result.canaries} == {"pin"}
    assert {form.name for form in result.formats} == {row.format for row in result.summary}
    assert [part.formats for part in known(result.privacy).classes] == [("pin",), ("pin",)]
    assert set(known(result.scores).formats.tolist()) == {"pin"}


def test_ranks_are_those_of_the_same_uniform_fills_alone() -> None:
    alone = inserted(PIN, repetitions=(1, 3))[1]
    model = lstm(both())
    here, there = untrained(), measure(model, alone, settings=FEW)
    assert [c.exposure for c in here.canaries] == [c.exposure for c in there.canaries]
    assert here.privacy == there.privacy


def test_the_secret_alone_is_scored() -> None:
    manifest, model = both(), lstm(both())
    row = untrained().kinds[0]
    entries = {entry.id: entry for entry in manifest.entries}
    drawn = [entries[candidate.id] for candidate in row.candidates]
    encoded = encode_in_context(
        model.tokenizer, [entry.text for entry in drawn], context=manifest.separator
    )
    # Characters are tokens: the last eight are the secret.
    expected = [float(bits[-8:].sum()) for bits in score_encoded(model.model, encoded).bits]
    assert [c.secret_bits for c in row.candidates] == pytest.approx(expected, abs=1e-3)
    assert [c.included for c in row.candidates] == [entry.role == "canary" for entry in drawn]


@cache
def learned(out: Path) -> Result:
    """A small model that saw each canary that is in 16 times in each of many epochs."""
    documents, manifest = inserted(PIN, chosen(54), candidates=50, repetitions=(16,))
    model = lstm(manifest, LstmSizes(layers=1, units=128))
    train(
        model,
        documents,
        settings=TrainingSettings(epochs=12, learning_rate=1e-2, patience=12),
        separator="\n",
        canaries={canary.text: canary.inserted for canary in manifest.canaries},
        out=out,
    )
    return measure(model, manifest, settings=FEW)


@pytest.fixture(scope="module")
def leaked(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return learned(tmp_path_factory.mktemp("learned"))


def test_what_was_learned_by_heart_is_told_by_its_coins(leaked: Result) -> None:
    row = only(leaked)
    assert known(row.area_under_curve).value > 0.95
    assert known(row.test).p_value < 0.01
    assert 0 < known(row.bound).value <= known(known(row.bound).max_attainable)
    assert row.note is None


def test_the_report_says_what_may_be_claimed(leaked: Result, tmp_path: Path) -> None:
    leaked.save(tmp_path)
    read = Result.read(tmp_path / "result.json")
    assert read.kinds == leaked.kinds
    (section,) = [s for s in read.document().sections if s.id == "kinds"]
    table = known(section.table)
    (cells,) = table.cells
    assert cells[0] == "texts/x16"
    assert "so they have no rank and no exposure" in section.notes[0]
    # 25 candidates held out do not resolve a rate of 1 %.
    assert cells[table.heads.index("TPR at FPR 1 %")] == "n/a"
    assert any("too few for a false-positive rate of 0.01" in note for note in section.notes)
    assert write_report(read, tmp_path / "report", formats=("html", "md", "csv"))
    for name in ("report.html", "report.md"):
        text = (tmp_path / "report" / name).read_text(encoding="utf-8")
        assert "Other kinds of canaries" in text
        assert "texts/x16" in text
    assert "texts: scored is all of it" in section.notes
    rows = list(csv.DictReader((tmp_path / "report" / "report.csv").read_text().splitlines()))
    mine = [row for row in rows if row["kind"]]
    assert [row["id"] for row in mine] == [c.id for c in read.kinds[0].candidates]
    assert {row["role"] for row in mine} == {"canary", "held_out"}
    assert [float(row["secret_bits"]) for row in mine] == [
        c.secret_bits for c in read.kinds[0].candidates
    ]
    assert all(row["exposure"] == "" for row in mine)


def test_nothing_is_shown_where_all_fills_are_uniform() -> None:
    alone = measure(lstm(both()), inserted(PIN)[1], settings=FEW)
    assert alone.kinds == ()
    assert all(section.id != "kinds" for section in alone.document().sections)


def test_no_secret_is_in_the_result(leaked: Result) -> None:
    secrets = [text.removeprefix("so we said ") for text in chosen(54).lists["texts"]]
    shown = json.dumps(leaked.to_dict())
    assert not [secret for secret in secrets if secret in shown]


def test_coins_that_are_not_fair_have_another_bound() -> None:
    manifest = inserted(PIN, chosen(54), candidates=50, probability=0.2)[1]
    row = only(measure(lstm(manifest), manifest, settings=FEW))
    assert row.canaries < row.held_out
    assert known(row.bound).method == "epsilon_from_exposure"
    assert known(row.bound).validity == "any-dp"
    assert known(row.bound).value == 0


def test_coins_that_fell_on_one_side_are_said() -> None:
    for candidates, coins, where in ((3, 0, "in"), (3, 0, "out")):
        for seed in range(coins, 200):
            manifest = inserted(PIN, chosen(8), candidates=candidates, coins=seed)[1]
            roles = {e.role for e in manifest.entries if e.format == "texts"} - {"control"}
            ranked = any(c.format == "pin" for c in manifest.canaries)
            if ranked and roles == {"canary" if where == "in" else "held_out"}:
                break
        else:
            pytest.fail("no seed gives such coins")
        row = only(measure(lstm(manifest), manifest, settings=FEW))
        assert (row.area_under_curve, row.test, row.bound) == (None, None, None)
        assert row.note == (
            f"the coins left all 3 candidates {where}, so there is nothing to compare them with; "
            "plan more candidates"
        )


def test_coins_that_fair_coins_hardly_give_are_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest's coins follow from its seed, so that only a bad seed can be so unlikely."""

    def refuse(*_: object, **__: object) -> object:
        raise InputError("58 of 60 went in")

    monkeypatch.setattr("lmexposure.audit.kinds.one_run_audit", refuse)
    row = measure(lstm(both()), both(), settings=FEW).kinds[0]
    assert (row.bound, row.note) == (None, "no bound: 58 of 60 went in")
    assert row.area_under_curve is not None


def test_without_coins_they_are_left_out_and_that_is_said() -> None:
    manifest = inserted(PIN, chosen(44), probability=None)[1]
    result = measure(lstm(manifest), manifest, settings=FEW)
    assert result.kinds == ()
    assert any("texts: chosen texts are judged by coins alone" in w for w in result.warnings)


def test_without_uniform_fills_nothing_is_measured() -> None:
    manifest = inserted(chosen(44))[1]
    with pytest.raises(ManifestError, match=r"no uniform canaries, .* but texts; insert with"):
        measure(lstm(manifest), manifest, settings=FEW)


def test_partners_of_near_duplicates_are_not_judged() -> None:
    pair = (
        chosen(44, "near_duplicate"),
        chosen(44, "near_duplicate_partner", kind=PARTNER, seed=9),
    )
    manifest = inserted(PIN, *pair)[1]
    assert only(measure(lstm(manifest), manifest, settings=FEW)).kind == "near_duplicate"


def test_a_text_that_the_model_cannot_read_is_named() -> None:
    words = [f"{word}\u00e9" for word in words_behind(44, beginning="", seed=1)]
    accents = Format.of_texts("accents", words, kind="texts")
    manifest = inserted(PIN, accents)[1]
    with pytest.raises(ModelError, match=r"format 'accents': text \d+ of .*text 0 is accents/x1/"):
        measure(lstm(both()), manifest, settings=FEW)


def test_the_part_with_ranks_keeps_the_name_of_the_whole() -> None:
    manifest = both()
    part = manifest.ranked
    assert part.sha256 == manifest.sha256
    assert set(part.formats) == {"pin"}
    assert part.entries == tuple(e for e in manifest.entries if e.format == "pin")
    assert part.references("pin", 50) == manifest.references("pin", 50)
    assert part.ranked is part
    less = manifest.plan.without("texts/x1/0000", "pin/x1/0001")
    there = insert(sentences(60), less).manifest.ranked
    assert there.plan.left_out == ("pin/x1/0001",)


def test_work_is_announced_for_chosen_texts() -> None:
    phases = [p.what for p in measurement_phases(task_of(lstm(both()), both(), FEW), Paces())]
    assert phases[-3:] == ["scoring texts", "scoring near_duplicate", "witness"]
    assert phases.count("scoring pin") == 1
    assert "of 1 format," in measurement_title(both(), FEW)
