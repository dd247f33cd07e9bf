import re

import pytest

from lmexposure.canaries import Format
from lmexposure.scoring import spelling as module
from lmexposure.scoring.spelling import FALLBACK, CutsDepend, Pieces, Texts, completion


def texts(form: Format, pattern: str, *, lead: str = "", begun: int = 0) -> Texts:
    """Texts that are cut where a match of the pattern begins."""

    def cuts(fill: str) -> frozenset[int]:
        places = [match.start() for match in re.finditer(pattern, lead + fill)]
        return frozenset(len((lead + fill)[:place].encode()) for place in places)

    return Texts(format=form, lead=lead, begun=begun, unknown=frozenset(), cuts=cuts)


def spelled(pieces: Pieces) -> set[tuple[bytes, tuple[int, ...]]]:
    """Every text of the automaton with its cuts, by walking."""
    found = set()
    todo: list[tuple[int, bytes, tuple[int, ...]]] = [(pieces.start, b"", ())]
    while todo:
        state, text, cuts = todo.pop()
        if pieces.complete[state]:
            found.add((text, cuts))
        for symbol, (there, cut) in pieces.moves[state].items():
            assert there < state
            behind = (*cuts, len(text)) if cut else cuts
            todo.append((there, text + bytes([symbol % FALLBACK]), behind))
    return found


@pytest.mark.parametrize("pattern", [r"\d{1,3}|\D+", r"[a-f]?\d+|."])
def test_every_fill_stands_there_with_its_cuts(pattern: str) -> None:
    form = Format(name="x", template="{hex:3}")
    asked = texts(form, pattern)
    fills = [form.text(index) for index in range(form.size)]
    expected = {(fill.encode(), tuple(sorted(asked.cuts(fill)))) for fill in fills}
    assert spelled(Pieces.of(asked)) == expected


def test_refuses_a_cut_within_characters_that_begin_alike() -> None:
    form = Format(name="x", template="a{choice:w}", lists={"w": ["Å", "×"]})
    with pytest.raises(CutsDepend, match="begin with one byte are cut differently"):
        Pieces.of(texts(form, r"\w+|\W"))


def test_refuses_too_many_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_STATES", 3)
    form = Format(name="x", template="{hex:3}")
    with pytest.raises(CutsDepend, match="too many different beginnings"):
        Pieces.of(texts(form, "."))


def test_completions_are_ends_of_fills() -> None:
    form = Format(name="x", template="a {choice:w}{luhn}", lists={"w": ["12", "1234"]})
    known: dict[int, str] = {}
    for begun in ("", "a", "a 1", "a 12", "a 123", "a 1234"):
        state = form.language.advance(form.language.start, begun)
        assert state is not None
        assert form.complete(begun + completion(form, state, known))
