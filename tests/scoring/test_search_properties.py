"""Random formats under random tokenizers and models: what is searched is what is enumerated."""

from typing import Any

import numpy as np
import pytest
import torch
from faulty_steps import Watched
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scoring.test_likeliest_fills import assert_right_within
from scoring.test_likeliest_fills import search as likeliest
from slow_search import all_bits, naive_places, naive_ranks, paths_of, steps_of
from tiny import byte_level_bpe, model_of
from tokenizers import pre_tokenizers

from lmexposure.canaries import Format
from lmexposure.errors import FormatError
from lmexposure.scoring import Budget, RankSearch, draw_fills, token_space

MOST = 300  # fills
QUICK = settings(
    max_examples=10, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
entries = st.lists(st.text("ab1 ", min_size=1, max_size=4), min_size=2, max_size=5, unique=True)
holes = st.sampled_from(["{digits:1}", "{digits:2}", "{choice:v}", "{choice:w}", "{hex:1}"])


@st.composite
def formats(draw: st.DrawFn) -> Format:
    between = st.text("ab1 .", max_size=3)
    template = draw(between)
    for _ in range(draw(st.integers(1, 3))):
        template += draw(holes) + draw(between)
    lists = {name: draw(entries) for name in "vw" if f"choice:{name}" in template}
    try:
        form = Format(name="random", template=template, lists=lists)
    except FormatError:
        assume(False)
    assume(form.size <= MOST)
    return form


@st.composite
def tokenizers(draw: st.DrawFn) -> Any:
    """A byte-level BPE trained on random text, so that it merges what it likes."""
    cut = pre_tokenizers.ByteLevel(
        add_prefix_space=draw(st.booleans()), use_regex=draw(st.booleans())
    )
    size = draw(st.integers(257, 300))
    texts = draw(st.lists(st.text("ab0123 .", min_size=5, max_size=40), min_size=3, max_size=8))
    return byte_level_bpe(texts * 3, vocab_size=size, cut=cut)


@pytest.mark.slow
@QUICK
@given(formats(), tokenizers(), st.sampled_from(["lstm", "gpt2"]), st.data())
def test_search_and_enumeration_agree(
    form: Format, tokenizer: Any, kind: str, data: st.DataObject
) -> None:
    model = model_of(kind, len(tokenizer))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(data.draw(st.sampled_from([0.5, 1.0, 2.0]), label="scale"))
    space = token_space(tokenizer, form, context=None)
    bits = all_bits(model, tokenizer, form, skip=len(space.beginning))
    steps = steps_of(model, space)
    indices = list(range(space.size))
    planted = data.draw(st.lists(st.sampled_from(indices), max_size=4), label="planted")
    spare = data.draw(st.integers(0, 60), label="spare live states")
    budget = data.draw(st.integers(1, 80), label="steps")
    live = space.longest + 1 + spare
    watched: Any = Watched(steps)
    search = RankSearch(space, watched, model, excluded=planted, live_states=live)

    places = [naive_places(bits, slack=s) for s in (-1e-7, 1e-7)]
    ranks = [naive_ranks(bits, planted, slack=s) for s in (-1e-7, 1e-7)]
    assert not search.margin.empirical  # measured beforehand, on paths of its own
    watched.most = 0
    for i, one in enumerate(search.ranks(indices, budget=Budget())):
        assert one.exact
        assert places[0][i] <= one.place_low == one.place_high <= places[1][i]
        assert ranks[0][i] <= one.low == one.high <= ranks[1][i]
    assert watched.most <= search.most_live <= live
    for i, one in enumerate(search.ranks(indices, budget=Budget(steps=budget))):
        assert one.place_low <= places[1][i]
        assert places[0][i] <= one.place_high
        assert one.low <= ranks[1][i]
        assert ranks[0][i] <= one.high

    k = data.draw(st.integers(1, space.size), label="guesses")
    assert_right_within(likeliest(model, space, k, steps=steps), bits, k)


@QUICK
@given(formats(), tokenizers(), st.integers(0, 9))
def test_weights_add_up_to_the_fills(form: Format, tokenizer: Any, seed: int) -> None:
    assume(not form.may_nest)
    model = model_of("lstm", len(tokenizer))
    space = token_space(tokenizer, form, context=None)
    bits = all_bits(model, tokenizer, form, skip=len(space.beginning))
    steps = steps_of(model, space)
    found = draw_fills(space, steps, draws=2000, seed=seed)
    index = paths_of(space)
    seen = found.seen
    fills = [
        index[(*row[row >= 0].tolist(), token)]
        for row, token in zip(seen.prefixes[seen.groups], seen.tokens.tolist(), strict=True)
    ]
    np.testing.assert_allclose(seen.bits, bits[fills], rtol=0, atol=1e-3)
    # No fill is in two groups, and the groups that were drawn hold nearly all probability.
    assert len(set(fills)) == len(fills)
    mass = np.exp2(-seen.log2_weights).sum()
    assert mass <= 1 + 1e-9
    if len(fills) == space.size:
        assert mass >= 1 - 1e-9
    stands_for = np.bincount(seen.groups) * np.exp2(seen.log2_weights)
    total = stands_for[seen.drawn]
    assert abs(total.mean() - space.size) < 6 * total.std() / 2000**0.5 + 1e-6
