"""`check --model` scores in the rows that `verify --rows` left next to the manifest."""

from pathlib import Path

from audit.wrapped import plain_manifest
from chats import chat_tokenizer
from cli.conftest import Call
from studies.test_rows_record import record
from tiny import model_of

from lmexposure.models import save_model, tokenizer_sha256
from lmexposure.studies import Result

FEW = "estimate = 'sampled'\nextraction = false\npermutations = 99\nbootstraps = 39\n"


def test_rows_next_to_the_manifest_are_used(call: Call, tmp_path: Path) -> None:
    tokenizer, manifest = chat_tokenizer(), plain_manifest()
    save_model(model_of("llama", len(tokenizer)), tokenizer, tmp_path / "model")
    manifest.write(tmp_path / "manifest.json")
    known = {"manifest_sha256": manifest.sha256, "tokenizer_sha256": tokenizer_sha256(tokenizer)}
    around = {"start": (tokenizer.eos_token_id,), "before": "Well. ", "behind": "", "loss": "all"}
    record(**known, **around).save(tmp_path / "rows.json")
    (tmp_path / "few.toml").write_text(FEW)
    files = ("--manifest", tmp_path / "manifest.json", "--settings", tmp_path / "few.toml")
    seen = call("check", "--model", tmp_path / "model", *files, "--out", tmp_path / "out")
    assert seen.code == 2  # too few canaries
    context = Result.read(tmp_path / "out/result.json").context
    assert context is not None
    assert (context.source, context.left) == ("rows", "<|endoftext|>Well. ")
