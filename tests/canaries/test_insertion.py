"""Insertion among texts."""

import pytest

from lmexposure import insert, verify
from lmexposure.canaries import Format, Plan
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=11)
TEXTS = [f"document {number}" for number in range(6)]


def test_canaries_stand_before_the_documents_that_the_manifest_names() -> None:
    inserted, manifest = insert(TEXTS, PLAN)
    assert len(inserted) == 6 + 2 * (1 + 3)
    assert [text for text in inserted if text in TEXTS] == TEXTS
    for canary in manifest.entries:
        before = []
        for place, text in enumerate(inserted):
            if text == canary.text:
                following = next(t for t in inserted[place:] if t in TEXTS)
                before.append(TEXTS.index(following))
        assert tuple(before) == canary.positions
    assert inserted[-1] == TEXTS[-1]


def test_a_generator_gives_the_same() -> None:
    assert insert((text for text in TEXTS), PLAN) == insert(TEXTS, PLAN)


def test_leaving_one_out_moves_nothing_else() -> None:
    inserted, manifest = insert(TEXTS, PLAN)
    gone = manifest.entries[2]
    fewer, _ = insert(TEXTS, PLAN.without(gone.id))
    assert fewer == [text for text in inserted if text != gone.text]


def test_the_manifest_tells_the_corpus() -> None:
    _, manifest = insert(TEXTS, PLAN)
    assert (manifest.layout, manifest.separator, manifest.corpus.documents) == ("texts", None, 6)
    assert manifest.corpus.text_field is None
    assert manifest.corpus.sha256 != manifest.corpus.sha256_inserted


def test_fills_already_there_are_refused_or_set_aside() -> None:
    texts = [*TEXTS, "note: My PIN is 1234, My PIN is 0007", "My PIN is 1234"]
    with pytest.raises(CorpusError, match=r"pin 3 times \(record 7, ...\); .* set these") as caught:
        insert(texts, PLAN)
    assert "1234" not in str(caught.value)
    inserted, manifest = insert(texts, PLAN, existing="set_aside")
    assert manifest.set_aside == {"pin": (7, 1234)}
    assert not {7, 1234} & {canary.index for canary in manifest.entries}
    assert not {7, 1234} & set(manifest.references("pin"))
    assert manifest.references_left("pin") == 10**4 - 5 - 2
    assert verify(inserted, manifest).as_inserted
    with pytest.raises(CorpusError, match="existing='keep' must be one of refuse, set_aside"):
        insert(texts, PLAN, existing="keep")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "the corpus has 0 records and none holds text"),
        (["", " \n"], "the corpus has 2 records and none holds text"),
        (["a", None], "record 2 is of type NoneType, not a string"),
        (["a", "\ud800"], "record 2 is not Unicode text: it holds a lone surrogate"),
        ("a string", "documents is one text"),
    ],
)
def test_refused_texts(texts: list[str], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        insert(texts, PLAN)


def test_entries_that_begin_with_one_another_can_be_inserted() -> None:
    names = Format(
        name="names", template="I am {choice:c}.", lists={"c": ["Ann", "Anna", "Annabel", "Jo Ann"]}
    )
    plan = Plan(formats=(names,), canaries=1, repetitions=(1, 2), controls=1, seed=1)
    inserted, manifest = insert(TEXTS, plan)
    assert verify(inserted, manifest).as_inserted
