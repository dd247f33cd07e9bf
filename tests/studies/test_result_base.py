"""What no result may say beside its base."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from made_results import small_result, small_run

from lmexposure._files import canonical_json, sha256_bytes
from lmexposure._integrity import CONTENT
from lmexposure.errors import ResultError
from lmexposure.studies import Result, read_score_file

Values = dict[str, Any]


@cache
def _written() -> str:
    return json.dumps(small_result(base=True, canaries=3, controls=2, privacy=False).to_dict())


def read(change: Callable[[Values], object]) -> Result:
    """The result with a change, and a hash that is right."""
    values = json.loads(_written())
    change(values)
    content = canonical_json(values)
    sealed = f'{{"{CONTENT}":"{sha256_bytes(content)}",'.encode() + content[1:]
    return Result.parse(sealed, Path("result.json"))


def test_a_result_beside_a_base_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = small_result(base=True, canaries=3, controls=2, privacy=False)
    assert Result.read(result.save(tmp_path / "run")) == result
    assert read(lambda values: None) == result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.update(base=None), r"has a calibrated exposure, and the result no base"),
        (lambda v: v["base"]["canaries"].pop(), r"the base are of .* canaries, and not those of"),
        (
            lambda v: v["canaries"][0]["estimates"].pop("calibrated"),
            r"the calibrated exposures are of .* canaries, and not those of the result",
        ),
        (lambda v: v["base"]["classes"].pop(), r"beside the base are not those of the summary"),
    ],
)
def test_what_cannot_be_is_refused(change: Callable[[Values], object], message: str) -> None:
    with pytest.raises(ResultError, match=message):
        read(change)


def test_scores_beside_a_base_are_read(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", base=True)
    scores = Result.read(run / "result.json").scores
    assert scores is not None
    assert scores.base_log_perplexity_bits is not None
    assert scores.base_log_perplexity_bits.shape == scores.log_perplexity_bits.shape
    assert read_score_file(run / "scores.parquet").scores[0] == -scores.log_perplexity_bits[0]
    plain = Result.read(small_run(tmp_path / "plain") / "result.json").scores
    assert plain is not None
    assert plain.base_log_perplexity_bits is None
