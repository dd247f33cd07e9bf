"""Texts that a base model chooses: by seed, apart, and as unlikely or as heated as is said."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpora import write_corpus

from lmexposure.audit import model_texts
from lmexposure.audit.model_texts import base_of, texts_of
from lmexposure.canaries import Material
from lmexposure.errors import ModelError
from lmexposure.models import LoadedModel, LstmSizes, new_model
from lmexposure.records import RunSettings

# Words enough for a vocabulary of 2,048 tokens, of which few are bytes that alone are no text.
_SOUNDS = random.Random(5)
_LONG = [
    " ".join(
        "".join(_SOUNDS.choice("bdfgklmnprst") + _SOUNDS.choice("aeiou") for _ in range(3))
        for _ in range(8)
    )
    for _ in range(150)
]
_DOCUMENTS = [f"the {a} ran over the old {b} field" for a in "abcxyz" for b in "uvw.,;-"]


@pytest.fixture(scope="module", params=["lstm", "gpt2-tiny"])
def base(request: pytest.FixtureRequest) -> LoadedModel:
    sizes = LstmSizes(layers=1, units=16, embedding=16)
    documents = [*_DOCUMENTS, *_LONG] if request.param == "gpt2-tiny" else _DOCUMENTS
    return new_model(request.param, documents, seed=0, separator="\n", lstm=sizes)


def material(count: int = 6, seed: int = 1, **changes: Any) -> Material:
    values: dict[str, Any] = {"documents": lambda: _DOCUMENTS, "count": count, "seed": seed}
    return Material(**{**values, **changes})


@pytest.mark.parametrize("kind", ["high_temperature", "model_pair"])
def test_different_texts_by_the_seed_alone(kind: str, base: LoadedModel) -> None:
    first, again = (texts_of(kind, base, material(), temperature=1.0) for _ in range(2))
    other = texts_of(kind, base, material(seed=2), temperature=1.0)
    assert first == again
    assert first.lists != other.lists
    texts = [first.text(n) for n in range(first.size)]
    assert first.size == 6
    assert first.kind == kind
    assert all(text.isprintable() and text == text.strip() for text in texts)
    assert not any(a in b for a in texts for b in [*_DOCUMENTS, *(set(texts) - {a})])


def test_pairs_are_the_tokens_of_their_text(base: LoadedModel) -> None:
    made = texts_of("model_pair", base, material(count=40), temperature=1.0)
    for number in range(made.size):
        tokens = base.tokenizer.encode(made.text(number), add_special_tokens=False)
        assert len(tokens) == 12  # three pairs, each twice
        assert all(tokens[n : n + 2] == tokens[n + 2 : n + 4] for n in (0, 4, 8))
        assert len({tuple(tokens[n : n + 2]) for n in (0, 4, 8)}) == 3


def test_texts_keep_the_spaces_of_their_tokens(base: LoadedModel) -> None:
    class Tidy:
        """Decodes as a tokenizer does that tidies spaces up unless it is told not to."""

        all_special_ids = ()

        def encode(self, text: str, **_: object) -> list[int]:
            return [ord(letter) for letter in text]

        def decode(self, ids: list[int], **how: object) -> str:
            text = "".join(map(chr, ids))
            return (
                text.replace(" ,", ",") if how.get("clean_up_tokenization_spaces", True) else text
            )

    text = "what stands here , stands here"
    assert model_texts._as_text(Tidy(), [ord(letter) for letter in text]) == text


def test_the_corpus_is_read_for_new_texts_alone(
    base: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def watched(texts: Any, documents: Any) -> set[str]:
        looked.extend(texts)
        return {text for text in texts if ord(text[0]) % 3 == 0}

    monkeypatch.setattr(model_texts, "held_in", watched)
    monkeypatch.setattr(model_texts, "_BATCH", 6)
    made = texts_of("high_temperature", base, material(), temperature=1.0)
    assert made.size == 6
    assert len(looked) == len(set(looked)) > 6
    assert all(ord(made.text(n)[0]) % 3 for n in range(6))


def test_batches_change_no_text(base: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = texts_of("high_temperature", base, material(), temperature=1.0)
    monkeypatch.setattr(model_texts, "_BATCH", 6)
    assert texts_of("high_temperature", base, material(), temperature=1.0) == whole


def test_the_first_of_a_pair_makes_the_second_least_likely(base: LoadedModel) -> None:
    usable = list(model_texts._usable_tokens(base.tokenizer))[:20]
    second, firsts = usable[0], usable[1:]
    start = base.tokenizer.eos_token_id
    with torch.no_grad():
        logits = {x: base.model(input_ids=torch.tensor([[start, x]])).logits[0, -1] for x in firsts}
        found = {x: torch.softmax(row, dim=-1)[second].item() for x, row in logits.items()}
        chosen = model_texts._unlikely_before(base, second, firsts, seed=3)
    if min(found.values()) >= model_texts._UNLIKELY:
        assert chosen == min(found, key=lambda x: found[x])
    else:  # the search ends with the batch that has one
        assert found[chosen] < model_texts._UNLIKELY


def test_heat_spreads_what_is_drawn() -> None:
    logits = np.array([2.0, 1.0, 0.0, -1.0])
    streams = [material().random("x", str(n)) for n in range(400)]
    cold, hot = (
        np.bincount([model_texts._draw(logits / t, s) for s in streams], minlength=4) / 400
        for t in (0.2, 5.0)
    )
    assert cold[0] > 0.95
    assert hot.max() < 0.5
    again = [material().random("x", str(n)) for n in range(400)]
    plain = np.bincount([model_texts._draw(logits, s) for s in again], minlength=4) / 400
    expected = np.exp(logits) / np.exp(logits).sum()
    assert np.abs(plain - expected).max() < 0.08


def test_too_few_texts_are_refused() -> None:
    small = LstmSizes(layers=1, units=8, embedding=8)
    few = new_model("lstm", ["abcdef"], seed=0, separator="\n", lstm=small)
    with pytest.raises(ModelError, match=r"gave [\d,]+ texts that can be used, of 50,000; plan at"):
        texts_of("model_pair", few, material(count=50_000), temperature=1.0)
    silent = new_model("lstm", [" "], seed=0, separator="\n", lstm=small)
    with pytest.raises(ModelError, match=r"kind high_temperature: the base .* gave 0 texts"):
        texts_of("high_temperature", silent, material(count=2), temperature=1.0)


def test_a_base_that_cannot_be(tmp_path: Path, base: LoadedModel) -> None:
    kinds = ("uniform", "model_pair")
    missing = RunSettings(kinds=kinds, kind_base=str(tmp_path / "none"), offline=True)
    with pytest.raises(ModelError, match="none"):
        base_of(missing)
    for name, texts in (("a", _DOCUMENTS), ("b", ["quite other letters"])):
        made = new_model("lstm", texts, seed=0, separator="\n", lstm=LstmSizes(units=8))
        made.model.save_pretrained(tmp_path / name)
        made.tokenizer.save_pretrained(tmp_path / name)
    mine, other = str(tmp_path / "a"), str(tmp_path / "b")
    with pytest.raises(ModelError, match="has another tokenizer than"):
        base_of(RunSettings(kinds=kinds, model=mine, kind_base=other))
    same = RunSettings(kinds=kinds, model=mine, kind_base=mine)
    assert base_of(same).name == mine


def test_a_base_that_begins_no_text(base: LoadedModel) -> None:
    class Silent:
        eos_token_id = bos_token_id = None

    with pytest.raises(ModelError, match="has neither BOS nor EOS, so that no text can"):
        model_texts._start(LoadedModel(model=base.model, tokenizer=Silent(), name="mine"))


def test_the_whole_way_into_a_manifest(tmp_path: Path) -> None:
    from lmexposure.audit import insert_corpus

    made = new_model("lstm", _DOCUMENTS, seed=0, separator="\n", lstm=LstmSizes(units=8))
    made.model.save_pretrained(tmp_path / "base")
    made.tokenizer.save_pretrained(tmp_path / "base")
    settings = RunSettings(
        kinds=("uniform", "high_temperature", "model_pair"),
        kind_base=str(tmp_path / "base"),
        canaries=3,
        repetitions=(1,),
        controls=0,
        seed=4,
    )
    corpus = write_corpus(tmp_path / "c.txt", 60)
    _, manifest = insert_corpus([corpus], out=tmp_path / "i", settings=settings)
    assert [f.kind for f in manifest.plan.formats] == [
        "uniform",
        "high_temperature",
        "model_pair",
    ]
    _, again = insert_corpus([corpus], out=tmp_path / "i", settings=settings)
    assert again == manifest
