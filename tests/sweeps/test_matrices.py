"""Scores of all models side by side, and their file."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_matrices import ALL, VALIDATION, made_matrices, made_plan
from numpy.typing import NDArray

from lmexposure._written import study
from lmexposure.errors import ResultError
from lmexposure.studies import SweepPlan
from lmexposure.sweeps import Matrices, read_matrices
from lmexposure.sweeps.matrices import ModelScores, join_scores, read_npz

TEXTS = ("one canary", "another canary", "an ordinary document")


def plan_of_three() -> SweepPlan:
    included = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=bool)
    return made_plan(4, 2, 1, included=included)


def arrays_of(number: int) -> dict[str, NDArray[Any]]:
    """As the scoring of a model leaves them: texts of 3, 2 and 4 tokens, then those unseen."""
    lengths = np.array([3, 2, 4, *[2] * VALIDATION])
    secret = np.ones(lengths.sum(), dtype=bool)
    secret[[0, 3]] = False
    return {
        "lengths": lengths,
        "bits": np.arange(lengths.sum()) + 100.0 * number,
        "secret": secret,
        "min_k": np.arange(lengths.size) + 0.5 * number,
        "min_k_plus_plus": -np.arange(lengths.size) - 0.5 * number,
        "matches": np.array([True, False, True, True, number == 2, False]),
        "match_lengths": np.array([4, 2]),
    }


def scores_of(number: int, **changes: Any) -> ModelScores:
    return ModelScores.of(arrays_of(number) | changes, plan_of_three(), f"model {number}")


def test_scores_are_sums_over_tokens_of_each_text() -> None:
    plan = plan_of_three()
    found = join_scores(plan, TEXTS, {2: scores_of(2), 0: scores_of(0)})
    assert found.numbers.tolist() == [0, 2]
    assert found.included.tolist() == [[True, False, True], [True, True, False]]
    whole = [[3, 7, 26], [603, 407, 826]]
    assert (-found.scores["log_perplexity"]).tolist() == whole
    assert (-found.scores["secret_tokens"]).tolist() == [[3, 4, 26], [403, 204, 826]]
    assert found.scores["min_k"].tolist() == [[0, 1, 2], [1, 2, 3]]
    assert found.scores["min_k_plus_plus"].tolist() == [[0, -1, -2], [-1, -2, -3]]
    packed = [8 * len(zlib.compress(text.encode())) for text in TEXTS]
    np.testing.assert_allclose(found.scores["zlib"], -np.array(whole) / packed)
    shares = found.scores["label_only"]
    assert shares[:, :2].tolist() == [[0.75, 0.0], [0.75, 0.5]]
    assert np.isnan(shares[:, 2]).all()
    assert "calibrated" not in found.scores
    assert found.validation_bits[0, 0] == 9 + 10
    assert found.validation_tokens.tolist() == [2] * VALIDATION
    assert [bits.shape for bits in found.token_bits] == [(2, 3), (2, 2), (2, 4)]
    assert found.secret[0].tolist() == [False, True, True]
    assert [matches.shape for matches in found.matches] == [(2, 4), (2, 2), (2, 0)]


def test_a_base_calibrates_by_what_it_expects_of_the_same_text() -> None:
    base = scores_of(0)
    found = join_scores(plan_of_three(), TEXTS, {1: scores_of(1), 2: scores_of(2)}, base)
    gained = base.totals[:3] + found.scores["log_perplexity"]
    np.testing.assert_array_equal(found.scores["calibrated"], gained)
    assert list(found.scores) == [
        *("log_perplexity", "secret_tokens", "calibrated", "min_k", "min_k_plus_plus", "zlib"),
        "label_only",
    ]


def test_the_file_is_read_as_it_was_and_holds_no_coin(tmp_path: Path) -> None:
    plan = made_plan(6, 4, 3)
    matrices = made_matrices(plan, names=ALL, kept=(0, 1, 3, 5))
    path = tmp_path / "matrices.npz"
    with study(tmp_path):
        matrices.save(path)
        first = path.read_bytes()
        matrices.save(path)
    assert path.read_bytes() == first
    assert path.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(path) as content:
        assert not any("included" in name for name in content.namelist())
    for place in (path, tmp_path):
        assert_same(read_matrices(place, plan), matrices)
    assert read_matrices(path, plan).sha256 == matrices.sha256


def assert_same(found: Matrices, wanted: Matrices) -> None:
    for name in ("numbers", "included", "validation_bits", "validation_tokens"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    assert set(found.scores) == set(wanted.scores)
    for name, values in wanted.scores.items():
        np.testing.assert_array_equal(found.scores[name], values)
    for name in ("token_bits", "secret", "matches"):
        for one_text, other in zip(getattr(found, name), getattr(wanted, name), strict=True):
            np.testing.assert_array_equal(one_text, other)


def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    plan, path = made_plan(6, 4, 3), tmp_path / "matrices.npz"
    with pytest.raises(ResultError, match=r"cannot read .*; collect the sweep again"):
        read_matrices(tmp_path, plan)
    made_matrices(plan).save(path)
    for other in (made_plan(6, 4, 2), made_plan(5, 4, 3)):
        with pytest.raises(ResultError, match="is not of this plan, which has"):
            read_matrices(tmp_path, other)
    whole = path.read_bytes()
    half = bytearray(whole)
    half[len(half) // 2] ^= 1
    torn = [b"", b"no numbers", whole[:-40], bytes(half)]
    for numbers in (np.arange(3), np.array([{}], dtype=object)):
        np.savez(path, numbers=numbers)
        torn.append(path.read_bytes())
    for content in torn:
        path.write_bytes(content)
        with pytest.raises(ResultError, match=r"is damaged .*; collect the sweep again"):
            read_matrices(path, plan)


def test_models_of_other_tokens_do_not_belong_together() -> None:
    other = scores_of(1, match_lengths=np.array([3, 3]))
    with pytest.raises(ResultError, match="models 0 and 1 do not split the texts into the same"):
        join_scores(plan_of_three(), TEXTS, {0: scores_of(0), 1: other})
    with pytest.raises(ResultError, match="no model of this sweep has scores"):
        join_scores(plan_of_three(), TEXTS, {})


def test_scores_of_a_model_that_are_not_of_the_plan_are_refused() -> None:
    with pytest.raises(ResultError, match=r"the scores of model 1 are damaged .*do not add up"):
        scores_of(1, lengths=np.array([3, 2]))
    with pytest.raises(ResultError, match=r"the scores of model 1 are damaged \('bits'\)"):
        ModelScores.of({}, plan_of_three(), "model 1")
    with pytest.raises(ResultError, match="the scores of model 1 are of 9 texts, and the plan has"):
        ModelScores.of(arrays_of(1), made_plan(4, 2, 2), "model 1")


def test_some_of_the_models() -> None:
    matrices = made_matrices(made_plan(6, 4, 3), names=ALL)
    kept = np.array([True, False, True, True, False, False])
    some = matrices.of_models(kept)
    assert some.numbers.tolist() == [0, 2, 3]
    np.testing.assert_array_equal(some.included, matrices.included[kept])
    np.testing.assert_array_equal(some.scores["zlib"], matrices.scores["zlib"][kept])
    assert some.validation_bits.shape == (3, VALIDATION)
    assert {bits.shape[0] for bits in (*some.token_bits, *some.matches)} == {3}


def hostile(path: Path, header: str) -> Path:
    """An archive with one array, whose header says this."""
    text = header.encode() + b"\n"
    member = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("bits.npy", member)
    return path


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3,",
        "{'descr': '<f8', 'fortran_order': False, 'shape': " + "(" * 3000 + ")" * 3000 + "}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
    ],
)
def test_a_hostile_header_is_damage(tmp_path: Path, header: str) -> None:
    with pytest.raises(ResultError, match=r"scores.npz is damaged \(.*\); train it again"):
        read_npz(hostile(tmp_path / "scores.npz", header), "train it again")
