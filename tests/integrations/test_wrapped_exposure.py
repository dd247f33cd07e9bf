"""Exposure in the wrapping of the training: ranks, references, refusals."""

from typing import Any

import numpy as np
import pytest
from chats import chat_tokenizer
from known import known
from tiny import model_of

from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.errors import ManifestError, PlanError, SettingsError
from lmexposure.integrations import (
    Wrapping,
    insert,
    wrapped_exposures,
    wrapped_log_perplexity,
)

PIN = Format(name="pin", template="My PIN is {digits:3}.")
WRAPPING = Wrapping(turn="assistant", loss="assistant")


def manifest_of(**settings: Any) -> Manifest:
    plan = Plan(
        formats=(PIN,),
        **{"canaries": 4, "repetitions": (1, 2), "controls": 3, "seed": 5, **settings},
    )
    return insert([f"text {i}" for i in range(9)], plan).manifest


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return chat_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return model_of("gpt2", len(tokenizer))


def test_exposure_is_the_rank_among_references_wrapped_alike(model: Any, tokenizer: Any) -> None:
    manifest = manifest_of()
    found = wrapped_exposures(model, tokenizer, manifest, WRAPPING, references=100)
    assert [one.id for one in found] == [one.id for one in manifest.entries]
    assert {one.role for one in found} == {"canary", "control"}
    texts = [PIN.text(i) for i in manifest.references("pin", 100)]
    null = wrapped_log_perplexity(model, tokenizer, texts, WRAPPING)
    for one, canary in zip(found, manifest.entries, strict=True):
        own = wrapped_log_perplexity(model, tokenizer, [canary.text], WRAPPING)[0]
        assert one.log_perplexity_bits == pytest.approx(own, abs=1e-3)
        rank = 1 + int((null <= own).sum())
        assert one.exposure.value == pytest.approx(np.log2(100 / rank), abs=0.1)
        assert one.exposure.method == "sampled"
        assert one.repetitions == canary.repetitions


def test_excluded_candidates_are_references(model: Any, tokenizer: Any) -> None:
    manifest = manifest_of(inclusion_probability=0.5, inclusion_seed=1)
    out = [one.id for one in manifest.held_out]
    assert out
    found = wrapped_exposures(model, tokenizer, manifest, WRAPPING, references=50)
    assert not {one.id for one in found} & set(out)
    capped = 50 + len(out)
    assert max(known(one.exposure.value) for one in found) <= np.log2(capped)


def test_an_untrained_model_shows_no_exposure(model: Any, tokenizer: Any) -> None:
    manifest = manifest_of(canaries=100, repetitions=(1,))
    found = wrapped_exposures(model, tokenizer, manifest, WRAPPING, references=400)
    values = [known(one.exposure.value) for one in found]
    # Mean 1 / ln 2 = 1.44 of 103 draws whose standard deviation is that, too.
    assert np.mean(values) == pytest.approx(1.44, abs=0.6)


@pytest.mark.parametrize(
    ("inserted", "place"),
    [
        (WRAPPING, r"messages\[1\]\.content"),
        (Wrapping(turn="user"), r"messages\[0\]\.content"),
        (Wrapping(turn="assistant", loss="completion"), r"completion\[0\]\.content"),
    ],
)
def test_another_place_than_that_of_the_insertion_is_refused(
    model: Any, tokenizer: Any, inserted: Wrapping, place: str
) -> None:
    plan = Plan(formats=(PIN,), canaries=1, repetitions=(1,), controls=1, seed=5)
    given = [inserted.record(f"text {i}") for i in range(4)]
    _, manifest = insert(given, plan, wrapping=inserted)
    assert wrapped_exposures(model, tokenizer, manifest, inserted, references=20)
    for other in (Wrapping(), WRAPPING, Wrapping(turn="user")):
        if other.place != inserted.place:
            with pytest.raises(ManifestError, match=f"were inserted as {place}, and this wrapp"):
                wrapped_exposures(model, tokenizer, manifest, other, references=20)


def test_nothing_inserted_is_refused(model: Any, tokenizer: Any) -> None:
    manifest = manifest_of(canaries=1, repetitions=(1,), left_out=("pin/x1/0000",))
    with pytest.raises(ManifestError, match="holds no inserted canary, so there is nothing to"):
        wrapped_exposures(model, tokenizer, manifest, WRAPPING)


def test_too_many_references_are_refused(model: Any, tokenizer: Any) -> None:
    with pytest.raises(PlanError, match="5000 references asked for, but format 'pin' has 989"):
        wrapped_exposures(model, tokenizer, manifest_of(), WRAPPING, references=5000)


@pytest.mark.parametrize("level", [1e-10, 1 - 1e-10, 1.0])
def test_a_level_that_no_result_holds_is_refused(model: Any, tokenizer: Any, level: float) -> None:
    with pytest.raises(SettingsError, match=f"level={level} must lie strictly between 0 and 1, at"):
        wrapped_exposures(model, tokenizer, manifest_of(), WRAPPING, level=level)
