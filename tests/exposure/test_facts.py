"""Facts of a run, and the command that gives its result again."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_results import assumed, context, options, small_manifest, small_run
from typer.main import get_command

from lmexposure._settings import settings_of
from lmexposure.audit import MeasureSettings, RunSettings
from lmexposure.cli.app import app
from lmexposure.cli.options import TAKEN
from lmexposure.core import Fact
from lmexposure.studies import ContextRecord, Result, RunFiles, TrainingSettings, flag_words
from lmexposure.studies.exposure.facts import (
    DEMO_TEXT,
    command_of,
    model_facts,
    scored_in,
    setting_facts,
    where_of,
)

SEED = 918_273_645


@pytest.fixture
def files(run: Result) -> RunFiles:
    return run.files


def values(facts: tuple[Fact, ...]) -> dict[str, str]:
    return {one.name: one.value for one in facts}


def test_the_model_and_what_it_learned(files: RunFiles) -> None:
    facts = values(model_facts(files))
    assert facts["type"] == "lmexposure_lstm"
    assert facts["context window"] == "n/a"
    assert facts["validation loss"] == "1.500 bits per token"
    assert facts["learned"] == "yes"
    model = files.result.model.model_copy(update={"validation": None})
    elsewhere = files.result.model_copy(update={"model": model})
    assert values(model_facts(replace(files, result=elsewhere)))["validation loss"] == "n/a"


def test_settings_versions_and_hashes(files: RunFiles) -> None:
    facts = values(setting_facts(files))
    assert facts["seed"] == "left out"
    assert facts["repetitions"] == "1, 4"
    assert facts["training.epochs"] == "3"
    assert facts["measure.bootstraps"] == "39"
    assert facts["measure.extraction"] == "yes"
    assert facts["torch"] == "2.13.0"
    assert facts["device"] == "cpu"
    assert facts["time to train"] == "3 s"
    assert facts["manifest, SHA-256"] == files.result.manifest_sha256


def test_of_a_measurement_its_own_settings_are_known(tmp_path: Path) -> None:
    facts = values(setting_facts(Result.read(small_run(tmp_path, whole=False)).files))
    assert facts["measure.guesses"] == "1000"
    assert "seed" not in facts


def test_seeds_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    """Of facts and of the command; that of coins is the manifest's."""
    coins: dict[str, Any] = {"inclusion_probability": 0.5, "canaries": 30, "repetitions": (1,)}
    run = Result.read(small_run(tmp_path, **coins, seed=SEED)).files
    tossed = str(small_manifest(**coins, seed=SEED).plan.inclusion_seed)
    hidden, said = setting_facts(run), command_of(run)
    for name, seed in (("seed", str(SEED)), ("inclusion seed", tossed)):
        assert values(hidden)[name] == "left out"
        assert seed not in repr(hidden) + said
        assert values(setting_facts(run, show_seeds=True))[name] == seed
    assert "--canaries 30 --inclusion-probability 0.5" in said
    assert "inclusion-seed" not in said
    assert "--seed SEED" in said
    assert f"--seed {SEED}" in command_of(run, show_seeds=True)
    fresh = setting_facts(with_settings(run, seed=None), show_seeds=True)
    assert values(fresh)["seed"] == "drawn fresh"
    assert str(SEED) not in repr(fresh)


def with_settings(run: RunFiles, **settings: Any) -> RunFiles:
    """The run with other settings; those of its measurement by `measure`."""
    assert run.record is not None
    assert run.record.settings is not None
    measure = settings.pop("measure", run.record.measure)
    chosen = replace(run.record.settings, **settings)
    return with_record(run, settings=chosen, measure=measure)


def with_record(run: RunFiles, **parts: Any) -> RunFiles:
    assert run.record is not None
    return replace(run, record=run.record.model_copy(update=parts))


def test_a_whole_run(tmp_path: Path) -> None:
    run = with_settings(
        Result.read(small_run(tmp_path / "my run")).files, measure=options(), training={}
    )
    copied = "mkdir -p 'my run-again' && cp 'my run/manifest.json' 'my run-again' && "
    rest = "--out 'my run-again' --repetitions 1,4 --controls 16"
    assert command_of(with_settings(run, seed=None)) == f"{copied}lmexposure run CORPUS {rest}"
    for said, shown in (
        ("../-the text.txt", "'./-the text.txt'"),
        ("../../elsewhere/c.txt", "c.txt"),
        ("/data/c.txt", "/data/c.txt"),
        ("../texts/c.txt", "texts/c.txt"),
        ("source/c.txt", "'my run/source/c.txt'"),
    ):
        there = with_record(run, corpus=said)
        assert command_of(there) == f"{copied}lmexposure run {shown} {rest} --seed SEED"
        place = "Run it in the directory that holds my run/ (its manifest.json has the checksum "
        assert where_of(there).startswith(place + run.result.manifest_sha256[:12])
        own = said.startswith("source")
        assert ("the corpus before insertion; another is refused" in where_of(there)) != own
    demo = with_record(there, corpus=DEMO_TEXT)
    assert command_of(demo).endswith("--seed 0")
    assert command_of(with_settings(demo, seed=5)).endswith("--seed SEED")


def test_every_setting_comes_back(tmp_path: Path) -> None:
    """What the command says is what the run's record says, read as the command line reads it."""
    settings = RunSettings(
        model="/models/my model",
        formats=("pin", "a b.toml"),
        canaries=7,
        repetitions=(2,),
        seed=SEED,
        offline=True,
        training={"epochs": 2, "learning_rate": 0.001, "batch_size": 8},
        measure=MeasureSettings(references=50, draws=99, delta=1e-5, claimed_epsilon=8.0),
    )
    run = with_record(
        Result.read(small_run(tmp_path)).files,
        settings=settings.resolved(),
        measure=settings.measure,
    )
    assert read_again(command_of(run, show_seeds=True)) == settings


BOOLEANS = {
    "witness": (True, False),
    "effort": ("quick", "thorough"),
    "offline": (True, False),
    "extraction": (True, False),
    "training": (
        {},
        {"lora": True, "lora_targets": ("q_proj", "v_proj")},
        {"method": "dp-sgd", "noise_multiplier": 1.0, "document_norms": True},
    ),
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in BOOLEANS.items() for v in vs])
def test_a_flag_is_bare_and_its_other_half_is_said(
    files: RunFiles, name: str, value: object
) -> None:
    """`--lora True` read True as a corpus; a files without a witness came back with one."""
    values = value if isinstance(value, dict) else {name: value}
    settings = RunSettings().override({"seed": SEED, **values})
    record = with_record(files, settings=settings.resolved(), measure=settings.measure)
    assert read_again(command_of(record, show_seeds=True)).resolved() == settings.resolved()


def test_every_boolean_setting_has_its_case() -> None:
    declared = {
        name
        for kind in (RunSettings, MeasureSettings, TrainingSettings)
        for name, setting in settings_of(kind).items()
        if setting.kind is bool
    }
    assert declared <= {*BOOLEANS, "lora", "document_norms", "audit"}
    lora = settings_of(TrainingSettings)["lora"]
    assert list(flag_words("run", lora, value=False)) == []  # it has no other half


def read_again(command: str) -> RunSettings:
    """The settings that `lmexposure run` gets from the command, which is not carried out."""
    words = shlex.split(command)
    run = get_command(app).commands["run"]  # type: ignore[attr-defined]
    typed = run.make_context("run", words[words.index("run") + 1 :]).params
    assert typed["corpus"] == ["CORPUS"]
    given = {each.name: typed[each.name] for each in TAKEN["run"].parameters()}
    made = TAKEN["run"].make({name: v for name, v in given.items() if v not in (None, ())})
    assert isinstance(made, RunSettings)
    return made


def test_settings_without_a_flag_are_set_by_name(tmp_path: Path) -> None:
    run = Result.read(small_run(tmp_path)).files
    training = {"epochs": 3, "warmup_steps": 5, "max_seconds": None}
    said = command_of(with_settings(run, training=training))
    assert said.endswith(
        "--set bootstraps=39 --set permutations=999 --epochs 3 --set warmup_steps=5"
    )
    assert "max" not in said


def test_a_measurement(tmp_path: Path) -> None:
    run = Result.read(small_run(tmp_path / "m", whole=False)).files
    assert command_of(run).endswith(
        "lmexposure measure model MANIFEST --out m-again --set revealed=2 --set bootstraps=39 "
        "--set permutations=999"
    )
    checksum, weights = run.result.manifest_sha256[:12], "1" * 12
    assert where_of(run) == (
        f"Run it in the directory that holds m/; MANIFEST is the manifest.json that has the "
        f"checksum {checksum}, and the model, wherever it is now, has weights with SHA-256 "
        f"{weights}. Fill in the words in capitals, if there are any."
    )
    (tmp_path / "m" / "model").mkdir()
    beside = replace(run, manifest=small_manifest())
    assert "lmexposure measure m/model m/manifest.json --out m-again" in command_of(beside)
    assert "m/manifest.json has the checksum" in where_of(beside)
    model = run.result.model.model_copy(update={"path": ""})
    nameless = replace(run, result=run.result.model_copy(update={"model": model}))
    assert "lmexposure measure MODEL MANIFEST" in command_of(nameless)
    half = run.result.model.model_copy(update={"dtype": "bfloat16"})
    rounded = replace(run, result=run.result.model_copy(update={"model": half}))
    assert "--out m-again --dtype bfloat16" in command_of(rounded)


def test_no_name_is_more_than_a_word(tmp_path: Path) -> None:
    run = with_settings(Result.read(small_run(tmp_path)).files, device="$(rm -rf x); `y`")
    words = shlex.split(command_of(run))
    assert words[words.index("--device") + 1] == "$(rm -rf x); `y`"


def test_what_decided_the_numbers_is_in_the_command(tmp_path: Path) -> None:
    for whole, changes, flag in (
        (True, {"threads": 3}, "--set threads=3"),
        (False, {"threads": 3}, "--set threads=3"),
        (False, {"left_context": "Then: "}, "--left-context 'Then: '"),
    ):
        run = Result.read(small_run(tmp_path / flag[:9] / str(whole), whole=whole)).files
        assert re.split("[=']", flag)[0] not in command_of(run)
        settings = replace(run.result.settings, **changes)
        result = run.result.model_copy(update={"settings": settings})
        assert flag in command_of(replace(run, result=result))
    assert "rows.json" not in where_of(run)
    by_rows = in_rows(run, context(source="rows"))
    assert ", with the rows.json that was next to it, and the" in where_of(by_rows)


def in_rows(run: RunFiles, record: ContextRecord) -> RunFiles:
    return replace(run, result=run.result.model_copy(update={"context": record}))


def test_in_which_rows_the_texts_were_scored(files: RunFiles) -> None:
    assert "scored as" not in values(model_facts(files))
    facts = values(model_facts(in_rows(files, context(unscored_tokens=2))))
    assert facts["scored as"] == "messages, the assistant's turn"
    assert facts["in front of each text"] == r"'<|user|>\nPlease go on.<|end|>\n<|assistant|>\n'"
    assert facts["behind each text"] == "4 tokens"
    assert facts["loss in the training"] == "on the assistant's turns"
    assert facts["not scored of each text"] == "the first 2 tokens"
    assert facts["chat template, SHA-256"] == "a" * 64
    plain = values(model_facts(in_rows(files, assumed())))
    assert plain["scored as"] == "text"
    assert plain["in front of each text"] == r"'\n'"
    assert not {"behind each text", "loss in the training"} & plain.keys()
    nothing = assumed().model_copy(update={"left": "", "left_tokens": 0})
    assert values(model_facts(in_rows(files, nothing)))["in front of each text"] == "nothing"


def test_the_rows_in_a_sentence() -> None:
    assert scored_in(context()) == (
        "Canaries and references were scored as the assistant's turn of a record (messages), "
        "behind 24 tokens and before 4 tokens, as the manifest says."
    )
    assert scored_in(context(turn="user", source="rows", left_tokens=0)) == (
        "Canaries and references were scored as the user's turn of a record (messages), with "
        "nothing in front and before 4 tokens, as in the rows of the training."
    )
    assert scored_in(assumed()) == (
        "Canaries and references were scored as texts of their own, behind 1 token, which is "
        "assumed: the rows of the training are not known."
    )
