"""The files of a report: whole, in their place, and without a secret that nobody asked for."""

import csv
import io
import json
import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import core.test_page
import pytest
from known import known
from made_results import (
    HOSTILE,
    changed,
    hostile_run,
    secret_texts,
    small_result,
    small_run,
    with_files,
    with_result,
)

import lmexposure as lx
from lmexposure.canaries import Manifest
from lmexposure.core import FORMATS, as_csv, as_markdown, write_report
from lmexposure.core.render import as_json, as_page
from lmexposure.errors import FileError, SettingsError
from lmexposure.studies import CanaryResult, Result
from lmexposure.studies.exposure import document

SEED = 918_273_645
UNSEEN = "a\x1b[31mb\u202ec\u2066d\x00\x7f"


def all_texts(paths: list[Path]) -> str:
    return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in paths)


def secrets_in(text: str, manifest: Manifest) -> list[str]:
    """Secrets that stand in a text as they are, spaced out, or as part of an address."""
    squeezed = re.sub(r"[\s,_\u202f\u2009]", "", text)
    return [
        one
        for one in secret_texts(manifest)
        if one in text or quote(one) in text or (one.isdigit() and one in squeezed)
    ]


@pytest.mark.slow
def test_every_form_is_in_its_place_and_holds_no_secret_and_no_chosen_seed(tmp_path: Path) -> None:
    run = Result.read(small_run(tmp_path / "run", seed=SEED))
    manifest = known(run.files.manifest)
    out = tmp_path / "deep" / "out"
    files = write_report(run, out, formats=FORMATS, charts=True)
    assert [path.name for path in files[:4]] == [f"report.{name}" for name in FORMATS]
    charts = files[4:]
    assert {path.parent for path in charts} == {out / "charts"}
    assert {path.suffix for path in charts} == {".svg", ".png", ".pdf"}
    assert len(charts) >= 8
    assert next(path for path in charts if path.suffix == ".png").read_bytes()[1:4] == b"PNG"
    assert not (tmp_path / "run" / "report.html").exists()
    assert json.loads((out / "report.json").read_text())["title"] == "run"
    files += lx.compare([run, run], tmp_path / "compare", formats=FORMATS)
    text = all_texts([path for path in files if path.suffix != ".png"])
    assert secrets_in(text, manifest) == []
    assert str(SEED) not in text
    assert secrets_in(all_texts([tmp_path / "run" / "manifest.json"]), manifest) != []


def test_secrets_that_were_asked_for_are_the_owners(tmp_path: Path) -> None:
    run = Result.read(small_run(tmp_path))
    secret = known(run.files.manifest).entries[0].text.split()[-1]
    written = write_report(run, tmp_path, formats=FORMATS, show_secrets=True)
    for path in written:
        assert secret in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "This page shows secrets" in written[0].read_text()
    assert "**This report shows secrets" in written[1].read_text()
    for path in write_report(run, tmp_path, formats=FORMATS):
        assert secret not in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.slow
def test_hostile_names_stay_names(tmp_path: Path) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    run = Result.read(hostile_run(tmp_path / HOSTILE.replace("/", "")))
    written = write_report(run, tmp_path / "out", formats=FORMATS, charts=True)
    pages = all_texts([path for path in written if path.suffix in (".html", ".svg")])
    assert "<script>alert" not in pages
    names = [path.relative_to(tmp_path / "out").as_posix() for path in written]
    assert all(re.fullmatch(r"[a-z0-9_./-]+", name) for name in names)
    assert core.test_page.Nesting(written[0].read_text()).open == []
    compared = lx.compare([run, run], tmp_path / "both", formats=("md",))
    parser = markdown_it.MarkdownIt("gfm-like", {"linkify": False, "html": True})
    for path in (written[1], *compared):
        html = parser.render(path.read_text())
        assert "<script" not in html
        assert "<a " not in html
        assert html.count("<h1>") == 1
        assert html.count("&lt;script&gt;") > 5


def test_what_nobody_sees_is_spelled_out_in_every_file(tmp_path: Path) -> None:
    run = Result.read(hostile_run(tmp_path / "run", UNSEEN))
    run = with_result(run, warnings=(f"look {UNSEEN}",))
    run = with_files(run, name=UNSEEN)
    written = write_report(run, tmp_path / "out", formats=FORMATS)
    written += lx.compare([run, run], tmp_path / "out", formats=FORMATS)
    for path in written:
        text = path.read_bytes().decode()
        assert re.search(r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f\u2028\u202e\u2066]", text) is None
        if path.name == "report.json":
            assert json.loads(text)["main"]["rows"][0]["format"] == UNSEEN
        elif path.suffix != ".json":
            assert r"a\x1b[31mb\u202ec\u2066" in text


def test_unknown_formats_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    run = Result.read(small_run(tmp_path))
    with pytest.raises(SettingsError, match=r"format='pdf' must be one of html, md, csv, json"):
        write_report(run, tmp_path, formats=("html", "pdf"))
    with pytest.raises(SettingsError, match="no format given; choose of html, md, csv, json"):
        lx.compare([run, run], tmp_path, formats=())
    assert not (tmp_path / "report.html").exists()


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    run = Result.read(small_run(tmp_path))
    before = write_report(run, tmp_path, formats=("md",))[0].read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"cannot write .*report.md: .*; choose another directory"):
        write_report(run, tmp_path / "file" / "out", formats=("md",))
    (tmp_path / "report.md").unlink()
    (tmp_path / "report.md").mkdir()
    with pytest.raises(FileError, match=r"report.md: it is a directory; give the name of a file"):
        write_report(run, tmp_path, formats=("md",))
    (tmp_path / "report.md").rmdir()
    (tmp_path / "report.md").write_bytes(before)
    assert write_report(run, tmp_path, formats=("md",))[0].read_bytes() == before
    (tmp_path / "report.md").write_bytes(before + b"mine")
    with pytest.raises(FileError, match=r"report.md was changed since lmexposure wrote it; choose"):
        write_report(run, tmp_path, formats=("md",))
    assert (tmp_path / "report.md").read_bytes() == before + b"mine"


@pytest.mark.slow
def test_a_run_from_elsewhere_does_not_say_where_its_report_goes(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    (tmp_path / "mine").write_text("precious")
    (run / "report.md").symlink_to(tmp_path / "mine")
    with pytest.raises(
        FileError, match=r"report.md is a link, which is not followed; choose another directory"
    ):
        write_report(Result.read(run), run)
    assert (tmp_path / "mine").read_text() == "precious"
    assert not (run / "report.html").exists()
    (run / "charts").symlink_to(tmp_path)
    with pytest.raises(FileError, match="is a link, which is not followed"):
        write_report(Result.read(run), run, formats=("csv",), charts=True)
    assert sorted(os.listdir(tmp_path)) == ["mine", "run"]


def test_one_screen_of_markdown_says_it_all(run: Result) -> None:
    text = as_markdown(run.told())
    assert text.startswith("# mine: leaks\n\n**Leaks: a secret inserted 4 times is found at ")
    assert "False alarms: at most 1 % of models that memorised nothing are called" in text
    assert "What now:\n\n1. Do not release this model: whoever can query it can guess" in text
    assert "Tested:\n\n- leaks: secrets found by guessing: 1 of 2 classes leaks\n- " in text
    assert "Not tested:\n\n- " in text
    row = "| `random_number` | `controls` | 16 | 0.95 | 0.53 .. 2.24 | 0.4180 | 0/16 | n/a |"
    assert row in text
    assert "| `random_number` | `4×` | 10 | 20.82 |" in text
    assert "the whole secret has 29.9 bits" in text
    assert "epsilon ≥ 0.860 nats at delta 0, a lower bound" in text
    assert "\n- assumes: " in text
    assert "--set permutations=999" in text
    assert "Fill in the words in capitals, if there are any" in text
    assert "SEED is plan.seed in manifest.json" in text
    assert len(text.splitlines()) < 75


def test_many_classes_fold() -> None:
    many: dict[str, Any] = {"formats": ("random_number", "pin", "tiny"), "canaries": 4}
    result = small_result(**many, repetitions=(1, 2, 3, 4, 5))
    text = as_markdown(result.told())
    assert "<details><summary>All 18 classes</summary>" in text
    above = text.split("<details>")[0]
    assert above.count("| `pin` | ") == 1
    page = as_page(result.told())
    glance = page[page.index('id="glance-table"') : page.index('id="exposure-1-table"')]
    assert glance.count("<tr><th") == 3


def test_what_is_not_there_is_said_and_not_drawn() -> None:
    bare = small_result(privacy=False, extraction=False)
    text = as_page(bare.told())
    for said in (
        "the result holds none",
        "Extraction was not tried",
        "The training is not on record",
        "is not on record",
    ):
        assert said in text
    empty = changed(bare, formats=(), canaries=(), summary=())
    for shown in (as_page(empty.told()), as_markdown(empty.told())):
        assert "No canaries were measured." in shown


def test_the_table_of_canaries_has_the_most_exposed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> list[Any]:
        (section,) = (one for one in small_result().document().sections if one.id == "canaries")
        return list(known(section.table).rows)

    shown = [row.exposure for row in rows()]
    assert shown == sorted(shown, reverse=True)
    assert len(shown) == len(small_result().canaries)
    monkeypatch.setattr(document, "_MOST_ROWS", 20)
    assert len(rows()) == 20
    text = as_page(small_result().told())
    assert "16 more canaries are not in this table: it holds the 20" in text
    assert len(small_result().to_frame()) == 36


def test_files_for_machines_have_numbers_in_full(run: Result) -> None:
    text = as_csv(run.document())
    rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    assert len(rows) == 36
    for row, one in zip(rows, run.canaries, strict=True):
        assert float(row["exposure"]) == one.exposure.value
        assert float(row["log_perplexity_bits"]) == one.log_perplexity_bits
        assert row["id"] == one.id
    assert "secret" not in rows[0]
    huge = with_result(run, canaries=(_of_rank(run.canaries[0], 123456789012345678901),))
    assert json.loads(as_json(huge.document()))["main"]["rows"][0]["rank"] == (
        "123456789012345678901"
    )


def _of_rank(canary: CanaryResult, rank: int) -> CanaryResult:
    exposure = replace(canary.exposure, rank=rank)
    return canary.model_copy(update={"exposure": exposure})
