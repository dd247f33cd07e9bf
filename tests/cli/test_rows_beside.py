"""`check --model` scores in the rows that `verify --rows` left next to the manifest."""

from pathlib import Path

import pytest
from audit.wrapped import plain_manifest
from chats import chat_tokenizer
from cli.conftest import Call
from records.test_rows_record import record
from tiny import model_of

from lmexposure.models import save_model, tokenizer_sha256
from lmexposure.records import Result

FEW = "method = 'sampled'\nextraction = false\npermutations = 99\nbootstraps = 39\n"


@pytest.fixture
def inserted(tmp_path: Path) -> tuple[str, ...]:
    """Flags of a model and a manifest with rows next to it."""
    tokenizer, manifest = chat_tokenizer(), plain_manifest()
    save_model(model_of("llama", len(tokenizer)), tokenizer, tmp_path / "model")
    manifest.write(tmp_path / "manifest.json")
    known = {"manifest_sha256": manifest.sha256, "tokenizer_sha256": tokenizer_sha256(tokenizer)}
    around = {"start": (tokenizer.eos_token_id,), "before": "Well. ", "behind": "", "loss": "all"}
    record(**known, **around).save(tmp_path / "rows.json")
    (tmp_path / "few.toml").write_text(FEW)
    files = ("--manifest", f"{tmp_path}/manifest.json", "--settings", f"{tmp_path}/few.toml")
    return "--model", f"{tmp_path}/model", *files


def test_rows_next_to_the_manifest_are_used(
    call: Call, inserted: tuple[str, ...], tmp_path: Path
) -> None:
    seen = call("check", *inserted, "--out", tmp_path / "out")
    assert seen.code == 2  # too few canaries
    context = Result.read(tmp_path / "out/result.json").context
    assert context is not None
    assert (context.source, context.left) == ("rows", "<|endoftext|>Well. ")


def test_what_is_said_of_the_rows_does_not_overrule_them(
    call: Call, inserted: tuple[str, ...]
) -> None:
    seen = call("check", *inserted, "--left-context", "eos")
    assert seen.code == 3
    assert "leave left_context out, or move rows.json aside" in seen.err
