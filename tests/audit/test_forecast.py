"""What a measurement would take, before its model is loaded."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from audit.small import TOKENIZER, gpt2, pins

from lmexposure.audit import MeasureSettings, forecast_measurement
from lmexposure.errors import ModelError
from lmexposure.models import load_model, save_model

MANIFEST = pins(6)
RATE = 1e9


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    save_model(gpt2(), TOKENIZER, path := tmp_path_factory.mktemp("models") / "gpt2")
    return path


def test_time_goes_by_parameters_and_rate_and_a_first_look_takes_a_tenth(directory: Path) -> None:
    ahead = forecast_measurement(directory, MANIFEST, rate=RATE)
    faster = forecast_measurement(directory, MANIFEST, rate=10 * RATE)
    quick = MeasureSettings().quicker
    first = forecast_measurement(directory, MANIFEST, rate=RATE, settings=quick)

    def computing(forecast: Any) -> float:
        own = [phase.expected for phase in forecast.phases if phase.kind != "statistics"]
        return math.fsum(own)

    assert computing(ahead) == pytest.approx(10 * computing(faster))
    assert computing(first) < computing(ahead) / 4
    scored = next(phase for phase in ahead.phases if phase.part == "references")
    size = load_model(directory).size
    assert scored.expected == pytest.approx(scored.work * 2 * size / (RATE / 2))
    assert "; with effort='quick' about " in ahead.sentence
    assert ahead.sentence.endswith(" 0.0 GB of weights and up to 1.1 GB more")
    assert "quick" not in first.sentence


def test_an_adapter_takes_as_long_as_its_base(directory: Path, tmp_path: Path) -> None:
    config = {"base_model_name_or_path": str(directory), "peft_type": "LORA"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    found = forecast_measurement(tmp_path, MANIFEST, rate=RATE)
    assert found.seconds == forecast_measurement(directory, MANIFEST, rate=RATE).seconds


def test_the_rate_is_tried_where_none_is_given(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lmexposure.audit import workload

    asked: list[tuple[str, str]] = []

    def tried(device: str, dtype: str) -> float:
        asked.append((device, dtype))
        return RATE

    monkeypatch.setattr(workload, "product_rate", tried)
    forecast_measurement(directory, MANIFEST, dtype="bfloat16")
    assert asked == [("cpu", "bfloat16")]


def test_a_model_whose_shape_cannot_be_read(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such directory; check the path"):
        forecast_measurement(tmp_path / "nowhere", MANIFEST)
    for file in directory.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelError, match=r"cannot read the shape of model .*; give a directory"):
        forecast_measurement(tmp_path, MANIFEST)
