"""The quick ways of looking find what the slow one finds."""

import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries import Format, Plan, insert_into_file
from lmexposure.canaries.corpora.layouts import layout_named
from lmexposure.canaries.corpora.surveying import survey_files
from lmexposure.canaries.corpora.textfile import Block
from lmexposure.canaries.format import count_fills, sure_words
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="Mé PIN is {digits:2}")
CODE = Format(name="code", template="code {lower:2}")
BARE = Format(name="bare", template="{digits:2} is bare")
TEXTS = st.lists(
    st.lists(
        st.sampled_from(["Mé PIN is 42", "code ab", "code ", "12 is bare", " ", "x\\", "\u2028"]),
        max_size=4,
    ).map("".join),
    min_size=1,
    max_size=6,
)


@given(TEXTS, st.booleans(), st.sampled_from([(PIN,), (PIN, CODE), (PIN, BARE)]))
def test_what_is_passed_over_holds_no_fill(
    texts: list[str], escaped: bool, formats: tuple[Format, ...]
) -> None:
    spelled = [json.dumps({"note": "code zz", "text": one}, ensure_ascii=escaped) for one in texts]
    for layout, lines in ((layout_named("jsonl"), spelled), (layout_named("lines"), texts)):
        data = "".join(f"{line}\n" for line in lines).encode()
        block = Block(first_line=5, data=data, has_bom=False)
        whole = layout.scans_lines
        slow = count_fills(formats, layout.texts(block), whole_lines=whole)
        quick = layout.searched(block, sure_words(formats))
        assert count_fills(formats, quick, whole_lines=whole) == slow


def test_the_same_without_orjson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(
        b'{"n": 12345678901234567890123, "text": "a"}\n\n{"text": "\\u00e9", "x": NaN}\r\n' * 9
    )
    plan = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=1, seed=5)
    with_it = insert_into_file(source, plan, tmp_path / "b", layout="jsonl")
    monkeypatch.setitem(sys.modules, "orjson", None)
    assert insert_into_file(source, plan, tmp_path / "c", layout="jsonl") == with_it
    assert (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"text": "a"}\n{"text": 3}\n', r"a.jsonl: line 2: field 'text' is not a string"),
        (b'{"text": "a"}\r\n\n{"txt": "b"}\n', r"line 3: field 'text' is missing"),
        (b'{"text": "a"}\n{"text": "\\ud800"}\n', r"line 2: the text holds a lone surrogate"),
        (b'{"text": "a"}\n["text"]\n', r"line 2 is a JSON list, not an object"),
    ],
)
def test_bad_records_are_named(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(CorpusError, match=message):
        survey_files([tmp_path / "a.jsonl"], layout_named("jsonl"), (PIN,))


@pytest.mark.parametrize("every", [1, 2, 50])
def test_many_words_without_a_fill(every: int) -> None:
    lines = ["Mé PIN is gone" if n % every == 0 else "nothing" for n in range(5000)]
    lines[4321] = "Mé PIN is 42, Mé PIN is 43 and Mé PIN is"
    data = "".join(f"{line}\n" for line in lines).encode()
    block = Block(first_line=7, data=data, has_bom=False)
    searched = layout_named("lines").searched(block, sure_words((PIN,)))
    found = count_fills((PIN,), searched, whole_lines=True)["pin"]
    assert found.counts == {42: 1, 43: 1}
    assert set(found.first_places.values()) == {7 + 4321}


def test_a_pipe_is_refused_and_told_the_way() -> None:
    reader, writer = os.pipe()
    with open(reader, "rb"), open(writer, "wb"):
        name = Path(f"/dev/fd/{reader}")
        if not name.exists():
            pytest.skip("no /dev/fd here")
        with pytest.raises(CorpusError, match=r"is a pipe, and would be read twice; .* input: -"):
            survey_files([name], layout_named("lines"), (PIN,))


def test_the_first_line_end_may_come_late(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"two\r\nthree\r\n")
    paths = [tmp_path / "a", tmp_path / "b"]
    assert survey_files(paths, layout_named("lines"), ()).first_end == b"\r\n"
    assert survey_files(paths[:1], layout_named("lines"), ()).first_end == b"\n"
