"""`lmexposure report` and `lmexposure compare`: what a person types, and what they see."""

import json
from pathlib import Path

import pytest
from cli.conftest import Call
from huggingface_hub import ModelCard
from made_results import secret_texts, small_manifest, small_run

from lmexposure.cli.console import write_and_say
from lmexposure.models import LstmSizes, load_model, new_model, save_model
from lmexposure.records import Result


def test_the_verdict_and_where_the_report_lies(call: Call, tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    outcome = call("report", tmp_path / "run")
    assert outcome.code == 0
    assert outcome.out.startswith("Leaks: ")
    assert f"report  {tmp_path / 'run' / 'report.html'}" in outcome.out
    assert (tmp_path / "run" / "report.md").exists()


def test_formats_place_and_charts(call: Call, tmp_path: Path) -> None:
    path = small_run(tmp_path / "run", whole=False) / "result.json"
    out = tmp_path / "out"
    outcome = call("report", path, "--format", "json", "--format", "csv", "--out", out, "--charts")
    assert outcome.code == 0
    assert {p.name for p in out.glob("[!.]*")} == {"report.json", "report.csv", "charts"}


def test_secrets_only_where_asked_for_and_then_with_a_warning(call: Call, tmp_path: Path) -> None:
    run, kept = small_run(tmp_path / "run", whole=False), tmp_path / "kept.json"
    small_manifest().write(kept)
    asked = ("report", run, "--format", "csv", "--manifest", kept)
    assert call(*asked).code == 0
    csv = run / "report.csv"
    assert not [one for one in secret_texts(small_manifest()) if one in csv.read_text()]
    outcome = call(*asked, "--show-secrets")
    assert outcome.code == 0
    assert "these files show the secrets" in outcome.err
    assert small_manifest().entries[0].text.split()[-1] in csv.read_text()
    assert not [one for one in secret_texts(small_manifest()) if one in outcome.out + outcome.err]


def test_a_model_card(call: Call, tmp_path: Path) -> None:
    """Of the model that was measured; into another one's only by force, and the card says so."""
    run = small_run(tmp_path / "run")
    for seed, name in enumerate(("model", "other")):
        made = new_model("lstm", ["abc"] * 9, seed=seed, separator="\n", lstm=LstmSizes(units=8))
        save_model(made.model, made.tokenizer, run / name)
    measured = load_model(run / "model", dtype="bfloat16").to_dict()
    result = Result.read(run / "result.json")
    model = result.model.model_copy(update={k: measured[k] for k in ("dtype", "weights_sha256")})
    result.model_copy(update={"model": model}).write(run / "result.json")
    card = ("report", run, "--format", "md", "--model-card")
    outcome = call(*card, run / "model")
    assert outcome.code == 0, outcome
    assert f"report  {run / 'model' / 'README.md'}" in outcome.out
    assert ModelCard.load(run / "model" / "README.md").data.to_dict()["model-index"]
    assert "not checked" not in (run / "model" / "README.md").read_text()
    (run / "report.md").unlink()
    (run / "none").mkdir()
    for name, message in (
        ("other", f"and those measured {measured['weights_sha256'][:16]}; give the model"),
        ("none", "with --force the card is written anyway"),
    ):
        refused = call(*card, run / name)
        assert (refused.code, message in refused.err) == (3, True), refused.err
        assert "--force" in refused.err
        assert not (run / name / "README.md").exists()
        assert not (run / "report.md").exists()
        assert call(*card, run / name, "--force").code == 0
        assert "not checked whether" in (run / name / "README.md").read_text()
        (run / "report.md").unlink()
    refused = call(*card, run / "nowhere", "--force")
    assert (refused.code, "no model directory at" in refused.err) == (3, True)
    alone = call("report", run, "--force")
    assert (alone.code, "--force goes with --model-card" in alone.err) == (3, True)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("result.json", '{"schema": "lmexposure.result/9"}', "reads 'lmexposure.result/4' alone"),
        ("result.json", '{"schema": "lmexp', "not readable JSON"),
        ("scores.parquet", "PAR1", "its hash differs"),
        ("manifest.json", None, "the run is not whole"),
        ("result.json", None, "give its command again"),
    ],
)
def test_what_is_broken_is_3(
    call: Call, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    run = small_run(tmp_path / "run")
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_text(content)
    outcome = call("report", run)
    assert outcome.code == 3
    assert message in outcome.err.replace("\n", " ")
    assert not (run / "report.html").exists()


def test_wrong_usage_is_3(call: Call, tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", whole=False)
    assert call("report").code == 3
    assert call("report", tmp_path / "none").code == 3
    assert call("report", run, "--format", "pdf").code == 3
    assert call("report", run, "--show-secrets").code == 3
    assert call("report", run, "--model-card", tmp_path / "none").code == 3
    assert call("report", run, "--manifest", tmp_path / "none").code == 3


def test_what_measuring_commands_say_at_their_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_and_say(small_run(tmp_path / "run"))
    said = capsys.readouterr().out
    assert "Leaks: " in said
    assert f"report  {tmp_path / 'run' / 'report.html'}" in said
    assert json.loads((tmp_path / "run" / "result.json").read_text())["schema"]


def test_verdicts_and_where_the_comparison_lies(call: Call, tmp_path: Path) -> None:
    base = small_run(tmp_path / "base", memorised=())
    tuned = small_run(tmp_path / "tuned")
    out = tmp_path / "out"
    outcome = call("compare", base, tuned, "--out", out)
    assert outcome.code == 0
    assert "tuned leaks more than base: secrets inserted 4 times are " in outcome.out
    assert "tuned: Leaks: " in outcome.out
    assert f"compare  {out / 'compare.html'}" in outcome.out
    assert "# Compared: base and tuned" in (out / "compare.md").read_text()


def test_what_is_not_alike_is_a_warning_on_the_terminal(call: Call, tmp_path: Path) -> None:
    runs = small_run(tmp_path / "a"), small_run(tmp_path / "b", seed=3)
    outcome = call("compare", *runs, "--out", tmp_path / "out")
    assert outcome.code == 0
    assert "warning: b measured another manifest than a" in " ".join(outcome.err.split())


def test_a_name_cannot_write_to_the_terminal(call: Call, tmp_path: Path) -> None:
    run = small_run(tmp_path / "a\x1b[31m\u202eb")
    outcome = call("compare", run, run, "--out", tmp_path / "out", "--format", "csv")
    assert outcome.code == 0
    assert r"a\x1b[31m\u202eb: Leaks" in outcome.out
    assert "\x1b[31m" not in outcome.out


def test_formats(call: Call, tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    outcome = call("compare", run, run, "--out", tmp_path, "--format", "csv", "--format", "json")
    assert outcome.code == 0
    assert (tmp_path / "compare.csv").read_text().startswith("run,format,role,")


def test_runs_that_cannot_be_compared_are_3(call: Call, tmp_path: Path) -> None:
    one = small_run(tmp_path / "a")
    other = small_run(tmp_path / "b", formats=("pin",))
    outcome = call("compare", one, other, "--out", tmp_path / "out")
    assert outcome.code == 3
    assert "no two runs have a format in common" in outcome.err.replace("\n", " ")
    assert not (tmp_path / "out").exists()
    alone = call("compare", one, "--out", tmp_path / "out")
    assert alone.code == 3
    assert "give at least two run directories" in alone.err.replace("\n", " ")
    assert call("compare").code == 3
    assert call("compare", one, tmp_path / "none").code == 3
