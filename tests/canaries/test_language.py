"""What may follow a beginning, against the list of all fills."""

import pytest

from lmexposure.canaries import Format, shipped_formats

SMALL = [
    Format(name="digits", template="No {digits:3}."),
    Format(name="check", template="1-{digits:2}{luhn}!"),
    Format(name="names", template="{choice:c} and {choice:c}", lists={"c": ["Al", "Ali", "A"]}),
    Format(name="end", template="I am {choice:c}", lists={"c": ["Ann", "Anna", "Bo"]}),
    Format(name="moving", template="{choice:c}{luhn}", lists={"c": ["1", "18", "205"]}),
]


@pytest.mark.parametrize("one", SMALL, ids=lambda one: one.name)
def test_agrees_with_the_list_of_all_fills(one: Format) -> None:
    texts = {one.text(index) for index in range(one.size)}
    beginnings = {text[:end] for text in texts for end in range(len(text) + 1)}
    characters = {character for text in texts for character in text} | {"?"}
    for beginning in beginnings:
        following = {c for c in characters if beginning + c in beginnings}
        assert one.next_characters(beginning) == "".join(sorted(following))
        assert one.complete(beginning) == (beginning in texts)
        assert one.viable(beginning)
        for character in characters - following:
            assert not one.viable(beginning + character)
            assert one.next_characters(beginning + character) == ""
            assert not one.complete(beginning + character)


def test_states_can_be_kept_and_taken_up_again() -> None:
    language = SMALL[1].language
    state = language.advance(language.start, "1-4")
    assert state is not None
    assert language.advance(language.start, "1-") == language.advance(language.start, "1-")
    one_way, other_way = language.advance(state, "2"), language.advance(state, "3")
    assert one_way is not None
    assert other_way is not None
    assert language.next_characters(one_way) != language.next_characters(other_way)
    assert language.advance(state, "") == state


def test_equal_ways_to_go_on_share_a_state() -> None:
    language = SMALL[0].language
    assert language.advance(language.start, "No 12") == language.advance(language.start, "No 98")


@pytest.mark.parametrize("one", shipped_formats().values(), ids=lambda one: one.name)
def test_every_beginning_of_a_shipped_fill_is_viable(one: Format) -> None:
    for index in one.sample(5, seed=1):
        text = one.text(index)
        for end, character in enumerate(text):
            assert character in one.next_characters(text[:end])
        assert one.complete(text)
        assert not one.viable(text + "?")
