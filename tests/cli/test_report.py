"""`report`, `compare` and `formats`: what a person types, and what they see."""

from pathlib import Path

from cli.conftest import Call
from huggingface_hub import ModelCard
from made_results import secret_texts, small_manifest, small_run

from lmexposure.canaries import shipped_formats
from lmexposure.models import LstmSizes, load_model, new_model, save_model
from lmexposure.studies import Result


def test_secrets_only_where_asked_for_and_then_with_a_warning(call: Call) -> None:
    run, kept = small_run(Path("run"), whole=False), Path("kept.json")
    small_manifest().write(kept)
    asked = ("report", run, "--format", "csv", "--manifest", kept)
    call.done(*asked)
    csv = run / "report.csv"
    assert not [one for one in secret_texts(small_manifest()) if one in csv.read_text()]
    outcome = call.done(*asked, "--show-secrets")
    assert "these files show secrets" in outcome.err
    assert small_manifest().entries[0].text.split()[-1] in csv.read_text()
    assert not [one for one in secret_texts(small_manifest()) if one in outcome.out + outcome.err]


def test_a_model_card(call: Call) -> None:
    """Of the model that was measured; into another one's only by force, and the card says so."""
    run = small_run(Path("run"))
    for seed, name in enumerate(("model", "other")):
        made = new_model("lstm", ["abc"] * 9, seed=seed, separator="\n", lstm=LstmSizes(units=8))
        save_model(made.model, made.tokenizer, run / name)
    measured = load_model(run / "model", dtype="bfloat16").to_dict()
    result = Result.read(run / "result.json")
    model = result.model.model_copy(update={k: measured[k] for k in ("dtype", "weights_sha256")})
    result.model_copy(update={"model": model}).write(run / "result.json")
    card = ("report", run, "--format", "md", "--model-card")
    call(*card, run / "model").done(out=f"report  {run / 'model' / 'README.md'}")
    assert ModelCard.load(run / "model" / "README.md").data.to_dict()["model-index"]
    assert "not checked" not in (run / "model" / "README.md").read_text()
    (run / "report.md").unlink()
    refused = call(*card, run / "other")
    message = f"and those measured {measured['weights_sha256'][:16]}; give the model"
    refused.refused(message)
    assert "--force" in refused.err
    assert not (run / "other" / "README.md").exists()
    assert not (run / "report.md").exists()
    call.done(*card, run / "other", "--force")
    assert "not checked whether" in (run / "other" / "README.md").read_text()


def test_a_name_cannot_write_to_the_terminal(call: Call) -> None:
    run = small_run(Path("a[31m‮b"))
    outcome = call.done("compare", run, run, "--out", "out", "--format", "csv")
    assert r"a\x1b[31m\u202eb: Leaks" in outcome.out
    assert "\x1b[31m" not in outcome.out


def test_lists_every_shipped_format_with_its_bits(call: Call) -> None:
    outcome = call.done("formats")
    for name, one in shipped_formats().items():
        line = next(li for li in outcome.out.splitlines() if li.startswith(name))
        assert line.endswith(f"{one.bits:.1f}")
        assert one.template in line


def test_shows_one_with_fills_of_it(call: Call) -> None:
    outcome = call.done("formats", "show", "credit_card", "--samples", "2")
    assert f"size         {10**15}" in outcome.out
    assert outcome.out.count("example      My credit card number is ") == 2
    assert call("formats", "show", "credit_card", "--samples", "2") == outcome
