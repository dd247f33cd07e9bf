"""`lmexposure identifiers`: beside held-out documents and without, in words and in files."""

from pathlib import Path

import pytest
from cli.conftest import Call
from identifier_corpora import keyed_lines, trained, write_lines

from lmexposure.models import save_model
from lmexposure.studies import NaturalIdentifiers


@pytest.mark.slow
def test_held_out_documents_decide_and_without_them_the_claim_is_open(
    call: Call, tmp_path: Path
) -> None:
    form = tmp_path / "key.toml"
    form.write_text('name = "key"\ntemplate = "the key {hex:8}"\n')
    loaded = trained(keyed_lines(1), epochs=30)
    save_model(loaded.model, loaded.tokenizer, tmp_path / "model")
    corpus = write_lines(tmp_path / "corpus.txt", keyed_lines(1))
    apart = write_lines(tmp_path / "apart.txt", keyed_lines(9, 40))
    command = ("identifiers", tmp_path / "model", corpus, "--format", form, "--draws", "99")
    done = call.done(*command, "--held-out", apart, "--out", tmp_path / "beside")
    assert "membership: the model read these identifiers" in done.out
    assert "Beside 40 held-out documents" in done.out
    record = NaturalIdentifiers.read(tmp_path / "beside" / "identifiers.json")
    assert record.split is not None
    assert "held-out documents" in (tmp_path / "beside" / "report.md").read_text()
    alone = call.done(*command, "--out", tmp_path / "alone")
    assert "distribution or membership: the identifiers rank lower than chance" in alone.out
    assert "give them (--held-out)" in alone.out
