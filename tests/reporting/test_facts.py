"""Names and values of model and settings: complete, and without a seed that was chosen."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from made_results import small_manifest, small_run

from lmexposure.records import open_run
from lmexposure.reporting.data import Fact
from lmexposure.reporting.facts import model_facts, setting_facts

SEED = 918_273_645


def values(facts: tuple[Fact, ...]) -> dict[str, str]:
    return {one.name: one.value for one in facts}


def test_the_model_and_what_it_learned(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path))
    facts = values(model_facts(run))
    assert facts["type"] == "lmexposure_lstm"
    assert facts["context window"] == "n/a"
    assert facts["validation loss"] == "1.500 bits per token"
    assert facts["learned"] == "yes"


def test_a_model_that_was_trained_elsewhere(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path))
    model = run.result.model.model_copy(update={"validation": None})
    result = run.result.model_copy(update={"model": model})
    facts = values(model_facts(replace(run, result=result)))
    assert facts["validation loss"] == "n/a"


def test_settings_versions_and_hashes(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path))
    facts = values(setting_facts(run))
    assert facts["seed"] == "left out"
    assert facts["repetitions"] == "1, 4"
    assert facts["training.epochs"] == "3"
    assert facts["measure.bootstraps"] == "39"
    assert facts["measure.extraction"] == "yes"
    assert facts["torch"] == "2.13.0"
    assert facts["device"] == "cpu"
    assert facts["time to train"] == "3 s"
    assert facts["manifest, SHA-256"] == run.result.manifest_sha256


def test_of_a_measurement_its_own_settings_are_known(tmp_path: Path) -> None:
    facts = values(setting_facts(open_run(small_run(tmp_path, whole=False))))
    assert facts["measure.guesses"] == "1000"
    assert "seed" not in facts


def test_a_chosen_seed_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path, seed=SEED))
    hidden = setting_facts(run)
    assert values(hidden)["seed"] == "left out"
    assert str(SEED) not in repr(hidden)
    assert values(setting_facts(run, show_seeds=True))["seed"] == str(SEED)


def test_a_fresh_seed_is_the_manifests(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path, seed=SEED))
    assert run.record is not None
    assert run.record.settings is not None
    settings = run.record.settings.model_copy(update={"seed": None})
    record = run.record.model_copy(update={"settings": settings})
    facts = setting_facts(replace(run, record=record), show_seeds=True)
    assert values(facts)["seed"] == "drawn fresh"
    assert str(SEED) not in repr(facts)


def test_the_seed_of_coins_stays_in_the_manifest(tmp_path: Path) -> None:
    made_of: dict[str, Any] = {
        "inclusion_probability": 0.5,
        "canaries": 30,
        "repetitions": (1,),
        "seed": SEED,
    }
    run = open_run(small_run(tmp_path, **made_of))
    seed = str(small_manifest(**made_of).plan.inclusion_seed)
    assert values(setting_facts(run))["inclusion seed"] == "left out"
    assert values(setting_facts(run, show_seeds=True))["inclusion seed"] == seed
