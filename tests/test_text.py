"""Text from files: what nobody sees, or what turns a line around, is spelled out."""

import json
import unicodedata

import pytest

from lmexposure._style import printable, visible

UNSEEN = (
    "\x00\x07\x1b\x7f\x85\u200b\u200e\u202a\u202e\u2028\u2029\u2066\u2069\ufeff\ud800\U000e0041"
)


@pytest.mark.parametrize("one", UNSEEN)
def test_what_is_unseen_is_spelled(one: str) -> None:
    spelled = one.encode("unicode_escape").decode()
    assert visible(f"a{one}b") == printable(f"a{one}b") == f"a{spelled}b"
    escaped = printable(json.dumps(f"a{one}b", ensure_ascii=False), json_escapes=True)
    assert escaped.isprintable()
    assert json.loads(escaped) == f"a{one}b"


def test_what_is_seen_stays_as_it_is() -> None:
    text = "Å ≥ é ñ 漢字 عربى 🙂 e\u0301"
    assert visible(text) == printable(text) == text
    blanks = "one\ttwo\r\nthree\u00a0four\u202ffive"
    assert printable(blanks) == blanks
    assert visible("one\ntwo\t") == r"one\ntwo\t"


def test_every_control_and_format_character_is_unseen() -> None:
    kept = {chr(n) for n in range(0x110000) if unicodedata.category(chr(n)) in ("Cc", "Cf")}
    bare = {one for one in kept if printable(one) == one}
    assert bare == set("\t\n\r")
