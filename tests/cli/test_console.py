import io
import sys

import pytest
from rich.errors import MarkupError

from lmexposure.cli import console


def test_lines_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Markup, colours and wrapping would change a path, or raise on a template."""
    line = "[red]/a/path[/] {digits:9} " + "x" * 300
    try:
        console.say(line)
        console.error(line)
    except MarkupError:
        pytest.fail("user text was read as markup")
    seen = capsys.readouterr()
    assert seen.out == line + "\n"
    assert seen.err == f"error: {line}\n"


def test_only_the_first_of_several_processes_speaks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    console.say("once")
    console.warn("always")
    seen = capsys.readouterr()
    assert (seen.out, "always" in seen.err) == ("", True)


def test_tables_and_pairs_keep_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(["name", "n"], [["[a]", "7"], ["b", "10"]], right=(1,))
    console.print_pairs([("one", "1"), ("three", "3")])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["name   n", "[a]    7", "b     10", "one    1", "three  3"]


def test_bars_are_quiet_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress_bars() as bars:
        bars.show("scoring", 1, 2)
    assert not bars.drawn
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("encoding", "line", "cell"),
    [
        ("utf-8", "epsilon ≥ 1, 16× é \u4e2d", "≥ 13.29"),
        ("cp1252", "epsilon >= 1, 16× é \\u4e2d", ">= 13.29"),
        ("ascii", "epsilon >= 1, 16x \\xe9 \\u4e2d", ">= 13.29"),
    ],
)
def test_a_terminal_that_lacks_a_sign_gets_it_in_others(
    monkeypatch: pytest.MonkeyPatch, encoding: str, line: str, cell: str
) -> None:
    """Standard output refuses what its encoding lacks; a table keeps its columns all the same."""
    written = {name: io.BytesIO() for name in ("stdout", "stderr")}
    for name, stream in written.items():
        monkeypatch.setattr(sys, name, io.TextIOWrapper(stream, encoding, write_through=True))
    console.say("epsilon ≥ 1, 16× é \u4e2d")
    console.print_table(["epsilon ≥", "n"], [["≥ 13.29", "7"], ["≥ 2.00", "10"]], right=(0, 1))
    console.warn("≥")
    shown = written["stdout"].getvalue().decode(encoding).splitlines()
    assert shown[0] == line
    assert [" ".join(row.split()[:2]) for row in shown[2:]] == [cell, cell.split()[0] + " 2.00"]
    assert len({len(row.rstrip()) for row in shown[1:]}) == 1
    assert written["stderr"].getvalue().decode(encoding).startswith("warning: ")


def test_an_error_is_seen_without_a_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    console.error("no such run")
    assert capsys.readouterr().err == "error: no such run\n"


def test_without_standard_output_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)  # as Python has it where a shell closed it
    console.say("a line")
    console.print_table(["a"], [["1"]])
