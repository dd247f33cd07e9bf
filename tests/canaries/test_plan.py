"""What a plan draws, and what it refuses."""

import time
from pathlib import Path

import pytest

from lmexposure.canaries import Format, Plan
from lmexposure.canaries.drawing import draw
from lmexposure.canaries.plan import secrets
from lmexposure.errors import FormatError, PlanError

PIN = Format(name="pin", template="My PIN is {digits:2}")
KEY = Format(name="key", template="KEY={hex:32}")


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


def test_leaving_one_out_moves_no_other() -> None:
    drawn = draw(plan(), documents=10, set_aside={})
    fewer = draw(plan().without("pin/x4/0001", "key/x1/0000"), documents=10, set_aside={})
    assert fewer == tuple(c for c in drawn if c.id not in {"pin/x4/0001", "key/x1/0000"})


def test_one_format_does_not_move_another() -> None:
    both = draw(plan(), documents=10, set_aside={})
    alone = draw(plan(formats=(KEY,)), documents=10, set_aside={})
    assert alone == tuple(canary for canary in both if canary.format == "key")


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
        ({"repetitions": 4}, "repetitions=4 must be a list, also of a single value"),
        ({"left_out": ("pin/x9/0000",)}, r"left_out=\['pin/x9/0000'\] names no canary"),
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


def test_a_fill_within_another_formats_canary_is_refused() -> None:
    bare = Format(name="bare", template="{digits:1}")
    with pytest.raises(PlanError, match="canary pin/x1/0000 contains a fill of format 'bare'"):
        draw(plan(formats=(PIN, bare), canaries=1), documents=9, set_aside={})


def test_secrets_stay_out_of_the_repr() -> None:
    canary = draw(plan(), documents=10, set_aside={})[-1]
    assert canary.text not in repr(canary)
    assert str(canary.index) not in repr(canary)


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


def test_a_seed_that_is_not_given_is_fresh_and_not_shown() -> None:
    first, second = (
        Plan(formats=(PIN,), canaries=1, repetitions=(1,), controls=0) for _ in range(2)
    )
    assert first.seed != second.seed
    assert "seed" not in repr(first)
