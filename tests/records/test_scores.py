"""Scores of any tool as columns, and every way in which such a file can be wrong."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmexposure.errors import InputError
from lmexposure.records import read_score_file


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def parquet(path: Path, **columns: list[object]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_a_csv_of_another_tool(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "name,loss,member\nx,1.5,yes\ny,2.5,no\nz,0.5,IN\n")
    found = read_score_file(file, score="loss", included="member", lower_is_in=True, repetitions=4)
    assert found.scores.tolist() == [-1.5, -2.5, -0.5]
    assert found.roles.tolist() == ["canary", "held_out", "canary"]
    assert found.repetitions.tolist() == [4, 4, 4]
    assert found.formats.tolist() == ["", "", ""]


@pytest.mark.parametrize(
    "words",
    [
        "1,0",
        "1.0,0.0",
        "1.000000000000000000e+00,0.000000000000000000e+00",  # as numpy.savetxt writes them
        "True,False",
        "true,false",
        "yes,no",
    ],
)
def test_yes_and_no_in_many_spellings(tmp_path: Path, words: str) -> None:
    yes, no = words.split(",")
    file = written(tmp_path / "a.csv", f"score,included\n1,{yes}\n2,{no}\n")
    assert read_score_file(file).roles.tolist() == ["canary", "held_out"]


def test_windows_line_ends_a_byte_order_mark_and_spaces_in_the_header(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"\xef\xbb\xbfscore, included\r\n1,1\r\n2,0\r\n")
    assert read_score_file(file).scores.tolist() == [1.0, 2.0]


def test_who_was_out_with_no_repetitions_is_a_reference(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "score,included,repetitions\n1,1,16\n2,0,16\n3,0,0\n")
    assert read_score_file(file).roles.tolist() == ["canary", "held_out", "reference"]


def test_the_flag_does_not_overrule_a_column(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", "score,included,repetitions\n1,1,16\n2,0,16\n")
    with pytest.raises(InputError, match=r"has a column 'repetitions'.*leave repetitions=4 out"):
        read_score_file(file, repetitions=4)


def test_a_file_of_this_package_needs_no_names(tmp_path: Path) -> None:
    file = parquet(
        tmp_path / "scores.parquet",
        format=["pin", "pin", "ssn"],
        role=["canary", "held_out", "reference"],
        repetitions=[1, 1, 0],
        log_perplexity_bits=[10.0, 20.0, 30.0],
    )
    found = read_score_file(file)
    assert found.scores.tolist() == [-10.0, -20.0, -30.0]  # lower bits = more memorised
    assert found.roles.tolist() == ["canary", "held_out", "reference"]
    assert found.formats.tolist() == ["pin", "pin", "ssn"]


def test_booleans_and_whole_numbers_of_a_parquet_file(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", score=[1, 2], included=[True, False])
    assert read_score_file(file).roles.tolist() == ["canary", "held_out"]
    file = parquet(tmp_path / "b.parquet", score=[1, 2], included=[1, 0])
    assert read_score_file(file).roles.tolist() == ["canary", "held_out"]


@pytest.mark.parametrize("column", ["score", "included"])
def test_no_error_shows_a_cell(tmp_path: Path, column: str) -> None:
    cells = {"score": "1", "included": "1", column: "My SSN is 123-45-6789"}
    file = written(tmp_path / "a.csv", f"score,included\n{cells['score']},{cells['included']}\n")
    with pytest.raises(InputError, match=f"row 1, column '{column}'") as refused:
        read_score_file(file)
    assert "123" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no scores"),
        ("score,included\n", "holds no scores"),
        ("score,included\n1,1\nabc,0\n", "row 2, column 'score' holds no finite number"),
        ("score,included\n1,1\n,0\n", "row 2, column 'score' holds no finite number"),
        ("score,included\n1,1\nnan,0\n", "holds no finite number"),
        ("score,included\n1,1\ninf,0\n", "holds no finite number"),
        ("score,included\n1,1\n2,maybe\n", "row 2, column 'included' must say who was in"),
        ("score,included\n1,1.0\n2,2e0\n", "row 2, column 'included' must say who was in"),
        ("score,included\n1\n", "row 1 has 1 cells under 2 names"),
        ("score,score\n1,1\n", "two columns of one name"),
        ("value,included\n1,1\n", r"no column 'score'; it has included, value"),
        ("score,member\n1,1\n", r"no column 'included'; it has member, score"),
        ("score;included\n1;1\n", "separate by commas"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_score_file(written(tmp_path / "a.csv", text))


def test_a_missing_value_of_a_parquet_file_is_named(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", score=[1.0, None], included=[True, False])
    with pytest.raises(InputError, match="row 2, column 'score'"):
        read_score_file(file)


@pytest.mark.parametrize("cells", [[[1.0], [2.0]], [date(2026, 1, 2), date(2026, 1, 3)]])
def test_cells_that_are_no_numbers_of_a_parquet_file(tmp_path: Path, cells: list[object]) -> None:
    file = parquet(tmp_path / "a.parquet", score=cells, included=[True, False])
    with pytest.raises(InputError, match="row 1, column 'score' holds no finite number"):
        read_score_file(file)


def test_two_columns_of_one_name_in_a_parquet_file(tmp_path: Path) -> None:
    columns = [pa.array([1.0, 2.0]), pa.array([3.0, 4.0]), pa.array([True, False])]
    table = pa.Table.from_arrays(columns, names=["score", "score", "included"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match="two columns of one name"):
        read_score_file(tmp_path / "a.parquet")


def test_no_file_another_kind_and_a_cut_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file at"):
        read_score_file(tmp_path / "a.csv")
    with pytest.raises(InputError, match=r"must be a \.csv file"):
        read_score_file(written(tmp_path / "a.txt", "score\n1\n"))
    (tmp_path / "b.csv").mkdir()
    with pytest.raises(InputError, match="a directory"):
        read_score_file(tmp_path / "b.csv")
    (tmp_path / "c.csv").write_bytes("score,größe\n1,1\n".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8 text"):
        read_score_file(tmp_path / "c.csv")
    with pytest.raises(InputError, match="cannot be read"):
        read_score_file(written(tmp_path / "a.parquet", "PAR1 and then nothing"))
