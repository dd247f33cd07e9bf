"""The model card: what a hub reads back, and everything that was there before."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import EvalResult
from known import known
from made_results import hostile_run, secret_texts, small_run

from lmexposure.core import judged, write_report
from lmexposure.errors import FileError, ModelError
from lmexposure.studies import Result, card_with_results, save_card
from lmexposure.studies.exposure.model_card import DATASET

CARD = """---
# who may use it
license: mit  # as the paper
tags: [a, a]
unknown:
  deep: 1e-3
  when: 2024-01-02
model-index:
- name: theirs
  results:
  - task:
      type: text-generation
    dataset:
      type: beans
      name: Beäns
    metrics:
    - type: accuracy
      value: 0.9
      extra: kept
# behind the index
language: en
---

# A model

---
not metadata
---
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "my-model").mkdir()
    return tmp_path / "my-model"


def read(path: Path) -> Any:
    """As a hub reads it."""
    return ModelCard.load(path)


def add(model: Path, run: Result, *, weights: str | None = None, secrets: bool = False) -> Path:
    """As the command does."""
    card = model / "README.md"
    content = card_with_results(card, run, weights)
    write_report(run, model.parent / "out", formats=["json"], show_secrets=secrets)
    save_card(card, content)
    return card


def metadata(card: Any) -> dict[str, Any]:
    return dict(card.data.to_dict())


def ours(card: Any) -> list[EvalResult]:
    return [one for one in card.data.eval_results or [] if one.dataset_type == DATASET]


def test_where_there_is_no_card_one_is_made(model: Path, run: Result) -> None:
    path = add(model, run, weights=run.model.weights_sha256)
    card = read(path)
    assert card.data.model_name == "my-model"
    assert card.text.strip() == "# my-model"
    by_name = {one.metric_name: one for one in ours(card)}
    assert by_name["gate"].metric_value == "leak"
    exposure = next(one for name, one in by_name.items() if "exposure, bits" in str(name))
    assert exposure.dataset_config == "random_number"
    assert known(exposure.metric_args)["level"] == 0.95
    found = next(one for one in ours(card) if "guesses, repetitions 4" in str(one.metric_name))
    assert found.metric_value == 0.6
    (epsilon,) = (one for one in ours(card) if one.metric_type == "epsilon")
    assert run.privacy is not None
    assert run.privacy.primary is not None
    assert epsilon.metric_value == pytest.approx(run.privacy.primary.value, rel=1e-3)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_the_text_stays_to_the_byte_and_the_metadata_in_order(
    model: Path, run: Result, line_end: str, bom: str
) -> None:
    path, card = model / "README.md", CARD.replace("\n", line_end)
    path.write_bytes((bom + card).encode())
    before = read(path)
    written = add(model, run).read_bytes().decode()
    assert written.count("\r\n") == (written.count("\n") if line_end == "\r\n" else 0)
    assert written.endswith(card[card.index(f"---{line_end}{line_end}# A model") :])
    after = read(path)
    assert list(metadata(after)) == list(metadata(before))
    assert metadata(after) | {"model-index": 0} == metadata(before) | {"model-index": 0}
    assert after.data.model_name == "theirs"
    theirs = [one for one in after.data.eval_results or [] if one.dataset_type != DATASET]
    assert [(one.dataset_name, one.metric_value) for one in theirs] == [("Beäns", 0.9)]
    assert "extra: kept" in written
    assert ours(after)
    assert "not checked whether the weights" in written
    assert add(model, run).read_bytes().decode() == written


def test_an_earlier_entry_is_replaced(model: Path, run: Result, tmp_path: Path) -> None:
    (model / "README.md").write_text(CARD)
    before = ours(read(add(model, run)))
    other = Result.read(small_run(tmp_path / "r", memorised=(), extraction=False))
    after = ours(read(add(model, other)))
    assert len(after) < len(before)
    verdicts = [one.metric_value for one in after if one.metric_type == "verdict"]
    assert verdicts == [str(judged(other).outcome)]


@pytest.mark.parametrize(
    "card",
    [
        "",
        "# No metadata\n\ntext\n",
        "---\n# only a comment\n---\ntext",
        "---\n{license: mit, tags: [a]}\n---\ntext",
        "---\nbase: &b {x: 1}\nmodel-index: []\nother: *b\n---\ntext",
        "---\nmodel-index:\n- &m {name: x, results: &r []}\nagain: *r\nmodel: *m\n---\ntext",
        "---\nmodel-index:\nlicense: mit\n---\ntext",
        "---\nlicense: mit\n\n\n---\ntext",
        "---\nlicense: mit\n---\n# Title\r\nbody  \r\n",
    ],
)
def test_any_sound_card_keeps_its_text_and_its_metadata(
    model: Path, run: Result, card: str
) -> None:
    path = model / "README.md"
    path.write_text(card)
    before = read(path)
    written = add(model, run).read_bytes()
    after = read(path)
    assert after.text == before.text
    values = {key: value for key, value in metadata(before).items() if key != "model-index"}
    assert {key: value for key, value in metadata(after).items() if key in values} == values
    assert ours(after)
    assert add(model, run).read_bytes() == written


@pytest.mark.parametrize(
    "card",
    [
        b"---\nlicense: mit\n# no end",
        b"---\n---\n# Nothing in it\n",
        b"---\na: [1\n---\n",
        b"---\n- a\n---\n",
        b"---\nmodel-index: 3\n---\n",
        b"---\nmodel-index:\n- name: x\n  results: 3\n---\n",
        b"---\nmodel-index:\n- name: x\n  results: [3]\n---\n",
        b"---\na: " + b"[" * 3_000 + b"\n---\n",
        b"\xff\xfe\x00",
    ],
)
def test_a_broken_card_is_named_and_left_alone(model: Path, run: Result, card: bytes) -> None:
    path = model / "README.md"
    path.write_bytes(card)
    with pytest.raises(ModelError, match=r"cannot read .*README.md as a model card, .* mend it"):
        add(model, run)
    assert path.read_bytes() == card
    assert not (model.parent / "out").exists()


def test_a_disk_that_refuses(model: Path, run: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    (model / "README.md").write_text(CARD)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileError, match="cannot write"):
        add(model, run)
    assert (model / "README.md").read_text() == CARD


def test_permissions_stay_and_no_secret_is_in_it(model: Path, run: Result) -> None:
    path = model / "README.md"
    path.write_text(CARD)
    path.chmod(0o640)
    text = add(model, run, secrets=True).read_text()
    assert [one for one in secret_texts(known(run.files.manifest)) if one in text] == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_hostile_names_are_values(model: Path, tmp_path: Path) -> None:
    card = read(add(model, Result.read(hostile_run(tmp_path / "r", "x: y\n---\n# z"))))
    assert {one.dataset_config for one in ours(card)} == {None, "x: y\n---\n# z"}
    assert card.text.strip() == "# my-model"


def test_a_card_without_its_model(run: Result, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model directory at"):
        add(tmp_path / "none", run)
    with pytest.raises(
        ModelError, match=r"have sha256 2222222222222222, and those measured 111111111111"
    ):
        add(tmp_path, run, weights="2" * 64)
