"""The model card: what a hub reads back, and everything that was there before."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import EvalResult
from made_results import hostile_run, secret_texts, small_run

from lmexposure.errors import FileError, ModelError
from lmexposure.records import open_run
from lmexposure.reporting import ReportData, report_data
from lmexposure.reporting.model_card import (
    DATASET,
    card_with_results,
    evaluation_results,
    write_card,
)

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


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    return report_data(open_run(small_run(tmp_path_factory.mktemp("run"))))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "my-model").mkdir()
    return tmp_path / "my-model"


def read(path: Path) -> Any:
    """As a hub reads it."""
    return ModelCard.load(path)


def add(model: Path, data: ReportData, *, weights_known: bool = False) -> Path:
    return write_card(*card_with_results(model, data, weights_known=weights_known))


def ours(card: Any) -> list[EvalResult]:
    return [one for one in card.data.eval_results or [] if one.dataset_type == DATASET]


def test_where_there_is_no_card_one_is_made(model: Path, data: ReportData) -> None:
    path = add(model, data, weights_known=True)
    card = read(path)
    assert card.data.model_name == "my-model"
    assert card.text.strip() == "# my-model"
    by_name = {one.metric_name: one for one in ours(card)}
    assert by_name["gate"].metric_value == "leak"
    exposure = next(one for name, one in by_name.items() if "exposure, bits" in str(name))
    assert exposure.dataset_config == "random_number"
    assert exposure.metric_args is not None
    assert exposure.metric_args["level"] == 0.95
    found = next(one for one in ours(card) if "guesses, repetitions 4" in str(one.metric_name))
    assert found.metric_value == 0.6
    (epsilon,) = (one for one in ours(card) if one.metric_type == "epsilon")
    assert data.privacy is not None
    assert data.privacy.primary is not None
    assert epsilon.metric_value == pytest.approx(data.privacy.primary.value, rel=1e-3)


def test_written_twice_it_is_the_same(model: Path, data: ReportData) -> None:
    path = add(model, data)
    first = path.read_bytes()
    assert add(model, data).read_bytes() == first


def test_a_card_of_two_kinds_of_line_ends_keeps_those_of_its_metadata(
    model: Path, data: ReportData
) -> None:
    path = model / "README.md"
    path.write_bytes(b"---\nlicense: mit\nlanguage: en\n---\n# Title\r\nbody  \r\n")
    add(model, data)
    metadata, _, rest = path.read_bytes().rpartition(b"---\n")
    assert b"license: mit\n" in metadata
    assert b"\r" not in metadata
    assert rest == b"# Title\r\nbody  \r\n"


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_everything_else_stays_to_the_byte(
    model: Path, data: ReportData, line_end: str, bom: str
) -> None:
    path = model / "README.md"
    path.write_bytes((bom + CARD.replace("\n", line_end)).encode())
    add(model, data)
    written = path.read_bytes().decode()
    assert written.count("\r\n") == (written.count("\n") if line_end == "\r\n" else 0)
    before, _, behind = CARD.replace("\n", line_end).partition("model-index:")
    after = behind[behind.index("# behind the index") :]
    assert written.startswith(bom + before)
    assert written.endswith(after)
    card = read(path)
    assert card.data.model_name == "theirs"
    theirs = [one for one in card.data.eval_results or [] if one.dataset_type != DATASET]
    assert [(one.dataset_name, one.metric_value) for one in theirs] == [("Beäns", 0.9)]
    assert "extra: kept" in written
    assert ours(card)
    assert add(model, data).read_bytes().decode() == written


def test_an_earlier_entry_is_replaced(model: Path, data: ReportData, tmp_path: Path) -> None:
    (model / "README.md").write_text(CARD)
    add(model, data)
    other = report_data(open_run(small_run(tmp_path / "r", memorised=(), extraction=False)))
    card = read(add(model, other))
    assert len(ours(card)) == len(evaluation_results(other))
    assert {one.metric_value for one in ours(card) if one.metric_type == "verdict"} == {
        str(other.verdict.outcome)
    }


@pytest.mark.parametrize(
    "card",
    [
        "",
        "# No metadata\n\ntext\n",
        "---\n# only a comment\n---\ntext",
        "---\n{license: mit, tags: [a]}\n---\ntext",
        "---\nbase: &b {x: 1}\nmodel-index: []\nother: *b\n---\ntext",
        "---\nmodel-index:\n- name: x\n  results: &r []\nagain: *r\n---\ntext",
        "---\nmodel-index:\nlicense: mit\n---\ntext",
        "---\nlicense: mit\n\n\n---\ntext",
    ],
)
def test_any_sound_card_keeps_its_text_and_its_metadata(
    model: Path, data: ReportData, card: str
) -> None:
    path = model / "README.md"
    path.write_text(card)
    before = read(path)
    add(model, data)
    after = read(path)
    assert after.text.strip() == before.text.strip()
    kept, now = before.data.to_dict(), after.data.to_dict()
    assert {k: v for k, v in now.items() if k in kept and k != "model-index"} == {
        k: v for k, v in kept.items() if k != "model-index"
    }
    assert len(ours(after)) == len(evaluation_results(data))
    first = path.read_bytes()
    assert add(model, data).read_bytes() == first


@pytest.mark.parametrize(
    ("card", "message"),
    [
        ("---\nlicense: mit\n# no end", "empty or not closed by ---"),
        ("---\n---\n# Nothing in it\n", "empty or not closed by ---"),
        ("---\na: [1\n---\n", "its metadata is not YAML"),
        ("---\n- a\n---\n", "no table of names and values"),
        ("---\nmodel-index: 3\n---\n", "its model-index is no list of models"),
        ("---\nmodel-index:\n- name: x\n  results: 3\n---\n", "results in its model-index are no"),
        ("---\nmodel-index:\n- name: x\n  results: [3]\n---\n", "results in its model-index are"),
    ],
)
def test_a_broken_card_is_named_and_left_alone(
    model: Path, data: ReportData, card: str, message: str
) -> None:
    path = model / "README.md"
    path.write_text(card)
    with pytest.raises(ModelError, match=message) as caught:
        add(model, data)
    assert str(path) in str(caught.value)
    assert path.read_text() == card


def test_a_card_that_is_no_text(model: Path, data: ReportData) -> None:
    (model / "README.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelError, match="as UTF-8 text"):
        add(model, data)


def test_no_such_directory(tmp_path: Path, data: ReportData) -> None:
    with pytest.raises(ModelError, match="no model directory at"):
        add(tmp_path / "none", data)


def test_a_disk_that_refuses(
    model: Path, data: ReportData, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model / "README.md").write_text(CARD)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileError, match="cannot write"):
        add(model, data)
    assert (model / "README.md").read_text() == CARD


def test_permissions_stay(model: Path, data: ReportData) -> None:
    path = model / "README.md"
    path.write_text(CARD)
    path.chmod(0o640)
    add(model, data)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_no_secret_even_where_the_data_has_them(model: Path, tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path / "r"))
    assert run.manifest is not None
    text = add(model, report_data(run, show_secrets=True)).read_text()
    assert [one for one in secret_texts(run.manifest) if one in text] == []


def test_hostile_names_are_values(model: Path, tmp_path: Path) -> None:
    data = report_data(open_run(hostile_run(tmp_path / "r", "x: y\n---\n# z")))
    card = read(add(model, data))
    assert {one.dataset_config for one in ours(card)} == {None, "x: y\n---\n# z"}
    assert card.text.strip() == "# my-model"
