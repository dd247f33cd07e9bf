from lmexposure.canaries import Format
from lmexposure.scoring.space.byte_language import ByteLanguage

WORDS = ["é", "ê", "é1", "€", "日本", "🙂"]
FORM = Format(name="w", template="a{choice:w}", lists={"w": WORDS})


def texts_of(language: ByteLanguage) -> set[bytes]:
    """Every complete text, by walking."""
    found, todo = set(), [(language.start, b"")]
    while todo:
        state, text = todo.pop()
        if language.complete(state):
            found.add(text)
        todo += [(there, text + bytes([b])) for b, there in language.moves(state).items()]
    return found


def test_all_fills_and_nothing_else_are_read() -> None:
    assert texts_of(ByteLanguage(FORM.language)) == {("a" + word).encode() for word in WORDS}


def test_a_known_text_stands_before_them() -> None:
    language = ByteLanguage(FORM.language, known="é\n".encode())
    assert texts_of(language) == {("é\na" + word).encode() for word in WORDS}


def test_what_no_fill_goes_on_with_is_none() -> None:
    language = ByteLanguage(FORM.language)
    begun = language.read(language.start, b"a\xc3")
    assert begun is not None
    assert not language.complete(begun)
    assert language.advance(begun, 0xA8) is None
    assert language.read(language.start, b"ab") is None
