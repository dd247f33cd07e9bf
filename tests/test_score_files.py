"""Scores of any tool as columns, and every way in which such a file can be wrong."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmexposure.errors import InputError
from lmexposure.score_files import read_score_file


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def parquet(path: Path, **columns: list[object]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_a_csv_of_another_tool(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "name,loss,member\nx,1.5,yes\ny,2.5,no\nz,0.5,IN\n")
    (one,) = read_score_file(file, score="loss", included="member", lower_is_in=True, repetitions=4)
    assert one.scores.tolist() == [-1.5, -2.5, -0.5]
    assert one.included.tolist() == [True, False, True]
    assert one.repetitions == 4
    assert one.references.size == 0


@pytest.mark.parametrize("words", ["1,0", "1.0,0.0", "True,False", "true,false", "yes,no"])
def test_yes_and_no_in_many_spellings(tmp_path: Path, words: str) -> None:
    yes, no = words.split(",")
    file = written(tmp_path / "a.csv", f"score,included\n1,{yes}\n2,{no}\n")
    assert read_score_file(file)[0].included.tolist() == [True, False]


def test_windows_line_ends_a_byte_order_mark_and_spaces_in_the_header(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"\xef\xbb\xbfscore, included\r\n1,1\r\n2,0\r\n")
    assert read_score_file(file)[0].scores.tolist() == [1.0, 2.0]


def test_classes_of_repetitions_stay_apart(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "score,included,repetitions\n1,1,1\n2,0,1\n3,1,16\n4,0,16\n")
    first, second = read_score_file(file)
    assert (first.repetitions, second.repetitions) == (1, 16)
    assert second.scores.tolist() == [3.0, 4.0]


def test_a_file_of_this_package_needs_no_names(tmp_path: Path) -> None:
    file = parquet(
        tmp_path / "scores.parquet",
        id=["a", "b", "c", "d", "e"],
        role=["canary", "excluded", "control", "reference", "canary"],
        repetitions=[1, 1, 0, 0, 4],
        log_perplexity_bits=[10.0, 20.0, 30.0, 40.0, 5.0],
    )
    one, four = read_score_file(file)
    assert one.scores.tolist() == [-10.0, -20.0]  # lower bits = more memorised
    assert one.included.tolist() == [True, False]
    assert one.references.tolist() == four.references.tolist() == [-40.0]  # the control is neither
    assert (one.repetitions, four.repetitions) == (1, 4)


def test_booleans_of_a_parquet_file(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", score=[1, 2], included=[True, False])
    assert read_score_file(file)[0].included.dtype == np.bool_


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no scores"),
        ("score,included\n", "holds no scores"),
        ("score,included\n1,1\nabc,0\n", r"row 2, column 'score': 'abc' is no finite number"),
        ("score,included\n1,1\n,0\n", r"row 2, column 'score': '' is no finite number"),
        ("score,included\n1,1\nnan,0\n", "is no finite number"),
        ("score,included\n1,1\ninf,0\n", "is no finite number"),
        ("score,included\n1,1\n2,maybe\n", r"row 2, column 'included': 'maybe' must be one of"),
        ("score,included\n1\n", "row 1 has 1 cells under 2 names"),
        ("score,score\n1,1\n", "two columns of one name"),
        ("value,included\n1,1\n", r"no column 'score'; it has included, value"),
        ("score,member\n1,1\n", r"no column 'included'; it has member, score"),
        ("score,role\n1,teacher\n", "name the column that says who was in"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_score_file(written(tmp_path / "a.csv", text))


def test_a_missing_value_of_a_parquet_file_is_named(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", score=[1.0, None], included=[True, False])
    with pytest.raises(InputError, match="row 2, column 'score'"):
        read_score_file(file)


def test_no_file_another_kind_and_a_cut_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file at"):
        read_score_file(tmp_path / "a.csv")
    with pytest.raises(InputError, match=r"must be a \.csv file"):
        read_score_file(written(tmp_path / "a.txt", "score\n1\n"))
    with pytest.raises(InputError, match="cannot be read"):
        read_score_file(written(tmp_path / "a.parquet", "PAR1 and then nothing"))
