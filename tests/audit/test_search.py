"""Exact and drawn ranks in a result, against the whole space scored one by one."""

import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audit.quick import QUICK
from audit.small import loaded_of, pins, planned, stopping
from corpora import sentences
from known import known
from manifest_files import judged
from numpy.typing import NDArray
from scoring.families import family
from tiny import unigram

from lmexposure._written import study
from lmexposure.audit import MeasureSettings, measure
from lmexposure.audit.directory import keep_part, read_part
from lmexposure.audit.search import FormatSearch
from lmexposure.canaries import Format, Plan
from lmexposure.core import Part
from lmexposure.errors import MarginError, ModelError, SettingsError
from lmexposure.integrations import insert
from lmexposure.models import LoadedModel
from lmexposure.scoring import Draws, RankSearch, exact_search, log_perplexity, token_rules
from lmexposure.scoring.forward import PrefixTreeForward
from lmexposure.studies import Result

FORM = Format(name="code", template="number {digits:4}")


def changed(**values: Any) -> MeasureSettings:
    return replace(QUICK, **{"extraction": False, **values})


LOADED = loaded_of("lstm")
PEAKED = loaded_of("lstm")  # to which some fills are far likelier than others
PEAKED.model.get_output_embeddings().weight.data *= 8
PLAN = Plan(formats=(FORM,), canaries=4, repetitions=(1, 2), controls=4, seed=3)
MANIFEST = insert([*sentences(40), FORM.text(77)], PLAN, existing="set_aside").manifest


def bits_of_all(loaded: LoadedModel) -> NDArray[np.float64]:
    texts = [FORM.text(i) for i in range(FORM.size)]
    return log_perplexity(loaded.model, loaded.tokenizer, texts, context=None)


@cache
def everything() -> NDArray[np.float64]:
    return bits_of_all(LOADED)


@cache
def whole() -> Result:
    """One measurement with everything, to be read."""
    return measure(LOADED, MANIFEST, settings=QUICK)


def naive(bits: NDArray[np.float64], index: int) -> tuple[int, int]:
    """Rank among never-inserted fills, and place among all."""
    planted = [c.index for c in MANIFEST.entries if c.role == "canary"]
    aside = set(planted) | set(MANIFEST.set_aside["code"])
    cheaper = {int(i) for i in np.flatnonzero(bits <= bits[index])} - {index}
    return 1 + len(cheaper - aside), 1 + len(cheaper)


def holds(result: Result, bits: NDArray[np.float64]) -> bool:
    """Whether the true exposure of each canary lies in the interval that is shown."""
    true = [np.log2(FORM.size / naive(bits, c.index)[0]) for c in judged(MANIFEST)]
    shown = [c.exposure for c in result.canaries]
    return all(
        known(row.low) - 1e-9 <= value <= known(row.high) + 1e-9
        for row, value in zip(shown, true, strict=True)
    )


def test_all_ranks_are_counted() -> None:
    for canary, found in zip(judged(MANIFEST), whole().canaries, strict=True):
        rank, place = naive(everything(), canary.index)
        assert found.exposure.method == "exact"
        assert (found.exposure.rank, found.exposure.place) == (rank, place)
        assert found.exposure.low == found.exposure.high == found.exposure.value
        assert {"importance", "sampled", "skew_normal"} <= set(found.estimates)
        assert known(found.estimates["certificate"].value) <= known(found.exposure.value) + 1e-9
    assert all(row.methods == {"exact": row.n} for row in whole().summary)
    search = known(whole().formats[0].search)
    assert search.tokens.counted == FORM.size
    assert not known(search.margin).empirical
    assert whole().formats[0].set_aside == 1
    said = "1 secrets that the corpus held before insertion are set aside"
    assert any(said in line for line in whole().warnings)


def test_best_first_gives_the_true_places() -> None:
    order = np.argsort(everything(), kind="stable").tolist()
    for canary, found in zip(judged(MANIFEST), whole().canaries, strict=True):
        row = next(r for r in found.extraction if r.method == "best_first")
        place = 1 + order.index(canary.index)
        assert row.place == (place if place <= QUICK.guesses else None)
        assert row.proven == row.width == QUICK.guesses
    assert [g.guesses for g in whole().summary[0].guesses] == [1, 10]


def test_what_the_budget_cannot_count_is_drawn() -> None:
    result = measure(LOADED, MANIFEST, settings=changed(budget_steps=40))
    assert "importance" in {c.exposure.method for c in result.canaries}
    assert holds(result, everything())


def test_the_budget_is_spent_on_as_many_guesses_as_it_can_prove() -> None:
    """A search for all of them would end in the midst, and prove next to nothing."""
    order = np.argsort(bits_of_all(PEAKED), kind="stable").tolist()
    result = measure(
        PEAKED, MANIFEST, settings=replace(QUICK, guesses=4_000, budget_steps=600, revealed=0)
    )
    search = known(result.formats[0].search)
    assert 50 < known(search.guesses_proven) < 4_000
    assert known(search.guess_steps) < 600
    for canary, found in zip(judged(MANIFEST), result.canaries, strict=True):
        row = next(r for r in found.extraction if r.method == "best_first")
        place = 1 + order.index(canary.index)
        assert row.place == (place if place <= known(search.guesses_proven) else None)
        assert row.width == 4_000
        assert row.by_chance == known(search.guesses_proven) / FORM.size


def test_a_search_that_can_prove_nothing_is_left_out() -> None:
    result = measure(LOADED, MANIFEST, settings=replace(QUICK, budget_steps=2))
    search = known(result.formats[0].search)
    assert (known(search.guesses_proven), known(search.guess_steps)) == (0, 0)
    rows = [r for c in result.canaries for r in c.extraction if r.method == "best_first"]
    assert {(r.place, r.proven, r.steps, r.by_chance) for r in rows} == {(None, 0, 0, 0)}
    for row in result.summary:  # not searched for is not "none found"
        assert {one.method for one in row.extraction} == {"greedy", "beam"}


def test_one_walk_counts_what_walks_of_their_own_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where it ends too early, cheap ranks are still counted, by walks of their own."""
    walks: list[int] = []
    ranks = RankSearch.ranks

    def counted(self: RankSearch, indices: Any, **options: Any) -> Any:
        walks.append(len(indices))
        return ranks(self, indices, **options)

    monkeypatch.setattr(RankSearch, "ranks", counted)
    monkeypatch.setattr("lmexposure.audit.search._GROWTH", 1.05)
    whole = measure(PEAKED, MANIFEST, settings=changed())
    assert walks == [len(judged(MANIFEST))]
    walks.clear()
    expected = Draws.expected_steps

    def too_few(self: Draws, limit: float) -> float:
        steps = expected(self, limit)
        return steps if steps < 800 else 800 + (steps - 800) / 10

    monkeypatch.setattr(Draws, "expected_steps", too_few)
    found = measure(PEAKED, MANIFEST, settings=changed(budget_steps=1_500))
    assert len(walks) > 1
    assert walks[0] == len(judged(MANIFEST))
    exact = {c.id: c.exposure for c in found.canaries if c.exposure.method == "exact"}
    assert 0 < len(exact) < len(judged(MANIFEST))
    assert all(c.exposure.rank == exact[c.id].rank for c in whole.canaries if c.id in exact)


def test_a_forced_exact_search_proves_bounds() -> None:
    result = measure(LOADED, MANIFEST, settings=changed(budget_steps=40, estimate="exact"))
    bounded = [c for c in result.canaries if c.exposure.method == "bounded"]
    assert bounded
    assert all(c.exposure.capped for c in bounded)
    assert holds(result, everything())


@pytest.mark.parametrize("method", ["importance", "sampled", "certificate", "skew_normal"])
def test_a_method_can_be_asked_for(method: str) -> None:
    """A curve stands beside what was counted."""
    result = measure(LOADED, MANIFEST, settings=changed(estimate=method))
    curve = method == "skew_normal"
    assert {c.exposure.method for c in result.canaries} == {"sampled" if curve else method}
    assert all(method in c.estimates for c in result.canaries)
    said = [line for line in result.warnings if "never the exposure that is shown" in line]
    assert bool(said) is curve


def test_a_method_that_gives_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_rules, "_MOST_ENCODINGS", 5_000)  # until it gives up
    loaded = loaded_of("gpt2", unigram())
    large = Format(name="large", template="number {digits:9}")
    inserted = planned(large)
    with pytest.raises(ModelError, match="no rule tells which tokens spell"):
        measure(loaded, inserted, settings=changed(estimate="exact"))
    result = measure(loaded, inserted, settings=changed())
    assert any("ranks are those among references" in line for line in result.warnings)
    assert {c.exposure.method for c in result.canaries} == {"sampled"}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measurement that Ctrl-C ended behind its search; who goes on takes a copy."""
    out = tmp_path_factory.mktemp("stopped")
    with pytest.raises(KeyboardInterrupt):
        measure(LOADED, MANIFEST, out=out, settings=QUICK, progress=stopping("extracting code"))
    return out


def test_what_was_searched_is_kept(stopped: Path, tmp_path: Path) -> None:
    out, seen = shutil.copytree(stopped, tmp_path / "r"), list[str]()
    again = measure(
        LOADED, MANIFEST, out=out, settings=QUICK, progress=lambda what, *_: seen.append(what)
    )
    assert again.model_copy(update={"scores_sha256": None}) == whole()
    assert not any("counting" in what for what in seen)


def test_findings_of_other_canaries_are_made_again(
    stopped: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = shutil.copytree(stopped, tmp_path / "r")
    (path,) = out.glob(".work/code.search.json-*")
    kept = Part(path=path)
    found = read_part(kept, FormatSearch)
    assert found is not None
    other = Part(path=path.with_name("other.search.json"))
    keep_part(other, found)
    path.write_bytes(other.path.read_bytes())
    assert read_part(kept, FormatSearch) is None
    assert re.search(r"code\.search\.json-\w+ is damaged, or another part", caplog.text)
    with study(out):
        keep_part(kept, found.model_copy(update={"estimates": found.estimates[1:]}))
    again = measure(LOADED, MANIFEST, out=out, settings=QUICK)
    assert again.model_copy(update={"scores_sha256": None}) == whole()


@pytest.mark.parametrize("method", ["sampled", "skew_normal"])
def test_methods_that_need_no_search_build_none(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmexposure.audit.search.token_space", None)
    result = measure(LOADED, MANIFEST, settings=changed(estimate=method, extraction=True))
    assert result.formats[0].search is None
    assert all("importance" not in c.estimates for c in result.canaries)
    assert {row.method for c in result.canaries for row in c.extraction} == {"greedy", "beam"}


def _fails(*_: Any, **__: Any) -> Any:
    raise RuntimeError("no kernel for float64")


def test_a_run_outlives_a_copy_in_float64_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_search, "_copy_in_float64", _fails)
    result = measure(LOADED, MANIFEST, settings=changed())
    (line,) = [line for line in result.warnings if "float64" in line]
    assert line.startswith(
        "secrets that are nearly as likely were told apart by the model as it is"
    )
    assert "exact up to an empirical margin (RuntimeError: no kernel for float64)" in line
    for canary, found in zip(judged(MANIFEST), result.canaries, strict=True):
        assert found.exposure.method == "exact up to an empirical margin"
        # In float32 fills this close cannot be told apart.
        low, high = (
            naive(everything() + shift * (np.arange(FORM.size) != canary.index), canary.index)[0]
            for shift in (5e-5, -5e-5)
        )
        assert low <= known(found.exposure.rank) <= high <= low + 3


def test_a_walk_beyond_its_margin_leaves_the_drawn_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where rounding sends one token of a canary to another expert."""

    def missed(*_: Any, **__: Any) -> Any:
        raise MarginError("the walk missed secrets of 9 bits or less; search in float32")

    monkeypatch.setattr(RankSearch, "_proven", missed)
    result = measure(LOADED, MANIFEST, settings=changed())
    (line,) = [line for line in result.warnings if "could not be counted" in line]
    assert "12 ranks could not be counted: the walk missed secrets" in line
    assert {c.exposure.method for c in result.canaries} == {"importance"}
    with pytest.raises(MarginError, match="the walk missed secrets"):
        measure(LOADED, MANIFEST, settings=changed(estimate="exact"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_slower_ways_are_said_once_for_all_formats(tmp_path: Path) -> None:
    """GPT-1 gives no cache, and reads no mask of ours."""
    model = family("openai-gpt", len(LOADED.tokenizer))
    loaded = replace(LOADED, model=model)
    inserted = planned(FORM, Format(name="other", template="My PIN is {digits:3}"))
    result = measure(loaded, inserted, out=tmp_path, settings=changed(budget_steps=40))
    said = [line for line in result.warnings if "slower" in line]
    assert len(said) == 2
    assert any(line.startswith("texts are scored each by itself, which is slower") for line in said)
    assert any(line.startswith("each step of a search computes its whole prefix") for line in said)
    alone = measure(loaded, inserted, settings=changed(estimate="sampled", extraction=True))
    assert sorted(line for line in alone.warnings if "slower" in line) == sorted(said)


def test_why_texts_were_scored_slower_is_kept_with_the_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrefixTreeForward, "slower", "texts are scored slowly", raising=False)
    monkeypatch.setattr(PrefixTreeForward, "__setattr__", _but_slower)
    with monkeypatch.context() as once, pytest.raises(RuntimeError, match="no kernel"):
        once.setattr("lmexposure.audit.measurement.search_format", _fails)
        measure(LOADED, MANIFEST, out=tmp_path, settings=changed(estimate="sampled"))
    monkeypatch.undo()
    again = measure(LOADED, MANIFEST, out=tmp_path, settings=changed(estimate="sampled"))
    assert "texts are scored slowly" in again.warnings


def _but_slower(way: Any, name: str, value: Any) -> None:
    if name != "slower":
        object.__setattr__(way, name, value)


def test_a_fill_beyond_the_context_window_leaves_the_search_out() -> None:
    """The canaries fit, and so do the references; one entry of the list does not."""
    entries = [*map(str, range(100, 300)), "9" * 90]
    form = Format(name="long", template="number {digits:5} {choice:w}", lists={"w": entries})
    loaded = loaded_of("llama")
    for seed in range(20):
        inserted = planned(form, seed=seed)
        indices = [c.index for c in inserted.entries if c.format == "long"] + list(
            inserted.references("long", 20)
        )
        if max(len(form.text(index)) for index in indices) < 90:
            break
    result = measure(loaded, inserted, settings=changed(references=20))
    assert any("context window holds 96" in line for line in result.warnings)
    assert {c.exposure.method for c in result.canaries} == {"sampled"}
    with pytest.raises(ModelError, match="secrets of format 'long' have up to"):
        measure(loaded, inserted, settings=changed(references=20, estimate="importance"))


def test_a_half_precision_walk_says_that_its_margin_is_measured() -> None:
    loaded = loaded_of("gpt2")
    half = replace(loaded, model=loaded.model.to(torch.bfloat16))
    result = measure(half, pins(3), settings=changed())
    methods = {c.exposure.method for c in result.canaries}
    assert {name for name in methods if name.startswith("exact")} == {
        "exact up to an empirical margin"
    }
    assert known(known(result.formats[0].search).margin).empirical


def test_the_cache_of_a_transformer_is_walked() -> None:
    loaded = loaded_of("gpt2")
    result, bits = measure(loaded, MANIFEST, settings=changed()), bits_of_all(loaded)
    for canary, found in zip(judged(MANIFEST), result.canaries, strict=True):
        assert found.exposure.rank == naive(bits, canary.index)[0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"estimate": "best"}, "estimate='best'"),
        ({"draws": 9}, "draws=9"),
        ({"guesses": 0}, "guesses=0"),
        ({"budget_steps": 0}, "budget_steps=0.*to leave the exact search out"),
        ({"budget_seconds": 0.0}, "budget_seconds=0.0.*to leave the exact search out"),
        ({"live_states": 0}, "live_states=0"),
    ],
)
def test_refuses(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        MeasureSettings(**values)


def test_the_budget_follows_the_model_and_not_the_machine() -> None:
    assert MeasureSettings().steps_for(650_000) == 2_000_000
    assert MeasureSettings().steps_for(124_000_000) == 12_096
    assert MeasureSettings().steps_for(10**12) == 10_000
    assert MeasureSettings(budget_steps=7).steps_for(1) == 7


def test_seconds_are_not_blamed_for_what_the_steps_do_not_allow() -> None:
    settings = replace(QUICK, budget_seconds=1000.0, budget_steps=2, extraction=False)
    result = measure(LOADED, MANIFEST, settings=settings)
    assert {canary.exposure.method for canary in result.canaries} == {"importance"}
    assert not [line for line in result.warnings if "too short for the searches" in line]


@pytest.mark.parametrize(
    ("estimate", "seconds", "said"),
    [("auto", 0.001, 1), ("exact", 0.001, 1), ("sampled", 0.001, 0), ("auto", 100.0, 0)],
)
def test_seconds_too_few_for_any_search_are_said_and_leave_the_rest(
    estimate: str, seconds: float, said: int
) -> None:
    settings = replace(QUICK, budget_seconds=seconds, estimate=estimate, extraction=False)
    result = measure(LOADED, MANIFEST, settings=settings)
    warned = [line for line in result.warnings if "too short for the searches to count" in line]
    assert len(warned) == said
    assert all(line.startswith("budget_seconds=0.001 was too short") for line in warned)
    assert len(result.canaries) == len(judged(MANIFEST))
    methods = {canary.exposure.method for canary in result.canaries}
    if estimate == "sampled" or said:
        assert methods == {{"auto": "importance", "exact": "bounded"}.get(estimate, "sampled")}
