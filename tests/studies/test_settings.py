import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from lmexposure._settings import (
    Settings,
    parts_of,
    recorded_values,
    settings_in,
    settings_of,
    settings_taken,
)
from lmexposure._types import FROM_FILE
from lmexposure.errors import SettingsError
from lmexposure.studies import (
    CanifeStudySettings,
    DefencesSettings,
    IdentifierSettings,
    MeasureSettings,
    RunSettings,
    SweepSettings,
    VerbatimSettings,
)


def test_override_reaches_run_measurement_and_training() -> None:
    base = RunSettings(training={"epochs": 3, "patience": 1})
    new = base.override({"seed": 5, "references": 99, "repetitions": [1, 2], "epochs": 7})
    assert (new.seed, new.measure.bootstrap_seed, new.measure.references) == (5, 0, 99)
    assert new.repetitions == (1, 2)
    assert new.training == {"epochs": 7, "patience": 1}
    assert base.training == {"epochs": 3, "patience": 1}


def test_override_of_a_sweep_reaches_its_models() -> None:
    new = SweepSettings(models=16).override({"population": 7, "seed": 5, "epochs": 2})
    assert (new.models, new.population, new.run.seed) == (16, 7, 5)
    assert new.run.training == {"epochs": 2}


def test_settings_file_then_flags(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('model = "gpt2-tiny"\nseed = 3\nrevealed = 2\nepochs = 5\n')
    settings = (
        RunSettings().override(settings_in(path, RunSettings, elsewhere={})).override({"seed": 9})
    )
    assert (settings.model, settings.seed, settings.measure.revealed) == ("gpt2-tiny", 9, 2)
    assert settings.training == {"epochs": 5}


def test_a_list_is_as_good_as_a_tuple() -> None:
    settings = RunSettings(formats=["pin"], repetitions=[1, 16])  # type: ignore[arg-type]
    assert settings == RunSettings(formats=("pin",), repetitions=(1, 16))


@pytest.mark.parametrize(
    ("name", "guess"), [("canarie", r"; did you mean 'canaries'( or '\w+')*\?"), ("zzz", ";")]
)
def test_unknown_names_are_refused_with_those_spelled_nearly_so(name: str, guess: str) -> None:
    listing = "lmexposure settings COMMAND lists them all"
    with pytest.raises(SettingsError, match=rf"^unknown setting '{name}'{guess} {listing}$"):
        RunSettings().override({name: 3})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"formats": ()}, r"formats=\(\) must be a list with at least one entry"),
        ({"formats": "pin"}, "formats='pin' must be a list"),
        ({"formats": [3]}, "formats=3 must be a string"),
        ({"kinds": ["uniform", ["x"]]}, r"kinds=\['x'\] must be one of uniform, "),
        ({"repetitions": "4"}, "repetitions='4' must be a list"),
        ({"repetitions": ["4"]}, "repetitions='4' must be a whole number"),
        ({"training": {"epochs": 3}}, "unknown setting 'training'"),
        ({"model": 3}, "model=3 must be a string"),
        ({"device": ""}, "device='' must be a string"),
        ({"revision": 3}, "revision=3 must be a string"),
        ({"offline": "no"}, "offline='no' must be true or false"),
        ({"extraction": "no"}, "extraction='no' must be true or false"),
        ({"level": "x"}, "level='x' must lie strictly between"),
        ({"canaries": 0}, "canaries=0"),
        ({"threads": 0}, "threads=0 must be a whole number from 1 to 1024"),
        ({"threads": 10**11}, "threads=100000000000 must be a whole number from 1 to 1024"),
        ({"canaries": 2.0}, "canaries=2.0"),
        ({"inclusion_probability": 0.5}, "inclusion_probability=0.5 needs canaries=...: how many"),
        ({"inclusion_probability": 1}, "inclusion_probability=1 must lie strictly between 0 and 1"),
        ({"inclusion_probability": 0.0}, "inclusion_probability=0.0 must lie strictly"),
        ({"inclusion_probability": "half"}, "inclusion_probability='half' must lie strictly"),
        (
            {"inclusion_seed": 3},
            "inclusion_seed=... needs inclusion_probability=..., such as 0.5; leave",
        ),
        ({"inclusion_seed": -1}, "inclusion_seed=-1 must be a whole number"),
        ({"inclusion_seed": 2**63}, "inclusion_seed=.* from 0 to 92233720"),
        ({"controls": -1}, "controls=-1"),
        ({"seed": -1}, "seed=-1"),
        ({"layers": 0}, "layers=0"),
        ({"layers": 10**9}, "layers=1000000000 must be a whole number from 1 to 1000"),
        ({"units": 10**9}, "units=1000000000 must be a whole number from 1 to 100000"),
        ({"units": 0}, "units=0"),
        ({"layout": "csv"}, "layout='csv' must be one of lines, paragraphs, jsonl"),
        ({"existing": "keep"}, "existing='keep'"),
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"references": 3}, "references=3"),
        ({"revealed": -1}, "revealed=-1"),
        ({"beam_width": 1}, "beam_width=1"),
        ({"level": 1.0}, "level=1.0"),
        # A measurement of hours would end with numbers that its result cannot hold.
        ({"level": 1e-10}, "level=1e-10 must lie strictly .* at least 1e-09 away from either"),
        ({"level": 1 - 1e-10}, "level=0.9999999999 must lie strictly between 0 and 1, at least"),
        ({"claimed_epsilon": 1e101, "delta": 0.0}, r"claimed_epsilon=1e\+101 .* most 1e\+100 nats"),
        ({"bootstraps": 3}, "bootstraps=3"),
        ({"permutations": 3}, "permutations=3"),
        ({"batch_size": 0}, "batch_size=0"),
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        RunSettings().override(values)


def test_a_settings_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read the settings file"):
        settings_in(tmp_path / "none.toml", RunSettings, elsewhere={})
    (tmp_path / "bad.toml").write_text("seed = ")
    with pytest.raises(SettingsError, match="is not TOML"):
        settings_in(tmp_path / "bad.toml", RunSettings, elsewhere={})


def test_speed_does_not_decide() -> None:
    assert MeasureSettings(scoring_batch=3, threads=2).decisive() == MeasureSettings().decisive()
    assert written(RunSettings(threads=2)) == written(RunSettings())
    assert "scoring_batch" not in written(MeasureSettings())
    assert MeasureSettings(bootstrap_seed=1).decisive() != MeasureSettings().decisive()


def test_all_else_that_a_measurement_is_asked_for_decides() -> None:
    assert set(MeasureSettings().decisive()) == set(settings_of(MeasureSettings)) - {
        *("scoring_batch", "threads")
    }
    assert MeasureSettings(left_context="eos").decisive()["left_context"] == "eos"


def test_one_number_is_taken_where_several_may_be_given() -> None:
    assert RunSettings(repetitions=16).repetitions == (16,)  # type: ignore[arg-type]
    assert RunSettings().override({"repetitions": 16}).repetitions == (16,)
    with pytest.raises(SettingsError, match="repetitions=True must be a list with at least one"):
        RunSettings(repetitions=True)  # type: ignore[arg-type]


def test_one_number_says_how_many() -> None:
    assert RunSettings().per_class == 10
    assert RunSettings(canaries=3).per_class == 3
    assert RunSettings(inclusion_probability=0.5, canaries=7).per_class == 7
    # What is recorded is the number itself, so that the default and the same by name are one run.
    assert RunSettings().resolved() == RunSettings(canaries=10, repetitions=(1, 4, 16))
    assert SweepSettings(run=RunSettings(controls=0)).resolved().run.canaries == 10
    tossed = RunSettings(inclusion_probability=0.5, canaries=7).resolved()
    assert (tossed.inclusion_probability, tossed.canaries) == (0.5, 7)


def test_the_inclusion_seed_is_in_no_record() -> None:
    """Only the manifest keeps it."""
    seeded = RunSettings(inclusion_probability=0.5, canaries=7, inclusion_seed=987654321)
    assert written(seeded) == written(RunSettings(inclusion_probability=0.5, canaries=7))
    assert "987654321" not in str(written(seeded)) + repr(seeded)
    assert "987654321" not in str(written(SweepSettings(inclusion_seed=987654321)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"inclusion_seed": 3}, "Unexpected keyword argument"),
        ({"canaries": "3"}, "valid integer"),
        ({"units": 0}, "greater than or equal to 1"),
        ({"seed": 3}, "decimal string"),
        ({"dtype": "int8"}, "'float32', 'bfloat16' or 'float16'"),
        ({"inclusion_probability": 2.0}, "must lie strictly between 0 and 1"),
        ({"training": {"epochs": 0}}, "epochs=0 must be"),
        ({"training": {"colour": 3}}, "unknown setting of the training 'colour'"),
    ],
)
def test_a_file_s_settings_are_held_against_their_rules(
    changed: dict[str, object], message: str
) -> None:
    adapters: dict[str, Any] = {"lora": True, "lora_targets": ["q", "v"]}
    asked = RunSettings(seed=2**62, training=adapters)
    file = json.loads(json.dumps(written(asked)))
    adapter = TypeAdapter(RunSettings)
    assert adapter.validate_python(file, context=FROM_FILE) == asked
    with pytest.raises(ValidationError, match=message):
        adapter.validate_python(file | changed, context=FROM_FILE)
    with pytest.raises(ValidationError, match="Field required"):
        adapter.validate_python({n: v for n, v in file.items() if n != "model"}, context=FROM_FILE)


def written(settings: Settings) -> Any:
    """What a file says of settings."""
    return TypeAdapter(type(settings)).dump_python(settings, mode="json")


def test_the_gate_s_table_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("seed = 3\n[check]\nmax_guesses = 10\n")
    assert settings_in(path, RunSettings, elsewhere={"check": ["max_guesses"]}) == {"seed": 3}


def test_without_a_seed_the_training_has_one_that_tells_nothing_of_the_plan() -> None:
    assert RunSettings().seed is None
    assert RunSettings().public_seed == 0
    assert RunSettings(seed=5).public_seed == 5


def test_an_interval_has_as_many_refits_as_its_ends_take() -> None:
    assert MeasureSettings(level=0.995).bootstraps == 199  # no curve is asked for
    with pytest.raises(SettingsError, match=r"bootstraps=199 must be at least 399 .*level=0.995"):
        MeasureSettings(estimate="skew_normal", level=0.995)
    assert MeasureSettings(estimate="skew_normal", level=0.995, bootstraps=399).bootstraps == 399


def test_a_first_look_is_a_tenth_and_flags_win() -> None:
    look = RunSettings().override({"effort": "quick", "draws": 700}).measure
    assert look == replace(MeasureSettings().quicker, draws=700)
    assert (look.references_for(10_000), look.references, look.revealed) == (1_000, None, 0)
    assert look.steps_for(2_600_000) == MeasureSettings().steps_for(2_600_000) // 10
    assert look.coarser == (
        "a quick look, with 1,000 references instead of 10,000, 700 draws instead of 12,000, a "
        "tenth of the search, 0 characters given to extraction instead of 4"
    )
    tested = look.coarser + ", 39 bootstraps instead of 199"
    assert replace(MeasureSettings().quicker, draws=700, estimate="skew_normal").coarser == tested
    assert MeasureSettings().coarser is None
    assert (look.decisive()["effort"], MeasureSettings().decisive()["effort"]) == (
        "quick",
        "normal",
    )
    asked = replace(MeasureSettings().quicker, references=5_000, budget_steps=9)
    assert (asked.references_for(10_000), asked.steps_for(10**6)) == (5_000, 9)
    with pytest.raises(SettingsError, match="effort"):
        MeasureSettings(effort=1)  # type: ignore[arg-type]


EVERY = (RunSettings, SweepSettings, DefencesSettings, VerbatimSettings, IdentifierSettings)


@pytest.mark.parametrize("record", [*EVERY, CanifeStudySettings])
def test_a_name_means_one_setting(record: type) -> None:
    """Of two parts with one name the second could not be reached."""
    made = record()
    parts = [part.settings(getattr(made, name)) for name, part in parts_of(record).items()]
    reached = [*settings_of(record), *(name for part in parts for name in part)]
    assert len(reached) == len(set(reached))
    assert set(reached) == set(settings_taken(record))


def test_a_sweep_promises_at_the_delta_that_is_given() -> None:
    private = {"method": "dp-sgd", "epsilon": 3.0, "delta": 1e-6}
    chosen = SweepSettings().override(private)
    assert chosen.run.training == private
    assert chosen.resolved().run.training["delta"] == 1e-6


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    asked = {"references": np.int64(30), "repetitions": [np.int32(2)], "epochs": np.int64(3)}
    chosen = RunSettings().override(asked)
    assert json.dumps(
        [chosen.measure.references, *(chosen.repetitions or ()), chosen.training["epochs"]]
    )
    assert written(chosen.measure)["references"] == 30


def test_a_text_of_a_file_is_read_as_a_flag_s(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('top_k = "all"\n')
    assert settings_in(path, VerbatimSettings, elsewhere={}) == {"top_k": None}


def test_an_audit_stands_for_its_numbers_and_given_ones_win() -> None:
    audit = RunSettings(audit=True)
    assert (audit.canaries, audit.inclusion_probability, audit.repetitions) == (500, 0.5, (1,))
    more = RunSettings().override({"audit": True, "canaries": 2_000, "repetitions": (1, 2)})
    assert (more.canaries, more.inclusion_probability, more.repetitions) == (2_000, 0.5, (1, 2))
    assert "audit" not in recorded_values(audit)


def test_an_effort_is_a_tenth_one_or_ten_times_the_search() -> None:
    looks = [
        RunSettings().override({"effort": effort}).measure
        for effort in ("quick", "normal", "thorough")
    ]
    assert [look.references_for(10_000) for look in looks] == [1_000, 10_000, 100_000]
    steps = [look.steps_for(10**6) for look in looks]
    assert steps[1] == 10 * steps[0] == steps[2] // 10
    assert [look.draws for look in looks] == [1_600, 12_000, 48_000]
    assert [look.guesses for look in looks] == [1_000, 1_000, 10_000]
    # It grows with the canaries, beyond any fixed number.
    assert {look.beam_width for look in looks} == {None}
    assert [look.quick for look in looks] == [True, False, False]
