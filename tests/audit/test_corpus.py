"""Insertion as a step of a run: once, previewed, and with the most that an audit can show."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audit.quick import RUN
from known import known

from lmexposure.audit import (
    RunSettings,
    fitted,
    insert_corpus,
    max_attainable,
    preview,
    share_warning,
)
from lmexposure.audit.corpus import MaxAttainable
from lmexposure.errors import PlanError, ResultError
from lmexposure.statistics import joint_bounds

COINS: dict[str, Any] = {"inclusion_probability": 0.5, "canaries": 20}


def test_writes_corpus_and_manifest_once(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    inserted, manifest = insert_corpus(corpus, out=out, settings=RUN)
    assert inserted == out / "corpus" / "corpus.txt"
    assert len(inserted.read_text().splitlines()) == 600 + 3 * (1 + 30) + 2 * 37  # witnesses
    before = inserted.stat().st_mtime_ns
    assert insert_corpus(corpus, out=out, settings=RUN)[1] == manifest
    assert inserted.stat().st_mtime_ns == before


@pytest.mark.parametrize("changes", [{}, COINS, {"seed": None}], ids=["fixed", "coins", "fresh"])
def test_secrets_and_coins_are_drawn_once_for_a_directory(
    corpus: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """And a damaged corpus is written again."""
    chosen = replace(RUN, **changes)
    path, first = insert_corpus(corpus, out=tmp_path / "a", settings=chosen)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    assert insert_corpus(corpus, out=tmp_path / "a", settings=chosen)[1] == first
    assert path.read_bytes() == whole
    assert (tmp_path / "a" / "manifest.json").stat().st_mode & 0o777 == 0o600
    other = insert_corpus(corpus, out=tmp_path / "b", settings=chosen)[1]
    fixed = not changes
    assert (other.plan == first.plan) is fixed
    assert ([e.text for e in other.entries] == [e.text for e in first.entries]) is fixed


@pytest.mark.parametrize(
    ("begun", "changes", "match"),
    [
        ({}, {"seed": 8}, "manifest of another plan"),
        ({}, {"layout": "paragraphs"}, "manifest of another layout"),
        ({"text_field": "text"}, {"text_field": "note"}, "manifest of another text field"),
        (
            {"existing": "set_aside"},
            {"existing": "refuse"},
            "another choice about existing secrets",
        ),
        (COINS, {"inclusion_probability": 0.4}, "manifest of another plan"),
        (COINS, {"inclusion_seed": 6}, "manifest of another plan"),
        (COINS, {"inclusion_probability": None}, "manifest of another plan"),
    ],
)
def test_refuses_what_another_insertion_left(
    corpus: Path, tmp_path: Path, begun: dict[str, Any], changes: dict[str, Any], match: str
) -> None:
    if "text_field" in begun:
        corpus = corpus.with_suffix(".jsonl")
        corpus.write_text('{"text": "x", "note": "y"}\n' * 40)
    if "existing" in begun:
        corpus.write_text(corpus.read_text() + "My PIN is 0042\n")
    chosen = replace(RUN, **begun)
    insert_corpus(corpus, out=tmp_path / "o", settings=chosen)
    with pytest.raises(ResultError, match=match):
        insert_corpus(corpus, out=tmp_path / "o", settings=replace(chosen, **changes))


def test_another_corpus_is_refused(corpus: Path, tmp_path: Path) -> None:
    insert_corpus(corpus, out=tmp_path / "o", settings=RUN)
    corpus.write_text("something else\n" * 40)
    with pytest.raises(ResultError, match="manifest of another corpus"):
        insert_corpus(corpus, out=tmp_path / "o", settings=RUN)


def test_references_that_the_space_cannot_give_are_refused_before_anything_is_written(
    corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "f.toml").write_text('name = "f"\ntemplate = "Code {digits:1}"\n')
    ten = {"formats": [str(tmp_path / "f.toml")], "canaries": 1, "controls": 8, "references": None}
    asked = {"references": 9_999}
    for changes, match in ((ten, "1 references do not fit"), (asked, "the largest plan that fits")):
        with pytest.raises(PlanError, match=match):
            insert_corpus(corpus, out=tmp_path / "out", settings=RUN.override(changes))
    assert not (tmp_path / "out").exists()


def test_preview_writes_nothing(corpus: Path, tmp_path: Path) -> None:
    would = preview([corpus], settings=RUN)
    assert (would.insertions, would.canaries, would.controls) == (93 + 74, 6, 8)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus.txt"]


def test_coins_decide_who_of_the_candidates_is_inserted(corpus: Path, tmp_path: Path) -> None:
    tossed = replace(RUN, **COINS, inclusion_seed=5)
    _, manifest = insert_corpus(corpus, out=tmp_path / "o", settings=tossed)
    plan = manifest.plan
    assert (plan.canaries, plan.inclusion_probability, plan.inclusion_seed) == (20, 0.5, 5)
    roles = [entry.role for entry in manifest.entries]
    assert roles.count("canary") + roles.count("held_out") == 40
    would = preview([corpus], settings=tossed)
    assert (would.canaries, would.held_out) == (roles.count("canary"), roles.count("held_out"))


def test_coins_are_fresh_and_decide_nothing_else(corpus: Path, tmp_path: Path) -> None:
    tossed = replace(RUN, inclusion_probability=0.5, canaries=20)
    one, other = (
        insert_corpus(corpus, out=tmp_path / name, settings=tossed)[1] for name in ("a", "b")
    )
    # Two fresh seeds are equal once in 2^63, and 40 coins fall alike once in 2^40.
    assert one.plan.inclusion_seed != other.plan.inclusion_seed
    assert [c.role for c in one.entries] != [c.role for c in other.entries]
    assert replace(one.plan, inclusion_seed=0) == replace(other.plan, inclusion_seed=0)
    judged, others = (
        [replace(c, role="canary") for c in m.entries if c.role != "witness"] for m in (one, other)
    )
    assert judged == others
    # Witnesses are of this very manifest, in the same places.
    assert [w.positions for w in one.witnesses] == [w.positions for w in other.witnesses]
    assert {w.index for w in one.witnesses}.isdisjoint(w.index for w in other.witnesses)
    assert one.references("pin", 50) == other.references("pin", 50)
    again = replace(tossed, inclusion_seed=one.plan.inclusion_seed)
    path, same = insert_corpus(corpus, out=tmp_path / "c", settings=again)
    assert same == one
    assert path.read_bytes() == (tmp_path / "a" / "corpus" / "corpus.txt").read_bytes()


def test_a_preview_tosses_no_fresh_coin(corpus: Path) -> None:
    tossed = replace(RUN, inclusion_probability=0.25, canaries=20)
    would = preview([corpus], settings=tossed)
    assert would.expected
    assert (would.canaries, would.held_out, would.insertions) == (10, 30, 155 + 74)
    everyone = preview([corpus], settings=replace(RUN, canaries=20))
    witnesses = 74 * len("witness mark abcd efgh ijkl\n")  # which toss no coin
    assert would.bytes_added == round((everyone.bytes_added - witnesses) / 4) + witnesses
    assert not everyone.expected
    bare = preview([corpus], settings=replace(tossed, witness=False))
    assert bare.insertions == 155


def most(probability: float | None, per_class: int, **values: object) -> MaxAttainable:
    """The ceiling of a plan with so many candidates of each class."""
    asked = {"inclusion_probability": probability, "canaries": per_class, "repetitions": (1,)}
    return known(max_attainable(RunSettings().override(asked | values)))


def ceiling(
    coins: float,
    candidates: int,
    *,
    significance: float = 0.05,
    delta: float = 0.0,
    repetitions: int = 1,
) -> float:
    """Of the primary bound, had coins of one seed fallen so and every guess been right."""
    included = np.random.default_rng(1).random(candidates) < coins
    bounds = joint_bounds(
        included.astype(float),
        included,
        inclusion_probability=coins,
        significance=significance,
        deltas=(delta,),
        repetitions=repetitions,
    )
    return known(bounds.primary.max_attainable)


@pytest.mark.parametrize(("coins", "candidates"), [(0.5, 30), (0.5, 400), (0.02, 600), (0.9, 300)])
@pytest.mark.parametrize("delta", [None, 1e-5])
def test_it_is_the_ceiling_of_the_primary_bound(
    coins: float, candidates: int, delta: float | None
) -> None:
    best = most(coins, candidates, delta=delta)
    assert best.epsilon == pytest.approx(ceiling(coins, candidates, delta=delta or 0.0), rel=1e-9)
    assert best.epsilon > 0
    assert (best.candidates, best.delta) == (candidates, delta or 0.0)
    assert f"on {candidates} candidates shows epsilon of at most" in best.sentence
    assert (best.warning, best.needed) == (None, None)


def test_formats_are_pooled_and_classes_share_the_significance() -> None:
    best = most(0.5, 100, formats=("pin", "random_number"), repetitions=(4, 2), delta=1e-6)
    assert best.candidates == 200
    alone = ceiling(0.5, 200, significance=0.025, delta=1e-6, repetitions=2)
    assert best.epsilon == pytest.approx(alone, rel=1e-9)


def test_no_coins_no_ceiling() -> None:
    assert max_attainable(RunSettings()) is None


@pytest.mark.parametrize(
    ("coins", "candidates"), [(1e-12, 20), (1 - 1e-12, 20), (0.5, 1), (0.1, 1)]
)
def test_next_to_nothing_shows_nothing(coins: float, candidates: int) -> None:
    best = most(coins, candidates)
    assert best.epsilon == 0
    assert "epsilon of at most 0 at delta 0" in best.sentence


@pytest.mark.parametrize("coins", [0.5, 0.05])
def test_a_claim_that_needs_more_is_told_how_many(coins: float) -> None:
    claim = {"claimed_epsilon": 4.0, "delta": 1e-5, "formats": ("pin", "random_number")}
    best = most(coins, 20, **claim)
    needed = known(best.needed)
    assert f"it takes about {needed} canaries" in known(best.warning)
    enough = most(coins, needed, **claim)
    assert enough.epsilon > 4
    assert enough.warning is None
    assert most(coins, int(needed / 1.06), **claim).epsilon <= 4


def test_a_claim_out_of_reach_is_told_so_without_a_number() -> None:
    best = most(0.5, 20, claimed_epsilon=50.0, delta=1e-5)
    assert best.needed is None
    said = f"no attack could show more than {best.epsilon:.3g}"
    assert known(best.warning).endswith(said)


def corpus_of(path: Path, documents: int, words: int = 20) -> Path:
    path.write_text("".join(f"{n} {'word ' * words}\n" for n in range(documents)))
    return path


@pytest.mark.parametrize(
    ("documents", "chosen"),
    [(200, (1,)), (4_500, (1, 4)), (5_000, (1, 8)), (20_000, (1, 4, 16))],
)
def test_numbers_by_default_go_by_the_size_of_the_corpus(
    tmp_path: Path, documents: int, chosen: tuple[int, ...]
) -> None:
    """The most repetitions with which nothing is to warn of; given ones are taken as they are."""
    corpus = corpus_of(tmp_path / "c.txt", documents)
    plan = RunSettings(formats=("pin",), controls=2, seed=1)
    found = fitted(plan, corpus)
    assert (found.canaries, found.repetitions) == (10, chosen)
    would = preview([corpus], settings=plan)
    large = share_warning(
        found, of_documents=would.share_of_documents, of_bytes=would.share_of_bytes
    )
    assert (large is None) == (documents > 200)
    given = replace(plan, repetitions=(2, 3), canaries=4)
    assert fitted(given, corpus).repetitions == (2, 3)
    _, manifest = insert_corpus(corpus, out=tmp_path / "o", settings=plan)
    assert manifest.plan.repetitions == chosen
    assert insert_corpus(corpus, out=tmp_path / "o", settings=plan)[1] == manifest


def test_a_stream_has_the_usual_numbers_and_a_directory_its_own(tmp_path: Path) -> None:
    corpus, plan = corpus_of(tmp_path / "c.txt", 2_000), RunSettings(formats=("pin",), controls=2)
    with corpus.open("rb") as stream:
        assert fitted(plan, stream).repetitions == (1, 4, 16)
    insert_corpus(corpus, out=tmp_path / "o", settings=replace(plan, repetitions=(1, 8)))
    corpus.unlink()
    assert fitted(plan, corpus, tmp_path / "o").repetitions == (1, 8)


def test_chats_are_measured_as_they_are_written(tmp_path: Path) -> None:
    turn = {"role": "user", "content": "How are you? " * 30}
    record = {"messages": [turn, {"role": "assistant", "content": "Fine. " * 30}]}
    plan = RunSettings(formats=("ssn", "api_key"), controls=2)
    chosen = []
    for number in (500, 20_000):
        corpus = tmp_path / f"{number}.jsonl"
        corpus.write_text(f"{json.dumps(record)}\n" * number)
        chosen.append(fitted(plan, corpus).repetitions)
    assert chosen == [(1,), (1, 4, 16)]


def test_the_size_of_a_packed_corpus_is_not_known(tmp_path: Path) -> None:
    """Two hundred thousand lines of a thousand bytes packed are no small corpus."""
    plan = RunSettings(formats=("pin",), controls=2)
    for number, chosen in ((30_000, (1, 4, 16)), (200, (1,))):
        plain = corpus_of(tmp_path / f"{number}.txt", number)
        packed = tmp_path / f"{number}.txt.gz"
        packed.write_bytes(gzip.compress(plain.read_bytes()))
        assert fitted(plan, packed).repetitions == chosen
