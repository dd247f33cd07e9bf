"""Excluded candidates are scored like canaries, and serve as references."""

import io
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from audit.small import task_of
from corpora import sentences
from known import known

from lmexposure._written import study
from lmexposure.audit import MeasureSettings, measure
from lmexposure.audit.format_scores import FormatScores, score_format
from lmexposure.canaries import Format, Manifest, Plan, load_format
from lmexposure.core import Part
from lmexposure.errors import ManifestError
from lmexposure.integrations import insert
from lmexposure.models import new_model
from lmexposure.scoring import log_perplexity

PIN = load_format("pin")
TWO = Format(name="two", template="My code is {digits:2}")
PLAN = Plan(
    formats=(PIN,),
    canaries=8,
    repetitions=(1, 2),
    controls=3,
    seed=1,
    inclusion_probability=0.5,
    inclusion_seed=1,
)
QUICK = MeasureSettings(
    references=100, extraction=False, draws=200, budget_steps=2_000, bootstraps=39, permutations=99
)


def manifest_of(plan: Plan) -> Manifest:
    return insert(sentences(50), plan).manifest


UNTRAINED = new_model(
    "lstm", sentences(50), seed=3, separator=None, extra_characters=PIN.characters + TWO.characters
)


def scored(manifest: Manifest, kept: Part | None = None) -> FormatScores:
    directory: Any = (
        None if kept is None else SimpleNamespace(work=SimpleNamespace(part=lambda name: kept))
    )
    return score_format(replace(task_of(UNTRAINED, manifest, QUICK), directory=directory), "pin")


def test_every_text_has_its_own_score(tmp_path: Path) -> None:
    manifest = manifest_of(PLAN)
    with study(tmp_path):
        scores = scored(manifest, Part(path=tmp_path / "kept.npz"))
        again = scored(manifest, Part(path=tmp_path / "kept.npz"))
    held_out = [c for c in manifest.entries if c.role == "held_out"]
    assert 0 < len(held_out) < 16
    assert list(scores.held_out) == held_out
    assert list(scores.canaries) == [c for c in manifest.entries if c.role in ("canary", "control")]
    assert scores.reference_bits.size == len(held_out) + 100
    drawn = [PIN.text(i) for i in manifest.references("pin", 100)]
    for bits, texts in (
        (scores.canary_bits, [c.text for c in scores.canaries]),
        (scores.reference_bits[: len(held_out)], [c.text for c in scores.held_out]),
        (scores.reference_bits[len(held_out) :], drawn),
    ):
        alone = [
            log_perplexity(UNTRAINED.model, UNTRAINED.tokenizer, [t], context=None)[0]
            for t in texts
        ]
        assert bits == pytest.approx(alone, abs=1e-3)
    assert np.array_equal(again.bits, scores.bits)
    assert np.array_equal(again.secret_bits, scores.secret_bits)


def test_kept_scores_of_another_format_are_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = manifest_of(PLAN)
    kept, other = (Part(path=tmp_path / name) for name in ("kept.npz", "other.npz"))
    with study(tmp_path):
        scores = scored(manifest, kept)
        columns = {name: getattr(scores, name) for name in ("bits", "tokens", "secret_bits")}
        stream = io.BytesIO()
        np.savez(stream, slower="", **columns | {"bits": scores.bits + 1})
        other.write(stream.getvalue())
        kept.path.write_bytes(other.path.read_bytes())
        assert np.array_equal(scored(manifest, kept).bits, scores.bits)
        assert "kept.npz is damaged, or another part than its name says: it is made" in caplog.text
        assert "it is made again" in caplog.text
        for content in (b"", b"no archive", b"[]"):
            kept.write(content)
            assert np.array_equal(scored(manifest, kept).bits, scores.bits)
            assert "kept.npz is not as this version writes it: it is made again" in caplog.text
            caplog.clear()


def test_scoring_sees_no_coin() -> None:
    """The same model gives every fill the very same number, however the coins fell."""
    by_coins = []
    for coins in (0.2, 0.5, 0.9):
        one = scored(manifest_of(replace(PLAN, inclusion_probability=coins)))
        ids = [c.id for c in (*one.canaries, *one.held_out)]
        by_coins.append(dict(zip(ids, one.bits.tolist(), strict=False)))
        assert np.array_equal(one.reference_bits[len(one.held_out) :], one.bits[-100:])
    assert by_coins[0] == by_coins[1] == by_coins[2]


@pytest.mark.parametrize("coins", [(0.5, 1), (None, None)])
def test_ranks_in_a_small_space_are_exact_and_those_held_out_are_counted(coins: Any) -> None:
    values = dict(zip(("inclusion_probability", "inclusion_seed"), coins, strict=True))
    manifest = manifest_of(replace(PLAN, formats=(TWO,), **values))
    result = measure(UNTRAINED, manifest, settings=replace(QUICK, references=None))
    bits = log_perplexity(
        UNTRAINED.model, UNTRAINED.tokenizer, [TWO.text(i) for i in range(100)], context=None
    )
    never = np.delete(bits, [c.index for c in manifest.entries if c.role == "canary"])
    assert result.formats[0].exhaustive
    searched = [c for c in manifest.entries if c.role in ("canary", "control")]
    for canary, found in zip(searched, result.canaries, strict=True):
        rank = int((never <= bits[canary.index]).sum()) + (canary.role == "canary")
        assert found.exposure.method == "exact"
        assert found.exposure.rank == rank
        assert found.exposure.value == pytest.approx(math.log2(100 / rank))
        assert known(found.estimates["certificate"].value) <= known(found.exposure.value) + 1e-6
    sampled = measure(
        UNTRAINED, manifest, settings=replace(QUICK, references=None, estimate="sampled")
    )
    assert [c.exposure.rank for c in sampled.canaries if c.role == "canary"] == [
        c.exposure.rank for c in result.canaries if c.role == "canary"
    ]


def test_a_format_of_which_nothing_was_inserted_shows_its_controls() -> None:
    plan = replace(PLAN, formats=(PIN, TWO), canaries=1, repetitions=(1,), controls=2, seed=0)
    seeds = (replace(plan, inclusion_seed=seed) for seed in range(99))
    manifest = next(
        m
        for m in map(manifest_of, seeds)
        if [c.inserted for c in m.entries if c.role in ("canary", "held_out")] == [0, 1]
    )
    result = measure(UNTRAINED, manifest, settings=replace(QUICK, references=50))
    assert [row.role for row in result.summary] == ["control", "control", "canary"]
    bare = insert(sentences(50), replace(manifest.plan, controls=0)).manifest
    with pytest.raises(ManifestError, match="'pin': none of its 1 candidates was inserted, and it"):
        measure(UNTRAINED, bare, settings=replace(QUICK, references=50))
