"""What a plan draws, and what it refuses: streams, secrets, positions, coins."""

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import islice, pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from manifest_files import FIXED, LONG_PIN, SHORT_KEY, TOSSED, read, signed, today
from scipy import stats

import lmexposure as lx
from lmexposure import insert, verify
from lmexposure.canaries import (
    WITNESS,
    Canary,
    Format,
    Manifest,
    Plan,
    derive_seed,
    permutation,
    witness_copies,
)
from lmexposure.canaries.insertion import Placement
from lmexposure.canaries.plan import draw, is_included, secrets
from lmexposure.errors import FormatError, ManifestError, PlanError
from lmexposure.studies import SweepSettings

PIN = Format(name="pin", template="My PIN is {digits:2}")
KEY = Format(name="key", template="KEY={hex:32}")
# Few documents, so that many canaries stand before the same one.
TEXTS = [f"document {number}" for number in range(5)]


def test_streams_are_separate_and_stable() -> None:
    # Pinned: a change would draw other secrets for every plan that people have.
    assert derive_seed(1, "secrets", "pin") == 8263133439030052633
    assert derive_seed(1, "a", "b") != derive_seed(1, "ab")
    assert 0 <= derive_seed(2**62, "x") < 2**63
    assert list(islice(permutation(10**40, 5), 2)) == [
        1918222030110877080864577972949271425404,
        6465853633015946689100132201474313069798,
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 17, 100])
def test_a_permutation_holds_every_number_once(size: int) -> None:
    for seed in range(20):
        assert sorted(permutation(size, seed)) == list(range(size))


def test_every_order_is_equally_likely() -> None:
    """All 24 orders of four numbers over 4,800 seeds."""
    counts = Counter(tuple(permutation(4, seed)) for seed in range(4800))
    assert set(counts) == set(permutations(range(4)))
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.parametrize("size", [10, 1000, 10**9, 10**40])
def test_first_and_later_numbers_are_uniform(size: int) -> None:
    drawn = [list(islice(permutation(size, seed), 3)) for seed in range(2000)]
    for place in range(3):
        tenths = Counter(numbers[place] * 10 // size for numbers in drawn)
        assert stats.chisquare([tenths[tenth] for tenth in range(10)]).pvalue > 1e-3


def test_neighbouring_draws_are_independent() -> None:
    pairs = Counter(
        tuple(number * 5 // 10**9 for number in islice(permutation(10**9, seed), 2))
        for seed in range(5000)
    )
    assert len(pairs) == 25
    assert stats.chisquare(list(pairs.values())).pvalue > 1e-3


def plan(**changes: object) -> Plan:
    settings = {
        "formats": (PIN, KEY),
        "canaries": 3,
        "repetitions": (1, 4),
        "controls": 2,
        "seed": 5,
    }
    return Plan(**{**settings, **changes})  # type: ignore[arg-type]


def test_every_class_and_the_controls_are_drawn() -> None:
    drawn = draw(plan(), documents=10, set_aside={})
    assert [canary.id for canary in drawn if canary.format == "pin"] == [
        *("pin/x1/0000", "pin/x1/0001", "pin/x1/0002"),
        *("pin/x4/0000", "pin/x4/0001", "pin/x4/0002"),
        *("pin/control/0000", "pin/control/0001"),
    ]
    for canary in drawn:
        one = {"pin": PIN, "key": KEY}[canary.format]
        assert one.text(canary.index) == canary.text
        assert canary.role == ("control" if "/control/" in canary.id else "canary")
        assert canary.repetitions == len(canary.positions) == len(set(canary.positions))
        assert all(0 <= place < 10 for place in canary.positions)
        assert list(canary.positions) == sorted(canary.positions)


def test_secrets_are_disjoint_and_more_of_the_later_move_none_of_the_earlier() -> None:
    drawn = draw(plan(), documents=10, set_aside={})
    pins = [canary.index for canary in drawn if canary.format == "pin"]
    assert len(set(pins)) == 8
    more = draw(plan(controls=20), documents=10, set_aside={})
    assert [c for c in more if c.role == "canary"] == [c for c in drawn if c.role == "canary"]
    assert list(secrets(plan(), PIN))[:8] == pins
    assert sorted(secrets(plan(), PIN)) == list(range(100))


def test_fills_set_aside_are_never_drawn() -> None:
    aside = set(range(80))
    drawn = draw(plan(), documents=10, set_aside={"pin": aside})
    assert not aside & {canary.index for canary in drawn if canary.format == "pin"}
    with pytest.raises(PlanError, match=r"93 of them set aside; .* has 2 canaries per class"):
        draw(plan(), documents=10, set_aside={"pin": range(93)})


def test_positions_are_uniform_over_documents() -> None:
    drawn = draw(plan(canaries=400, formats=(KEY,)), documents=8, set_aside={})
    places = [place for canary in drawn for place in canary.positions]
    for place in range(8):
        # 2,000 occurrences over 8 documents: 250 each, standard deviation below 15.
        assert abs(places.count(place) - 250) < 60


def test_the_largest_plan_that_fits_is_named() -> None:
    with pytest.raises(PlanError, match="has 49 canaries per class with these controls"):
        plan(canaries=50)
    assert plan(canaries=49).secrets_per_format == 100
    with pytest.raises(PlanError, match="50 canaries per class with no controls and no ref"):
        plan(controls=99)
    with pytest.raises(PlanError, match="8 controls and 95 references do not fit"):
        plan(canaries=1, controls=8).check_space(references=95)
    plan(canaries=1, controls=8).check_space(references=90)


def test_more_repetitions_than_documents() -> None:
    assert draw(plan(), documents=4, set_aside={})
    with pytest.raises(PlanError, match="the corpus has 3: repeat at most 3 times"):
        draw(plan(), documents=3, set_aside={})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"canaries": 0}, "canaries=0 must be a whole number at least 1"),
        ({"canaries": 1.5}, "canaries=1.5 must be a whole number"),
        ({"controls": -1}, "controls=-1 must be a whole number at least 0"),
        ({"seed": -1}, "seed=-1 must be a whole number from 0"),
        ({"seed": 2**63}, "must be a whole number from 0 to 9223372036854775807"),
        ({"repetitions": (0, 1)}, "repetitions=0 must be"),
        ({"repetitions": ()}, r"repetitions=\[\] must hold at least one value"),
        ({"repetitions": (2, 2)}, r"repetitions=\[2, 2\] must hold .* each once"),
        ({"formats": ()}, r"formats=\[\] must hold at least one"),
        ({"formats": (PIN, PIN)}, r"formats=\['pin', 'pin'\] must hold"),
        ({"formats": (PIN, 3)}, "formats holds one of type int; give names such as 'pin', paths"),
        ({"formats": 3}, "formats=3 must be a list, also of a single value"),
        ({"repetitions": "4"}, "repetitions='4' must be a list, also of a single value"),
        ({"left_out": ("pin/x9/0000",)}, r"left_out=\['pin/x9/0000'\] names no canary"),
        *(
            ({"inclusion_probability": value}, "inclusion_probability=.* must lie strictly between")
            for value in (0, 1, 0.0, 1.0, -0.5, 2, float("nan"), True, "fixed", [0.5])
        ),
        ({"inclusion_seed": 3}, "an inclusion_seed needs coins to toss, such as .* leave "),
        *(
            (
                {"inclusion_probability": 0.5, "inclusion_seed": value},
                f"inclusion_seed={value} must be a whole number{allowed}",
            )
            for value, allowed in ((-1, " from 0 to 9223372036854775807"), (2**63, ""), (0.5, ""))
        ),
    ],
)
def test_refused_values(changes: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan(**changes)


def test_formats_are_given_by_name_by_path_or_as_they_are(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('name = "own"\ntemplate = "Door {digits:5}"\n')
    made = Plan(formats=["pin", own, Format.load("random_number")])
    assert [form.name for form in made.formats] == ["pin", "own", "random_number"]
    assert Plan(formats="pin", seed=1) == Plan(formats=(Format.load("pin"),), seed=1)
    with pytest.raises(
        FormatError, match=r"no format 'pinn'; did you mean 'pin'\? The shipped ones are"
    ):
        Plan(formats=["pinn"])


def test_what_is_not_given_is_usual_or_fresh() -> None:
    usual, other = Plan(formats=["pin"], seed=None), Plan(formats=["pin"])
    assert (usual.canaries, usual.repetitions, usual.controls) == (10, (1, 4, 16), 32)
    assert usual.seed != other.seed
    assert usual.inclusion_seed is None
    tossed = [Plan(formats=["pin"], seed=1, inclusion_probability=0.5) for _ in range(2)]
    assert None not in (tossed[0].inclusion_seed, tossed[1].inclusion_seed)
    assert tossed[0].inclusion_seed != tossed[1].inclusion_seed
    # A manifest that lost its seed cannot; see test_manifest.py.
    assert replace(TOSSED, inclusion_seed=None).inclusion_seed not in (None, TOSSED.inclusion_seed)
    assert FIXED.role("pin/x1/0000") == "canary"


def test_a_plan_beyond_all_measure_is_refused_before_its_canaries_are_named() -> None:
    """In no time, with the numbers: by the format's size, else by ours."""
    begun = time.process_time()
    for canaries, template, message in (
        (10**30, "Number {digits:9}", r"has 1000000000 secrets.*the largest plan that fits has 33"),
        (
            10**30,
            "Number {digits:40}",
            rf"canaries={10**30} in each of 3 classes .* at most 10000000",
        ),
    ):
        one = Format(name="a", template=template)
        with pytest.raises(PlanError, match=message):
            Plan(formats=(one,), canaries=canaries, repetitions=(1, 4, 16), controls=32, seed=0)
        with pytest.raises(PlanError):
            Plan(formats=(one,), canaries=1, repetitions=(1,), controls=canaries, seed=0)
    with pytest.raises(FormatError, match="more than 10\\^4000 ways to fill"):
        Format(name="a", template="{digits:1000}-" * 2000)
    with pytest.raises(FormatError, match="holds 'b' more than once"):
        Format(name="a", template="{choice:l}", lists={"l": [*map(str, range(50_000)), *"bb"]})
    assert time.process_time() - begun < 5


def one_toggled(plan: Plan = TOSSED) -> list[tuple[str, Plan, Plan]]:
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
        tossed = drawn(replace(TOSSED, inclusion_probability=coins))
        as_if_in = [replace(c, role="canary" if c.positions else "control") for c in tossed]
        assert tuple(as_if_in) == fixed
        assert all((c.role == "control") == ("/control/" in c.id) for c in tossed)
        for c in tossed:
            assert c.inserted == (c.repetitions if c.role == "canary" else 0)


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
    plan = replace(TOSSED, formats=(SHORT_KEY,), canaries=3_000, repetitions=(1,), controls=0)
    found = draw(plan, documents=1_000, set_aside={})
    included = np.array([c.role == "canary" for c in found])
    for values in (
        np.array([c.index / SHORT_KEY.size for c in found]),
        np.array([c.positions[0] for c in found]),
        np.arange(len(found)),
    ):
        assert stats.ks_2samp(values[included], values[~included]).pvalue > 0.001
    # Neither does one coin know the one before it.
    assert abs(np.corrcoef(included[1:], included[:-1])[0, 1]) < 4 / np.sqrt(3_000)


def test_more_of_what_comes_later_moves_no_earlier_coin() -> None:
    plan = replace(TOSSED, formats=(LONG_PIN,), canaries=20, repetitions=(2,), controls=3)
    few = draw(plan, documents=9, set_aside={})
    more = draw(replace(plan, canaries=50, controls=40), documents=9, set_aside={})
    assert more[:20] == few[:20]
    both = draw(replace(plan, formats=(SHORT_KEY, LONG_PIN)), documents=9, set_aside={})
    assert tuple(c for c in both if c.format == "pin") == few
    fewer = draw(plan.without(few[3].id, few[8].id), documents=9, set_aside={})
    assert fewer == tuple(c for c in few if c not in (few[3], few[8]))


def test_a_coin_toggles_its_own_texts_and_no_other() -> None:
    for name, without, with_it in one_toggled():
        before = {c.id for c in drawn(without) if c.role == "canary"}
        assert {c.id for c in drawn(with_it) if c.role == "canary"} == before | {name}
        assert name not in before
        more, manifest = insert(TEXTS, with_it)
        fewer, other = insert(TEXTS, without)
        toggled = next(c for c in manifest.entries if c.id == name)
        assert fewer == [text for text in more if text != toggled.text]
        assert len(more) - len(fewer) == toggled.repetitions
        assert manifest.references("pin", 50) == other.references("pin", 50)


def test_the_excluded_stand_nowhere() -> None:
    texts, manifest = insert(TEXTS, TOSSED)
    excluded = [c for c in manifest.entries if c.role == "held_out"]
    assert excluded
    assert not {c.id for c in excluded} & {c.id for _, c in Placement(manifest.entries).schedule}
    assert not {c.text for c in excluded} & set(texts)
    assert all(len(c.positions) == c.repetitions > 0 for c in excluded)
    assert verify(texts, manifest).as_inserted
    more = verify([*texts, f"so {excluded[0].text}."], manifest)
    assert (more.as_inserted, more.uninvited) == (False, {excluded[0].id: 1})


def test_an_excluded_candidate_is_no_further_reference() -> None:
    _, manifest = insert(TEXTS, TOSSED)
    indices = {c.index for c in manifest.entries if c.format == "pin"}
    assert manifest.references_left("pin") == LONG_PIN.size - len(indices) == 10**4 - 14
    references = manifest.references("pin", 10**4)
    assert not indices & set(references)
    assert references[:20] == list(secrets(TOSSED, LONG_PIN))[14:34]


def test_all_coins_may_fall_to_one_side(tmp_path: Path) -> None:
    none, manifest = insert(TEXTS, replace(TOSSED, inclusion_probability=1e-12))
    assert none == TEXTS
    assert {c.role for c in manifest.entries} == {"held_out", "control"}
    assert verify(none, manifest).as_inserted
    table = Dataset.from_dict({"text": TEXTS, "id": list(range(5)), "tags": [["a"]] * 5})
    same, _ = insert(table, replace(TOSSED, inclusion_probability=1e-12))
    assert (list(same), same.features) == (list(table), table.features)
    everyone, _ = insert(TEXTS, replace(TOSSED, inclusion_probability=1 - 1e-12))
    assert everyone == insert(TEXTS, FIXED)[0]


def test_the_coins_change_no_refusal() -> None:
    """Else whether a plan is refused would tell a coin."""
    bare = Format(name="bare", template="{digits:1}")
    for coined in (FIXED, replace(TOSSED, inclusion_probability=1e-12), TOSSED):
        plan = replace(coined, formats=(LONG_PIN, bare), canaries=1)
        with pytest.raises(
            PlanError, match="canary pin/x1/0000 contains a secret of format 'bare'"
        ):
            drawn(plan)
        with pytest.raises(PlanError, match="the corpus has 2: repeat at most 2 times"):
            draw(coined, documents=2, set_aside={})


def test_a_probability_is_a_float() -> None:
    seed: Any = np.int64(3)
    tossed = replace(FIXED, inclusion_probability=np.float64(0.25), inclusion_seed=seed)
    found = (tossed.inclusion_probability, tossed.inclusion_seed)
    assert found == (0.25, 3)
    assert [type(one) for one in found] == [float, int]


def test_the_inclusion_seed_decides_the_coins_and_nothing_else() -> None:
    one, other = TOSSED, replace(TOSSED, inclusion_seed=8)
    first, second = drawn(one), drawn(other)
    assert [c.role for c in first] != [c.role for c in second]
    assert [replace(c, role="canary") for c in first] == [replace(c, role="canary") for c in second]
    assert list(secrets(one, LONG_PIN)) == list(secrets(other, LONG_PIN))
    assert drawn(replace(TOSSED)) == first
    # Not so the plan's seed: whoever trains has it, and by default it is the same for everyone.
    roles = [[c.role for c in drawn(replace(TOSSED, seed=seed))] for seed in (0, 7, 2**62)]
    assert roles[0] == roles[1] == roles[2]


def test_one_number_of_repetitions_is_a_list_of_one() -> None:
    assert Plan(formats="pin", repetitions=16).repetitions == (16,)


def test_secrets_and_seeds_stay_out_of_the_repr() -> None:
    for canary in drawn(TOSSED):
        assert canary.text not in repr(canary)
    assert str(drawn(TOSSED)[-1].index) not in repr(drawn(TOSSED)[-1])
    shown = repr(replace(TOSSED, seed=123456789, inclusion_seed=987654321))
    assert "123456789" not in shown
    assert "987654321" not in shown


FOUR = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(FOUR,), canaries=3, repetitions=(1, 2), controls=2, seed=0)
MANY = [f"document {number}" for number in range(200)]


@pytest.mark.parametrize(
    ("documents", "expected"),
    [(0, (0, 0)), (39, (0, 0)), (40, (1, 5)), (191, (1, 23)), (192, (2, 12)), (10**9, (2, 48))],
)
def test_how_many_and_how_often(documents: int, expected: tuple[int, int]) -> None:
    assert witness_copies(documents) == expected


def secrets_of(plan: Plan) -> list[str]:
    drawn = draw(plan, documents=200, set_aside={})
    return [entry.text for entry in drawn if entry.role == "witness"]


CHANGES: list[Callable[[Plan], Plan]] = [
    lambda plan: replace(plan, seed=1),
    lambda plan: replace(plan, canaries=4),
    lambda plan: replace(plan, repetitions=(1, 3)),
    lambda plan: replace(plan, formats=(Format(name="key", template="KEY={hex:8}"),)),
    lambda plan: replace(plan, inclusion_probability=0.5, inclusion_seed=1),
]


@pytest.mark.parametrize("change", CHANGES)
def test_another_plan_has_others_though_its_seed_is_the_same(
    change: Callable[[Plan], Plan],
) -> None:
    own = secrets_of(PLAN)
    assert len(own) == len(set(own)) == 2
    assert own == secrets_of(PLAN) == secrets_of(PLAN.without("pin/x1/0000"))
    assert not set(own) & set(secrets_of(change(PLAN)))


def test_they_go_in_are_counted_and_come_out() -> None:
    texts, manifest = lx.insert(MANY, PLAN)
    assert [entry.inserted for entry in manifest.witnesses] == [12, 12]
    for entry in manifest.witnesses:
        assert texts.count(entry.text) == 12
        assert entry not in manifest.canaries
    assert list(manifest.formats) == ["pin"]
    assert lx.verify(texts, manifest).as_inserted
    gone = manifest.witnesses[0]
    fewer = [text for text in texts if text != gone.text]
    assert lx.verify(fewer, manifest).changed == {gone.id: (12, 0)}
    assert lx.remove(texts, manifest) == MANY
    drawn = manifest.references(WITNESS.name, 300)
    assert len(set(drawn)) == 300
    assert not set(drawn) & {entry.index for entry in manifest.witnesses}


def test_a_corpus_with_witnesses_takes_a_second_insertion() -> None:
    once, first = lx.insert(MANY, PLAN)
    other = replace(PLAN, formats=(Format(name="key", template="KEY={hex:8}"),))
    twice, second = lx.insert(once, other)
    assert set(second.set_aside) == {"witness"}
    assert not {w.index for w in second.witnesses} & {w.index for w in first.witnesses}
    assert lx.verify(twice, second).as_inserted
    assert lx.remove(lx.remove(twice, second), first) == MANY


def test_names_and_fills_that_would_be_taken_for_one() -> None:
    for form in (
        Format(name="witness", template="w {hex:8}"),
        Format(name="d", template="mark {printable:1}"),
    ):
        with pytest.raises(PlanError, match=r"leave the witness out \(witness=False\)"):
            lx.insert(MANY, Plan(formats=[form], canaries=1, repetitions=(1,), controls=1, seed=0))
        plan = Plan(formats=[form], canaries=1, repetitions=(1,), controls=1, seed=0, witness=False)
        assert lx.insert(MANY, plan)[1].witnesses == ()


def test_a_manifest_keeps_them_and_refuses_others(tmp_path: Path) -> None:
    manifest = lx.insert(MANY, PLAN)[1]
    manifest.write(tmp_path / "manifest.json")
    again = Manifest.read(tmp_path / "manifest.json")
    assert (again, again.sha256) == (manifest, manifest.sha256)
    values: dict[str, Any] = json.loads(json.dumps(today(manifest)))
    dropped = {**values, "entries": values["entries"][:-1]}
    with pytest.raises(ManifestError, match="witness/0001 is missing from the manifest"):
        read(signed(dropped))
    values["entries"][-1]["positions"][0] = 10**6
    with pytest.raises(ManifestError, match="witness/0001 must have 12 different positions"):
        read(signed(values))


def test_a_sweep_has_none() -> None:
    assert SweepSettings().run.witness is False
