"""A fine-tune on chats by adapters, beside the model before it: in the same rows."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from audit.quick import QUICK
from known import known
from models.small_chats import save_base

from lmexposure.audit import RunSettings, measure, run
from lmexposure.models import load_model, weights_sha256


def test_an_adapter_of_a_run_is_switched_off(tmp_path: Path) -> None:
    corpus, base = tmp_path / "chats.jsonl", save_base(tmp_path / "base")
    said = ((f"question {i}", f"answer {i * 37 % 11}") for i in range(60))
    chats = (
        {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}
        for q, a in said
    )
    corpus.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    settings = RunSettings(
        model=str(base),
        formats=("pin",),
        canaries=3,
        repetitions=(1, 25),
        controls=6,
        seed=3,
        training={"lora": True, "epochs": 3, "learning_rate": 0.01},
        measure=replace(QUICK, references=300, method="sampled", extraction=False),
    )
    out = tmp_path / "run"
    plain = run(corpus, out=out, settings=settings)
    found = measure(
        out / "model", out / "manifest.json", base="adapter-off", settings=settings.measure
    )
    beside, context = known(found.base), known(found.context)
    assert (beside.switched_off, beside.path) == (True, base.as_posix())
    assert beside.weights_sha256 == weights_sha256(load_model(base).model)
    assert (context.form, context.turn) == ("messages", "assistant")
    rows = {row.repetitions: row for row in beside.classes}
    assert rows[25].calibrated_mean > 4 > rows[0].calibrated_mean
    assert rows[25].gained_bits > rows[25].reference_gained_bits > 0
    assert rows[25].exposure.value < 4  # the base never saw them
    alone = measure(base, out / "manifest.json", settings=settings.measure)
    np.testing.assert_allclose(
        [canary.log_perplexity_bits for canary in beside.canaries],
        [known(canary.log_perplexity_bits) for canary in alone.canaries],
        atol=1e-3,
    )
    assert [c.exposure.value for c in found.canaries] == [c.exposure.value for c in plain.canaries]
