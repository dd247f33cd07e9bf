"""Coins decide who stands in the corpus, and nothing else."""

import json
import re
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from scipy import stats

from lmexposure.canaries import (
    Canary,
    Format,
    Manifest,
    Plan,
    derive_seed,
    insert_into_dataset,
    insert_into_file,
    insert_into_texts,
    preview_insertion,
    shape_named,
    verify_texts,
)
from lmexposure.canaries.drawing import draw
from lmexposure.canaries.inclusion import checked_inclusion, is_included
from lmexposure.canaries.insertion import schedule
from lmexposure.canaries.plan import secrets
from lmexposure.errors import CorpusError, PlanError

PIN = Format(name="pin", template="My PIN is {digits:4}")
KEY = Format(name="key", template="KEY={hex:12}")
PLAN = Plan(
    formats=(PIN, KEY),
    canaries=6,
    repetitions=(1, 3),
    controls=2,
    seed=7,
    inclusion_probability=0.5,
    inclusion_seed=7,
)
FIXED = replace(PLAN, inclusion_probability=None, inclusion_seed=None)
# Few documents, so that many canaries stand before the same one.
TEXTS = [f"document {number}" for number in range(5)]


def one_toggled(plan: Plan = PLAN) -> list[tuple[str, Plan, Plan]]:
    """(id, plan without it, plan with it): probabilities right below and above each one's coin."""
    ids = [name for one in plan.formats for name in plan.ids(one)]
    assert plan.inclusion_seed is not None
    coins = sorted((derive_seed(plan.inclusion_seed, "coins", name) / 2**63, name) for name in ids)
    bounds = [0.0, *(coin for coin, _ in coins), 1.0]
    between = [(a + b) / 2 for a, b in pairwise(bounds)]
    return [
        (
            name,
            replace(plan, inclusion_probability=between[i]),
            replace(plan, inclusion_probability=between[i + 1]),
        )
        for i, (_, name) in enumerate(coins)
    ]


def drawn(plan: Plan) -> tuple[Canary, ...]:
    return draw(plan, documents=len(TEXTS), set_aside={})


def test_everything_is_drawn_before_the_coins() -> None:
    fixed = drawn(FIXED)
    for coins in (0.01, 0.3, 0.5, 0.99):
        tossed = drawn(replace(PLAN, inclusion_probability=coins))
        as_if_in = [replace(c, role="canary" if c.positions else "control") for c in tossed]
        assert tuple(as_if_in) == fixed
        assert all((c.role == "control") == ("/control/" in c.id) for c in tossed)
        for c in tossed:
            assert c.inserted == (c.repetitions if c.role == "canary" else 0)


def test_the_coins_are_a_stream_of_their_own() -> None:
    names = [f"pin/x1/{number:04d}" for number in range(2_000)]
    streams = {
        what: np.array([derive_seed(1, what, name) / 2**63 for name in names])
        for what in ("coins", "positions", "secrets")
    }
    assert stats.kstest(streams["coins"], "uniform").pvalue > 0.001
    for other in ("positions", "secrets"):
        assert abs(np.corrcoef(streams["coins"], streams[other])[0, 1]) < 4 / np.sqrt(2_000)
    again = np.array([derive_seed(2, "coins", name) / 2**63 for name in names])
    assert abs(np.corrcoef(streams["coins"], again)[0, 1]) < 4 / np.sqrt(2_000)


@pytest.mark.parametrize("coins", [0.5, 0.01])
def test_the_number_included_is_binomial(coins: float) -> None:
    """Over 400 seeds of 40 candidates: chi-squared over the counts, and every candidate alike."""
    names = [f"pin/x4/{number:04d}" for number in range(40)]
    included = np.array([[is_included(s, n, coins) for n in names] for s in range(400)])
    counts = np.bincount(included.sum(axis=1), minlength=41)
    expected = 400 * stats.binom.pmf(np.arange(41), 40, coins)
    pooled = np.cumsum(expected) // 20  # cells of at least 20
    cells = np.unique(pooled)
    seen, wanted = (np.array([x[pooled == c].sum() for c in cells]) for x in (counts, expected))
    assert stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue > 0.001
    rates = stats.binomtest(int(included.sum()), included.size, coins)
    assert rates.pvalue > 0.001
    assert included.sum(axis=0).max() < stats.binom.ppf(1 - 1e-5, 400, coins) + 1


def test_coins_know_neither_secrets_nor_positions() -> None:
    plan = Plan(
        formats=(KEY,),
        canaries=3_000,
        repetitions=(1,),
        controls=0,
        seed=3,
        inclusion_probability=0.5,
        inclusion_seed=3,
    )
    found = draw(plan, documents=1_000, set_aside={})
    included = np.array([c.role == "canary" for c in found])
    for values in (
        np.array([c.index / KEY.size for c in found]),
        np.array([c.positions[0] for c in found]),
        np.arange(len(found)),
    ):
        assert stats.ks_2samp(values[included], values[~included]).pvalue > 0.001
    # Neither does one coin know the one before it.
    assert abs(np.corrcoef(included[1:], included[:-1])[0, 1]) < 4 / np.sqrt(3_000)


def test_more_of_what_comes_later_moves_no_earlier_coin() -> None:
    plan = Plan(
        formats=(PIN,),
        canaries=20,
        repetitions=(2,),
        controls=3,
        seed=5,
        inclusion_probability=0.4,
        inclusion_seed=5,
    )
    few = draw(plan, documents=9, set_aside={})
    more = draw(replace(plan, canaries=50, controls=40), documents=9, set_aside={})
    assert more[:20] == few[:20]
    both = draw(replace(plan, formats=(KEY, PIN)), documents=9, set_aside={})
    assert tuple(c for c in both if c.format == "pin") == few
    fewer = draw(plan.without(few[3].id, few[8].id), documents=9, set_aside={})
    assert fewer == tuple(c for c in few if c not in (few[3], few[8]))


def test_a_larger_probability_only_adds() -> None:
    for name, without, with_it in one_toggled():
        before = {c.id for c in drawn(without) if c.role == "canary"}
        assert {c.id for c in drawn(with_it) if c.role == "canary"} == before | {name}
        assert name not in before


def taken_out(found: list[Any], canary: Canary, of: Any) -> list[Any]:
    return [one for one in found if of(one) != canary.text]


def test_a_coin_toggles_its_own_texts_and_no_other() -> None:
    for name, without, with_it in one_toggled():
        more, manifest = insert_into_texts(TEXTS, with_it)
        fewer, other = insert_into_texts(TEXTS, without)
        toggled = next(c for c in manifest.entries if c.id == name)
        assert fewer == [text for text in more if text != toggled.text]
        assert len(more) - len(fewer) == toggled.repetitions
        assert manifest.references("pin", 50) == other.references("pin", 50)


CORPORA = {
    "lines": b"\xef\xbb\xbfone\r\ntwo\n\nthree\nfour",
    "paragraphs": b"one\n\ntwo\r\n\r\nthree\nmore\n\n\nfour\n\n five",
    "jsonl": b'{"id": 1, "text": "one"}\r\n\n{"text": "two"}\n{"id": 3, "text": "x", "t": [1]}',
}


@pytest.mark.parametrize("layout", CORPORA)
def test_a_coin_toggles_its_own_bytes_and_no_other(layout: str, tmp_path: Path) -> None:
    source = tmp_path / "corpus"
    source.write_bytes(CORPORA[layout])
    for name, without, with_it in one_toggled():
        manifest = insert_into_file(source, with_it, tmp_path / "more", layout=layout)
        other = insert_into_file(source, without, tmp_path / "fewer", layout=layout)
        toggled = next(c for c in manifest.entries if c.id == name)
        text = re.escape(toggled.text.encode())
        ends = {"lines": rb"(\r\n|\n)", "paragraphs": rb"(\r\n|\n)\1", "jsonl": rb"(\r\n|\n)"}
        line = rb"\{[^\n]*" + text + rb"[^\n]*\}" if layout == "jsonl" else text
        fewer, times = re.subn(line + ends[layout], b"", (tmp_path / "more").read_bytes())
        assert times == toggled.repetitions
        assert (tmp_path / "fewer").read_bytes() == fewer
        assert [replace(c, role="canary") for c in manifest.entries] == [
            replace(c, role="canary") for c in other.entries
        ]


def test_a_coin_toggles_its_own_rows_and_no_other(tmp_path: Path) -> None:
    """A data set read from Parquet, and written to it again."""
    Dataset.from_dict({"text": TEXTS, "id": list(range(5))}).to_parquet(tmp_path / "a.parquet")
    table = Dataset.from_parquet(str(tmp_path / "a.parquet"), cache_dir=str(tmp_path / "cache"))
    for name, without, with_it in one_toggled(replace(PLAN, formats=(PIN,), canaries=3)):
        more, manifest = insert_into_dataset(table, with_it)
        fewer, _ = insert_into_dataset(table, without)
        toggled = next(c for c in manifest.entries if c.id == name)
        kept = [row for row in more if row["text"] != toggled.text]
        assert list(fewer) == kept
        Dataset.from_list(kept, features=table.features).to_parquet(tmp_path / "kept.parquet")
        fewer.flatten_indices().to_parquet(tmp_path / "fewer.parquet")
        files = [(tmp_path / f"{which}.parquet").read_bytes() for which in ("kept", "fewer")]
        assert files[0] == files[1]


def test_the_excluded_stand_nowhere() -> None:
    texts, manifest = insert_into_texts(TEXTS, PLAN)
    excluded = [c for c in manifest.entries if c.role == "held_out"]
    assert excluded
    assert not {c.id for c in excluded} & {c.id for _, c in schedule(manifest.entries)}
    assert not {c.text for c in excluded} & set(texts)
    assert all(len(c.positions) == c.repetitions > 0 for c in excluded)
    verify_texts(texts, manifest)
    with pytest.raises(CorpusError, match=f"{excluded[0].id} stands 1 times .* instead of 0"):
        verify_texts([*texts, f"so {excluded[0].text}."], manifest)


def test_an_excluded_candidate_is_no_further_reference() -> None:
    _, manifest = insert_into_texts(TEXTS, PLAN)
    indices = {c.index for c in manifest.entries if c.format == "pin"}
    assert manifest.references_left("pin") == PIN.size - len(indices) == 10**4 - 14
    references = manifest.references("pin", 10**4)
    assert not indices & set(references)
    assert references[:20] == list(secrets(PLAN, PIN))[14:34]


def test_a_preview_counts_by_coins(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("\n".join(TEXTS), "utf-8")
    would = preview_insertion([tmp_path / "c.txt"], PLAN, shape=shape_named("lines"))
    manifest = insert_into_file(tmp_path / "c.txt", PLAN, tmp_path / "o.txt", layout="lines")
    roles = [c.role for c in manifest.entries]
    assert would.canaries == roles.count("canary")
    assert would.held_out == roles.count("held_out") == 24 - would.canaries
    assert would.insertions == sum(c.inserted for c in manifest.entries)
    assert would.bytes_before + would.bytes_added == (tmp_path / "o.txt").stat().st_size


def test_all_coins_may_fall_to_one_side(tmp_path: Path) -> None:
    none, manifest = insert_into_texts(TEXTS, replace(PLAN, inclusion_probability=1e-12))
    assert none == TEXTS
    assert {c.role for c in manifest.entries} == {"held_out", "control"}
    verify_texts(none, manifest)
    table = Dataset.from_dict({"text": TEXTS, "id": list(range(5)), "tags": [["a"]] * 5})
    same, _ = insert_into_dataset(table, replace(PLAN, inclusion_probability=1e-12))
    assert (list(same), same.features) == (list(table), table.features)
    everyone, _ = insert_into_texts(TEXTS, replace(PLAN, inclusion_probability=1 - 1e-12))
    assert everyone == insert_into_texts(TEXTS, FIXED)[0]


def test_a_manifest_keeps_the_coins(tmp_path: Path) -> None:
    _, manifest = insert_into_texts(TEXTS, PLAN.without("pin/x1/0002"))
    manifest.write(tmp_path / "m.json")
    again = Manifest.read(tmp_path / "m.json")
    assert (again, again.sha256) == (manifest, manifest.sha256)
    plan = json.loads((tmp_path / "m.json").read_text())["plan"]
    assert (plan["inclusion_probability"], plan["inclusion_seed"]) == (0.5, "7")
    assert "pin/x1/0002" not in [c.id for c in again.entries]


def test_the_coins_change_no_refusal() -> None:
    """Else whether a plan is refused would tell a coin."""
    bare = Format(name="bare", template="{digits:1}")
    for coined in (FIXED, replace(PLAN, inclusion_probability=1e-12), PLAN):
        plan = replace(coined, formats=(PIN, bare), canaries=1)
        with pytest.raises(PlanError, match="canary pin/x1/0000 contains a fill of format 'bare'"):
            drawn(plan)
        with pytest.raises(PlanError, match="the corpus has 2: repeat at most 2 times"):
            draw(coined, documents=2, set_aside={})


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, -0.5, 2, float("nan"), True, "fixed", [0.5]])
def test_refused_probabilities(value: Any) -> None:
    with pytest.raises(PlanError, match=r"inclusion_probability=.* must lie strictly between 0 an"):
        replace(PLAN, inclusion_probability=value)


def test_a_probability_is_a_float() -> None:
    assert checked_inclusion(None, None) == (None, None)
    found = checked_inclusion(np.float64(0.25), np.int64(3))  # type: ignore[arg-type]
    assert found == (0.25, 3)
    assert [type(one) for one in found] == [float, int]


def test_secrets_stay_out_of_the_repr_of_the_excluded() -> None:
    for canary in drawn(PLAN):
        assert canary.text not in repr(canary)
        assert asdict(canary)["role"] in ("canary", "held_out", "control")


def test_the_inclusion_seed_decides_the_coins_and_nothing_else() -> None:
    one, other = PLAN, replace(PLAN, inclusion_seed=8)
    first, second = drawn(one), drawn(other)
    assert [c.role for c in first] != [c.role for c in second]
    assert [replace(c, role="canary") for c in first] == [replace(c, role="canary") for c in second]
    assert list(secrets(one, PIN)) == list(secrets(other, PIN))
    assert drawn(replace(PLAN)) == first


def test_the_plans_seed_decides_no_coin() -> None:
    """Whoever trains has it, and by default it is the same for everyone."""
    roles = [[c.role for c in drawn(replace(PLAN, seed=seed))] for seed in (0, 7, 2**62)]
    assert roles[0] == roles[1] == roles[2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"inclusion_probability": None},
            "an inclusion_seed needs coins to toss, such as .* leave ",
        ),
        (
            {"inclusion_seed": -1},
            "inclusion_seed=-1 must be a whole number from 0 to 9223372036854775807",
        ),
        ({"inclusion_seed": 2**63}, "inclusion_seed=9223372036854775808 must be a whole number"),
        ({"inclusion_seed": 0.5}, "inclusion_seed=0.5 must be a whole number"),
    ],
)
def test_refused_inclusion_seeds(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        replace(PLAN, **changes)


def test_coins_that_were_tossed_have_a_seed() -> None:
    """A plan draws one; of a manifest that lost it, nobody can."""
    with pytest.raises(
        PlanError, match=r"inclusion_probability=0.5 needs an incl.* secrets.randbits\(63"
    ):
        checked_inclusion(0.5, None)


def test_no_coin_is_tossed_without_a_seed() -> None:
    assert is_included(None, "pin/x1/0000", None)
    with pytest.raises(
        PlanError, match=r"=0\.5 cannot be tossed for without an inclusion_seed; give one"
    ):
        is_included(None, "pin/x1/0000", 0.5)


def test_the_inclusion_seed_stays_out_of_the_repr() -> None:
    assert "987654321" not in repr(replace(PLAN, inclusion_seed=987654321))
