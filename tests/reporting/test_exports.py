"""CSV and JSON: other tools read the same numbers, and no cell is a formula."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_results import small_run

from lmexposure.reporting import CompareData, ReportData, compare_data
from lmexposure.reporting.exports import compare_csv, compare_json, report_csv, report_json
from lmexposure.studies import open_run


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def test_a_row_for_each_canary_with_its_numbers_in_full(data: ReportData) -> None:
    text = report_csv(data)
    rows = rows_of(text)
    assert len(rows) == 36
    assert text.count("\r\n") == 37
    for row, one in zip(rows, data.formats[0].canaries, strict=True):
        assert float(row["exposure_bits"]) == one.exposure
        assert float(row["log_perplexity_bits"]) == one.log_perplexity_bits
        assert row["id"] == one.id
        assert row["guesses"] == ("" if one.guesses is None else str(one.guesses))
    assert "secret" not in rows[0]


@pytest.mark.parametrize("begin", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1"])
def test_no_name_is_a_formula(data: ReportData, begin: str) -> None:
    form = data.formats[0]
    bad = tuple(replace(one, id=begin + ',"x"\n', method=begin) for one in form.canaries)
    rows = rows_of(report_csv(replace(data, formats=(replace(form, name=begin, canaries=bad),))))
    assert rows[0]["format"] == f"'{begin}"
    assert rows[0]["id"] == f'\'{begin},"x"\n'
    assert rows[0]["method"] == f"'{begin}"


def test_numbers_stay_numbers(data: ReportData) -> None:
    form = data.formats[0]
    one = replace(form.canaries[0], exposure=-0.5, rank="123456789012345678901", low=None)
    rows = rows_of(report_csv(replace(data, formats=(replace(form, canaries=(one,)),))))
    assert rows[0]["exposure_bits"] == "-0.5"
    assert rows[0]["exposure_low_bits"] == ""
    assert rows[0]["rank"] == "123456789012345678901"


def test_json_holds_everything(data: ReportData) -> None:
    values = json.loads(report_json(data))
    assert values["schema"] == "lmexposure.report/2"
    assert values["verdict"]["outcome"] == "leak"
    assert values["verdict"]["exit_code"] == 1
    assert len(values["formats"][0]["reference_bits"]) == 400
    assert values["formats"][0]["canaries"][0]["exposure"] == data.formats[0].canaries[0].exposure
    assert values["roc"][0]["fpr"][-1] == 1
    assert values["redacted"] is True


def test_a_curve_is_a_table_of_each_evaluation(data: ReportData) -> None:
    last = replace(data.training[-1], exposures=(("pin, 1 repetition", 2.5), ("late", None)))
    rows = json.loads(report_json(replace(data, training=(data.training[0], last))))["training"]
    assert rows[0] == {
        "step": 0,
        "epoch": 0.0,
        "train_bits": None,
        "validation_bits": 6.5,
        "tokens": 0,
        "seconds": 0.0,
        "exposures": {},
    }
    assert rows[1]["exposures"] == {"pin, 1 repetition": 2.5, "late": None}


def test_a_record_is_told_as_its_file_tells_it(data: ReportData) -> None:
    assert data.privacy is not None
    assert json.loads(report_json(data))["privacy"] == data.privacy.model_dump(mode="json")


def test_a_comparison_is_a_row_for_each_run_and_class(tmp_path: Path) -> None:
    runs = [open_run(small_run(tmp_path / name)) for name in ("a", "b")]
    data: CompareData = compare_data(runs)
    rows = rows_of(compare_csv(data))
    assert [(row["run"], row["repetitions"]) for row in rows] == [
        (name, repetitions) for repetitions in ("0", "1", "4") for name in ("a", "b")
    ]
    cell = data.formats[0].classes[2].cells[0]
    assert cell is not None
    assert float(rows[-1]["median"]) == cell.median
    assert (rows[-1]["guesses"], rows[-1]["found"]) == ("1000", "6")
    assert json.loads(compare_json(data))["schema"] == "lmexposure.compare/2"
