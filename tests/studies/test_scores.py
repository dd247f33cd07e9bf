"""Scores of any tool as columns, and every way in which such a file can be wrong."""

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmexposure.errors import InputError
from lmexposure.studies import read_score_file


def stored(home: Path, content: Any) -> Path:
    """Text or bytes as CSV, a table as Parquet."""
    if isinstance(content, str | bytes):
        file = home / "a.csv"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file
    table = content if isinstance(content, pa.Table) else pa.table(content)
    pq.write_table(table, home / "a.parquet")
    return home / "a.parquet"


def test_a_csv_of_another_tool(tmp_path: Path) -> None:
    file = stored(tmp_path, "name,loss,member\nx,1.5,yes\ny,2.5,no\nz,0.5,IN\n")
    found = read_score_file(file, score="loss", included="member", lower_is_in=True, repetitions=4)
    assert found.scores.tolist() == [-1.5, -2.5, -0.5]
    assert found.roles.tolist() == ["canary", "held_out", "canary"]
    assert found.repetitions.tolist() == [4, 4, 4]
    assert found.formats.tolist() == ["", "", ""]


def test_the_flag_does_not_overrule_a_column(tmp_path: Path) -> None:
    file = stored(tmp_path, "score,included,repetitions\n1,1,16\n2,0,16\n")
    with pytest.raises(InputError, match=r"has a column 'repetitions'.*leave repetitions=4 out"):
        read_score_file(file, repetitions=4)


def test_a_file_of_this_package_needs_no_names(tmp_path: Path) -> None:
    columns = {
        "format": ["pin", "pin", "ssn"],
        "role": ["canary", "held_out", "reference"],
        "repetitions": [1, 1, 0],
        "log_perplexity_bits": [10.0, 20.0, 30.0],
    }
    found = read_score_file(stored(tmp_path, columns))
    assert found.scores.tolist() == [-10.0, -20.0, -30.0]  # lower bits = more memorised
    assert found.roles.tolist() == ["canary", "held_out", "reference"]
    assert found.formats.tolist() == ["pin", "pin", "ssn"]


YES_NO = ["1,0", "1.0,0.0", "True,False", "true,false", "yes,no"]
SAVETXT = "1.000000000000000000e+00,0.000000000000000000e+00"  # as numpy.savetxt writes them


@pytest.mark.parametrize(
    "content",
    [
        *("score,included\n1,{}\n2,{}\n".format(*words.split(",")) for words in [*YES_NO, SAVETXT]),
        "\ufeffscore, included\r\n1,1\r\n2,0\r\n",
        "score,included,repetitions\n1,1,16\n2,0,16\n3,0,0\n",
        {"score": [1, 2], "included": [True, False]},
        {"score": [1, 2], "included": [1, 0]},
    ],
)
def test_who_was_in_in_many_spellings(tmp_path: Path, content: Any) -> None:
    found = read_score_file(stored(tmp_path, content))
    assert found.scores.tolist()[:2] == [1.0, 2.0]
    assert found.roles.tolist()[:2] == ["canary", "held_out"]
    assert set(found.roles[2:]) <= {"reference"}  # out, with no repetitions


@pytest.mark.parametrize("column", ["score", "included"])
def test_no_error_shows_a_cell(tmp_path: Path, column: str) -> None:
    cells = {"score": "1", "included": "1", column: "My SSN is 123-45-6789"}
    file = stored(tmp_path, f"score,included\n{cells['score']},{cells['included']}\n")
    with pytest.raises(InputError, match=f"row 1, column '{column}'") as refused:
        read_score_file(file)
    assert "123" not in str(refused.value)


TWICE = pa.Table.from_arrays([pa.array([1.0])] * 3, names=["score", "score", "included"])
IN_OUT = {"included": [True, False]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no scores"),
        ("score,included\n", "holds no scores"),
        ("score,included\n1,1\nabc,0\n", "row 2, column 'score' holds no finite number"),
        ("score,included\n1,1\n,0\n", "row 2, column 'score' holds no finite number"),
        ("score,included\n1,1\nnan,0\n", "holds no finite number"),
        ("score,included\n1,1\ninf,0\n", "holds no finite number"),
        ("score,included\n1,1\n2,maybe\n", "row 2, column 'included' must say who was in"),
        ("score,included\n1,1.0\n2,2e0\n", "row 2, column 'included' must say who was in"),
        ("score,included\n1\n", "row 1 has 1 values under 2 names"),
        ("score,score\n1,1\n", "two columns of one name"),
        ("value,included\n1,1\n", r"no column 'score'; it has included, value"),
        ("score,member\n1,1\n", r"no column 'included'; it has member, score"),
        ("score;included\n1;1\n", "separate by commas"),
        ("score,größe\n1,1\n".encode("latin-1"), "not UTF-8 text"),
        ({"score": [1.0, None], **IN_OUT}, "row 2, column 'score'"),
        ({"score": [[1.0], [2.0]], **IN_OUT}, "row 1, column 'score' holds no finite number"),
        ({"score": [date(2026, 1, 2)] * 2, **IN_OUT}, "row 1, column 'score' holds no finite num"),
        (TWICE, "two columns of one name"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_score_file(stored(tmp_path, content))


def test_no_file_another_kind_and_a_cut_one(tmp_path: Path) -> None:
    (tmp_path / "b.csv").mkdir()
    (tmp_path / "a.txt").write_text("score\n1\n")
    (tmp_path / "a.parquet").write_text("PAR1 and then nothing")
    refused = {
        "a.csv": "no file at",
        "a.txt": r"must be a \.csv file",
        "b.csv": "a directory",
        "a.parquet": "cannot be read",
    }
    for name, said in refused.items():
        with pytest.raises(InputError, match=said):
            read_score_file(tmp_path / name)
