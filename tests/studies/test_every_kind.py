"""What holds of every kind of study: opened, judged, shown, written and compared alike."""

import csv
import html
import importlib.metadata
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli.conftest import Call, call
from made_studies import MADE

import lmexposure as lx
from lmexposure import doors
from lmexposure.core import Check, Dated, Study, as_markdown, inline, kind_of, kinds, registry
from lmexposure.errors import FileError, LmexposureError, ResultError, SettingsError

__all__ = ["call"]  # a fixture of the tests of commands

FORMATS = ("html", "md", "csv", "json")


@pytest.fixture(params=sorted(MADE))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def made(kind: str) -> Study:
    return MADE[kind](1)


@pytest.fixture
def home(made: Study, tmp_path: Path) -> Path:
    (tmp_path / "study").mkdir()
    made.write(tmp_path / "study" / made.NAME)
    return tmp_path / "study"


def test_every_kind_that_there_is_is_made_here() -> None:
    assert doors.open is lx.open  # from there on they are known
    assert set(MADE) == set(kinds())
    assert all(type(make(0)) is kind_of(name) for name, make in MADE.items())


def test_it_is_read_as_it_was_written(made: Study, home: Path) -> None:
    assert lx.open(home) == lx.open(str(home / made.NAME)) == made
    assert (f"{made.KIND}.json", f"lmexposure.{made.KIND}") == (made.NAME, made.FAMILY)
    assert made.provenance.line.startswith(f"lmexposure {made.lmexposure}, {made.provenance.date}")


def test_damage_is_refused_by_name(made: Study, home: Path) -> None:
    path = home / made.NAME
    whole = path.read_bytes()
    other = whole.replace(b"/1", b"/2", 1)
    for damaged, message in (
        (whole[:-40], "is not readable JSON"),
        (whole.replace(b'"lmexposure":', b'"exposure":', 1), "does not fit its content_sha256"),
        (other, f"has schema 'lmexposure.{made.KIND}/2', and this version"),
        (b"", "is not readable JSON"),
        (b'{"schema": "lmexposure.other/4"}', "schema 'lmexposure.other/4'; expected"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ResultError, match=message) as refused:
            lx.check(home)
        assert str(path) in str(refused.value)
        assert made.AGAIN in str(refused.value) or "give a" in str(refused.value)
    path.unlink()
    with pytest.raises(LmexposureError):
        lx.check(home)


def test_another_studys_file_next_to_it_is_refused(made: Study, home: Path, call: Call) -> None:
    for name, sha256 in made.beside_it.items():
        for content, is_its in (
            (json.dumps({"schema": "x", "content_sha256": sha256}), True),
            (json.dumps({"schema": "x", "content_sha256": "0" * 64}), False),
            ("", False),
        ):
            (home / name).write_text(content)
            if is_its:
                assert lx.open(home) == made
                continue
            for path in (home, home / made.NAME):
                with pytest.raises(ResultError, match=f"{name} is of another study"):
                    lx.open(path)
            assert call("report", home).code == 3
        (home / name).unlink()
    assert lx.open(home) == made


def test_no_flipped_byte_gives_another_study(made: Study, home: Path) -> None:
    path = home / made.NAME
    whole = path.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 150)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert lx.open(home) == made  # a blank between two tokens may be another one
        except LmexposureError:
            continue


def test_it_is_told_in_every_format(made: Study, home: Path) -> None:
    document = lx.open(home).document()
    for name in FORMATS:
        text = lx.report(home, home / f"report.{name}").read_text(encoding="utf-8")
        if name == "csv":
            rows = list(csv.DictReader(io.StringIO(text)))
            assert len(rows) == len(document.main.rows)
            assert list(rows[0]) == [column.key for column in document.main.columns]
        elif name == "json":
            values = json.loads(text)
            assert len(values["main"]["rows"]) == len(document.main.rows)
            assert set(values["sections"]) == {section.id for section in document.sections}
        else:
            assert document.title in text
            assert all(section.title in text for section in document.on(name))
    frame = made.to_frame()
    assert list(frame.columns) == [column.key for column in document.main.columns]
    assert len(frame) == len(document.main.rows)
    assert document.title in lx.open(home)._repr_html_()
    assert len(repr(made)) < 300
    assert len(dir(made)) <= 21
    assert not {"warnings", "construct", "AGAIN", "inputs_sha256"} & set(dir(made))
    assert {"to_frame", "save", *(name for name in dir(made) if hasattr(made, name))} == set(
        dir(made)
    )


def test_its_charts_are_drawn_alike_each_time(made: Study) -> None:
    for chart, again in zip(made.document().drawings(), made.document().drawings(), strict=True):
        assert chart.svg() == again.svg()
        assert (chart.pdf(), chart.png()) == (again.pdf(), again.png())
        assert chart.description
    if made.document().drawings():
        assert made.plot().name == made.document().drawings()[0].name
        return
    with pytest.raises(SettingsError, match="has no charts; see to_frame"):
        made.plot()


def test_whatever_it_holds_is_escaped(made: Study) -> None:
    hostile = "<script>alert(1)</script>|*x*"
    named = made.model_copy(update={"lmexposure": hostile})
    for text in (as_markdown(named.document()), named._repr_html_()):
        assert "<script>alert" not in text


def test_nothing_foreign_is_replaced(made: Study, home: Path, tmp_path: Path) -> None:
    (home / "report.md").write_text("mine")
    with pytest.raises(FileError, match="did not write it"):
        lx.report(made, home)
    assert (home / "report.md").read_text() == "mine"
    (home / "report.md").unlink()
    (tmp_path / "secret").write_text("theirs")
    (home / "report.html").symlink_to(tmp_path / "secret")
    with pytest.raises(FileError, match="is a link"):
        lx.report(made, home)
    assert (tmp_path / "secret").read_text() == "theirs"


def test_the_directory_of_another_study_is_refused(made: Study, kind: str, home: Path) -> None:
    other = MADE[kind](2)
    with pytest.raises(SettingsError, match="holds another study"):
        lx.report(other, home)
    strange = kind_of("canife" if kind == "result" else "result")
    (home / made.NAME).rename(home / strange.NAME)
    with pytest.raises(ResultError, match=f"holds {strange.WHAT}"):
        lx.report(made, home)


def test_a_report_is_as_private_as_its_study_and_takes_no_other_ones_place(
    made: Study, kind: str, tmp_path: Path
) -> None:
    path = lx.report(made, tmp_path / "out")
    assert path.stat().st_mode & 0o077 == (0 if made.PRIVATE else 0o044)
    first = path.read_bytes()
    assert lx.report(made, tmp_path / "out").read_bytes() == first
    with pytest.raises(FileError, match="is of another study"):
        lx.report(MADE[kind](2), tmp_path / "out")
    with pytest.raises(SettingsError, match="must end in"):
        lx.report(made, tmp_path / "report.docx")


def test_it_is_judged_by_its_own_thresholds_alone(made: Study) -> None:
    verdict = lx.check(made)
    assert {check.key for check in verdict.checks} <= set(made.CHECKS)
    assert verdict.to_dict()["outcome"] == verdict.outcome
    values: dict[str, Any] = {"max_epsilon": 3.0, "max_exposure": 9.0, "max_guesses": 7}
    for name, value in values.items():
        limits = lx.Thresholds(**{name: value})
        if name in made.LIMITS:
            assert name in {check.key for check in lx.check(made, limits).checks}
            continue
        with pytest.raises(SettingsError, match=f"{name}={value} does not apply to {made.WHAT}"):
            lx.check(made, limits)
    said = (line for line in made.checks(lx.Thresholds()) if not isinstance(line, Check))
    assert set(said) <= set(verdict.untested)


def test_two_of_a_kind_are_set_side_by_side(made: Study, kind: str, tmp_path: Path) -> None:
    other = MADE[kind](2)
    paths = lx.compare([made, other], tmp_path / "compare", formats=FORMATS)
    assert [path.name for path in paths] == [f"compare.{name}" for name in FORMATS]
    rows = list(csv.DictReader(io.StringIO(paths[2].read_text(encoding="utf-8"))))
    names, others = ([number.name for number in study.numbers()] for study in (made, other))
    assert [row["name"] for row in rows] == [name for name in names if name in others]
    told = paths[1].read_text(encoding="utf-8")
    assert "What they differ in" in told
    with pytest.raises(SettingsError, match="1 study to compare; give two or more"):
        lx.compare([made], tmp_path / "one")


def test_a_comparison_is_as_private_as_its_studies_and_takes_no_other_ones_place(
    made: Study, kind: str, tmp_path: Path
) -> None:
    first = lx.compare([made, MADE[kind](2)], tmp_path)
    assert {path.stat().st_mode & 0o077 for path in first} == {0 if made.PRIVATE else 0o044}
    assert lx.compare([made, MADE[kind](2)], tmp_path) == first
    with pytest.raises(FileError, match="is of another study"):
        lx.compare([made, MADE[kind](3)], tmp_path)


def test_a_report_begins_with_its_verdict_by_the_thresholds_that_are_given(
    made: Study, tmp_path: Path
) -> None:
    verdict = lx.check(made)
    assert f"**{inline(verdict.sentence)}**" in lx.report(made, tmp_path / "r.md").read_text()
    told = json.loads(lx.report(made, tmp_path / "r.json").read_text())["verdict"]
    assert told == json.loads(json.dumps(verdict.to_dict()))
    page = lx.report(made, tmp_path / "r.html").read_text()
    assert all(html.escape(check.reason, quote=False)[:20] in page for check in verdict.checks)
    name, value = ("max_worst_tpr", 0.5) if "repetitions" in made.LIMITS else ("repetitions", 3)
    strange: Any = {name: value}
    with pytest.raises(SettingsError, match=f"{name}={value} does not apply to {made.WHAT}"):
        lx.report(made, tmp_path, thresholds=lx.Thresholds(**strange))


@pytest.mark.timeout(20)
def test_a_pipe_in_its_place_is_not_waited_for(made: Study, home: Path) -> None:
    (home / made.NAME).unlink()
    os.mkfifo(home / made.NAME)
    for path in (home, home / made.NAME):
        with pytest.raises(LmexposureError):
            lx.check(path)


def test_commands_take_it(made: Study, kind: str, home: Path, tmp_path: Path, call: Call) -> None:
    verdict = lx.check(made)
    done = call("check", home, "--json", tmp_path / "v.json", "--sarif", tmp_path / "s.sarif")
    assert done.code == verdict.exit_code
    assert json.loads((tmp_path / "v.json").read_text())["sentence"] == verdict.sentence
    done = call("report", home, "--charts", *(f"--format={name}" for name in FORMATS))
    assert done.code == 0, done.err
    assert verdict.sentence in done.out
    charts = made.document().drawings()
    drawn = {path.name for path in home.glob("charts/*")}
    names = [chart.name for chart in charts]
    assert drawn == {f"{name}.{suffix}" for name in names for suffix in ("svg", "png", "pdf")}
    (tmp_path / "other").mkdir()
    MADE[kind](2).write(tmp_path / "other" / made.NAME)
    done = call("compare", home, tmp_path / "other", "--out", tmp_path / "both")
    assert done.code == 0, done.err
    assert "Side by side" in done.out
    refused = call("report", home, "--manifest", home / "manifest.json")
    assert refused.code == 3
    assert kind == "result" or made.WHAT in refused.err


class Tenth(Dated):
    """A kind of a package outside of this one."""

    KIND = "tenth"
    WHAT = "a tenth study"
    AGAIN = "make it again"

    def document(self) -> Any: ...
    def checks(self, limits: lx.Thresholds) -> Iterator[Check | str]:
        yield "everything: nothing was measured"

    def numbers(self) -> Iterator[Any]:
        yield from ()

    def asked(self) -> dict[str, Any]:
        return {}


def test_a_package_outside_has_kinds_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = SimpleNamespace(name="tenth", value=f"{__name__}:Tenth")
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [point] * (group == registry.GROUP)
    )
    tenth = Tenth(measured="2026-11-26T06:30:00Z", lmexposure="9", inputs_sha256="0" * 64)
    tenth.write(tmp_path / "tenth.json")
    assert lx.open(tmp_path) == tenth
    assert lx.check(tmp_path).outcome == "inconclusive"
    MADE["canife"](0).write(tmp_path / "canife.json")
    with pytest.raises(ResultError, match="holds several studies"):
        lx.open(tmp_path)
    with pytest.raises(SettingsError, match=r"canife\.json is a federated training, and"):
        lx.compare([tmp_path / "tenth.json", tmp_path / "canife.json"], tmp_path / "out")
    point.name = "other"
    with pytest.raises(SettingsError, match="is registered as 'other' and has KIND='tenth'"):
        kind_of("other")
