"""The files of a report: whole, in their place, and without a secret that nobody asked for."""

import json
import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from made_results import hostile_run, secret_texts, small_run

from lmexposure.canaries import Manifest
from lmexposure.errors import FileError, ModelError, SettingsError
from lmexposure.reporting import FORMATS, write_compare, write_report
from lmexposure.studies import open_run

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
    run = open_run(small_run(tmp_path / "run", seed=SEED))
    assert run.manifest is not None
    (tmp_path / "model").mkdir()
    out = tmp_path / "deep" / "out"
    written = write_report(
        run, out=out, formats=FORMATS, charts=True, model_card=tmp_path / "model"
    )
    *files, card = written
    assert card == tmp_path / "model" / "README.md"
    assert [path.name for path in files[:4]] == [f"report.{name}" for name in FORMATS]
    charts = files[4:]
    assert {path.parent for path in charts} == {out / "charts"}
    assert {path.suffix for path in charts} == {".svg", ".png", ".pdf"}
    assert len(charts) >= 8
    assert next(path for path in charts if path.suffix == ".png").read_bytes()[1:4] == b"PNG"
    assert not (tmp_path / "run" / "report.html").exists()
    assert json.loads((out / "report.json").read_text())["title"] == "run"
    written += write_compare([run, run], out=tmp_path / "compare", formats=FORMATS)
    text = all_texts([path for path in written if path.suffix != ".png"])
    assert secrets_in(text, run.manifest) == []
    assert str(SEED) not in text
    assert secrets_in(all_texts([tmp_path / "run" / "manifest.json"]), run.manifest) != []


def test_secrets_that_were_asked_for_are_the_owners(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path))
    assert run.manifest is not None
    written = write_report(run, formats=FORMATS, show_secrets=True)
    for path in written:
        assert run.manifest.entries[0].text.split()[-1] in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for path in write_report(run, formats=FORMATS):
        assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.slow
def test_hostile_names_do_not_break_a_page(tmp_path: Path) -> None:
    run = open_run(hostile_run(tmp_path / "run"))
    written = write_report(run, out=tmp_path / "out", formats=FORMATS, charts=True)
    pages = all_texts([path for path in written if path.suffix in (".html", ".svg")])
    assert "<script>alert" not in pages
    names = [path.relative_to(tmp_path / "out").as_posix() for path in written]
    assert all(re.fullmatch(r"[a-z0-9_./-]+", name) for name in names)


def test_what_nobody_sees_is_spelled_out_in_every_file(tmp_path: Path) -> None:
    run = open_run(hostile_run(tmp_path / "run", UNSEEN))
    warned = run.result.model_copy(update={"warnings": (f"look {UNSEEN}",)})
    run = replace(run, result=warned, name=UNSEEN)
    written = write_report(run, out=tmp_path / "out", formats=FORMATS)
    written += write_compare([run, run], out=tmp_path / "out", formats=FORMATS)
    for path in written:
        text = path.read_bytes().decode()
        assert re.search(r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f\u2028\u202e\u2066]", text) is None
        if path.suffix == ".json":
            assert json.loads(text)["formats"][0]["name"] == UNSEEN
        else:
            assert r"a\x1b[31mb\u202ec\u2066" in text


def test_unknown_formats_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path))
    with pytest.raises(SettingsError, match=r"format='pdf' must be one of html, md, csv, json"):
        write_report(run, formats=("html", "pdf"))
    with pytest.raises(SettingsError, match="no format given; choose of html, md, csv, json"):
        write_compare([run, run], out=tmp_path, formats=())
    assert not (tmp_path / "report.html").exists()


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path))
    before = write_report(run, formats=("md",))[0].read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"cannot write .*report.md: .*; choose another directory"):
        write_report(run, out=tmp_path / "file" / "out", formats=("md",))
    (tmp_path / "report.md").unlink()
    (tmp_path / "report.md").mkdir()
    with pytest.raises(FileError, match=r"report.md: it is a directory; give the name of a file"):
        write_report(run, formats=("md",))
    (tmp_path / "report.md").rmdir()
    (tmp_path / "report.md").write_bytes(before)
    assert write_report(run, formats=("md",))[0].read_bytes() == before
    (tmp_path / "report.md").write_bytes(before + b"mine")
    with pytest.raises(FileError, match=r"report.md was changed since lmexposure wrote it; choose"):
        write_report(run, formats=("md",))
    assert (tmp_path / "report.md").read_bytes() == before + b"mine"


@pytest.mark.slow
def test_a_run_from_elsewhere_does_not_say_where_its_report_goes(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    (tmp_path / "mine").write_text("precious")
    (run / "report.md").symlink_to(tmp_path / "mine")
    with pytest.raises(
        FileError, match=r"report.md is a link, which is not followed; choose another directory"
    ):
        write_report(open_run(run))
    assert (tmp_path / "mine").read_text() == "precious"
    assert not (run / "report.html").exists()
    (run / "charts").symlink_to(tmp_path)
    with pytest.raises(FileError, match="is a link, which is not followed"):
        write_report(open_run(run), formats=("csv",), charts=True)
    assert sorted(os.listdir(tmp_path)) == ["mine", "run"]


def test_a_model_card_without_its_model(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path))
    with pytest.raises(ModelError, match="no model directory at"):
        write_report(run, formats=("md",), model_card=tmp_path / "none")
    with pytest.raises(
        ModelError, match=r"have sha256 2222222222222222, and those measured 111111111111"
    ):
        write_report(run, formats=("md",), model_card=tmp_path, card_weights="2" * 64)
