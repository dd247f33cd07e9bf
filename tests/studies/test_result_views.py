"""What people ask of a result: one class, a quantile, a share found, tables, and to keep it."""

import pickle
from copy import copy, deepcopy
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from known import known
from made_results import canary as canary_of
from made_results import clean, estimate, exact, made, searched, small_result, small_run
from scipy import stats

import lmexposure as lx
from lmexposure.canaries import insert
from lmexposure.errors import FileError, ResultError, SettingsError
from lmexposure.statistics import quantile_interval
from lmexposure.studies import Result


def test_a_class_is_found_by_what_tells_it_from_the_others() -> None:
    result = small_result(formats=("random_number", "pin"))
    row = result.exposure("pin", repetitions=4)
    assert row.key == ("pin", "canary", 4)
    assert result.exposure("pin", repetitions=0).role == "control"
    alone = clean(n=3, classes=(4,))
    assert alone.exposure() == alone.exposure(repetitions=4)


@pytest.mark.parametrize(
    ("name", "repetitions", "message"),
    [
        ("pin", None, r"no class fits format 'pin'; there are random_number \(repetitions 0, 1, 4"),
        (None, None, "several classes fit without a format and repetitions; there are random_num"),
        ("random_number", 2, "no class fits format 'random_number', repetitions=2; there are"),
    ],
)
def test_a_class_that_is_not_there(name: str | None, repetitions: int | None, message: str) -> None:
    with pytest.raises(ResultError, match=message):
        small_result().exposure(name, repetitions=repetitions)
    with pytest.raises(SettingsError, match=r"repetitions=1.5 must be a whole number at least 0"):
        small_result().exposure(repetitions=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("repetitions", [0, 1, 4])
def test_any_quantile_has_an_interval_as_the_median_has(repetitions: int) -> None:
    result = small_result()
    row = result.exposure(repetitions=repetitions)
    for interval in (row.lower_quartile, row.median, row.upper_quartile):
        assert result.quantile(interval.quantile, repetitions=repetitions) == interval


def test_a_quantile_of_counted_exposures_is_that_of_their_order() -> None:
    values = [0.5, 1.0, 2.0, 3.0, 5.0, 8.0] * 10
    result = made([canary_of(i, exact(value)) for i, value in enumerate(values)])
    assert result.exposure(repetitions=1).counted == 60
    found, wanted = result.quantile(0.9, repetitions=1), quantile_interval(values, 0.9)
    ends = (wanted.value, wanted.low, wanted.high)
    assert (found.value, found.low, found.high) == pytest.approx(ends, abs=1e-6)
    with pytest.raises(SettingsError, match="quantile=1 must lie strictly between 0 and 1"):
        result.quantile(1, repetitions=1)


def test_a_class_that_lacks_an_exposure_has_no_quantiles() -> None:
    result = small_result()
    canary = next(one for one in result.canaries if one.repetitions == 4)
    bare = canary.model_copy(update={"log_perplexity_bits": None})
    lacking = tuple(bare if one is canary else one for one in result.canaries)
    with pytest.raises(ResultError, match="canary random_number/x4/0000 has no exposure, so its"):
        result.model_copy(update={"canaries": lacking}).quantile(0.9, repetitions=4)


@pytest.mark.parametrize("capped", [False, True])
def test_a_missing_end_is_nothing_or_the_whole_secret(capped: bool) -> None:
    """Of a lower bound the lower end is the value: it may be more, and not less."""
    parts = {"low": None, "high": None, "level": 0.9, "warnings": ("no draw was near",)}
    shown = estimate("importance", 12.0, capped=capped, **parts)
    found = known(shown.with_error(17.5, references=400, space_bits=30.0))
    assert (found.low, found.value, found.high) == (12.0 if capped else 0.0, 12.0, 30.0)
    assert (found.capped, found.level, found.bits, found.references) == (capped, 0.9, 17.5, 400)
    assert found.method == "importance"


def test_ends_that_are_known_stay_within_the_secret() -> None:
    shown = estimate("skew_normal", 12.0, low=3.0, high=44.0)
    found = known(shown.with_error(17.5, references=400, space_bits=30.0))
    assert (found.low, found.high) == (3.0, 30.0)
    assert shown.with_error(None, references=400, space_bits=30.0) is None
    assert estimate("exact", None).with_error(17.5, references=400, space_bits=30.0) is None


def test_a_share_of_secrets_found_has_the_interval_of_clopper_and_pearson() -> None:
    result = small_result()
    share = result.extraction(repetitions=4, guesses=1000)
    wanted = stats.binomtest(share.found, share.of).proportion_ci(0.95)
    assert (share.low, share.high) == pytest.approx((wanted.low, wanted.high))
    assert (share.value, share.complete) == (share.found / 10, True)
    guesses = {row.guesses: row.found for row in result.exposure(repetitions=4).guesses}
    assert share.found == guesses[1000]
    assert result.extraction(repetitions=4, guesses=1).found <= share.found


def test_secrets_that_were_not_searched_for_so_far_count_for_the_upper_end() -> None:
    """Three of ten found in 100 proven guesses; any of the others may fall within 1,000."""
    drawn = [
        canary_of(i, exact(5.0), extraction=[searched(100, place=7 if i < 3 else None)])
        for i in range(10)
    ]
    share = made(drawn).extraction(repetitions=1)
    assert (share.found, share.complete, share.high) == (3, False, 1.0)
    assert share.low == pytest.approx(stats.binomtest(3, 10).proportion_ci(0.95).low)
    within = made(drawn).extraction(repetitions=1, guesses=100)
    assert (within.found, within.complete) == (3, True)
    assert within.high < 1


def test_a_beam_may_pass_over_the_likeliest_fills() -> None:
    """It tried 100 fills, not the likeliest 100: others may fall within them."""
    beam = searched(100).model_copy(update={"method": "beam", "proven": None})
    drawn = [canary_of(i, exact(5.0), extraction=[beam]) for i in range(10)]
    share = made(drawn).extraction(repetitions=1, guesses=100)
    assert (share.found, share.complete, share.high) == (0, False, 1.0)


def test_secrets_that_nobody_searched_for() -> None:
    with pytest.raises(ResultError, match="were not searched for; measure with extraction=True"):
        small_result(extraction=False).extraction(repetitions=4)
    with pytest.raises(SettingsError, match="guesses=0 must be a whole number at least 1"):
        small_result().extraction(repetitions=4, guesses=0)


def test_epsilon_is_the_section_on_privacy() -> None:
    result = small_result(inclusion_probability=0.5, canaries=30)
    assert result.epsilon is result.privacy is not None
    assert {row.key for row in known(result.epsilon).classes} == {
        (("random_number",), repetitions) for repetitions in (1, 4)
    }
    assert small_result(privacy=False).epsilon is None


def test_a_frame_has_a_row_for_each_canary_and_no_secret() -> None:
    result = small_result()
    frame = result.to_frame()
    assert frame["id"].tolist() == [canary.id for canary in result.canaries]
    assert frame["exposure"].tolist() == [canary.exposure.value for canary in result.canaries]
    found = frame[frame["repetitions"] == 4]["found_at"] <= 1000
    assert int(found.sum()) == result.extraction(repetitions=4).found
    assert set(frame) >= {"format", "role", "low", "high", "capped", "method", "rank", "place"}
    assert set(frame["guesses_tried"]) == {1000}
    assert not {"text", "secret", "index"} & set(frame)


def test_a_notebook_shows_a_table_of_classes_and_each_is_short_where_it_is_printed() -> None:
    shown = repr(small_result().exposure(repetitions=4))
    assert shown == "<random_number, canary, repetitions 4: n=10, median exposure 20.82 bits>"
    table = small_result()._repr_html_()
    assert "<td>4×</td><td>10</td>" in table
    assert "<td>controls</td>" in table
    named = small_result().model.model_copy(update={"path": "<script>"})
    hostile = small_result().model_copy(update={"model": named})
    assert "<script>" not in hostile._repr_html_()


def test_a_notebook_shows_the_verdict_and_a_chart_and_of_no_object_a_secret(
    tmp_path: Path,
) -> None:
    run = small_run(tmp_path / "run")
    result, inserted = Result.read(run), insert(["a line"] * 60, formats="pin", repetitions=16)
    manifest, verdict = known(result.files.manifest), lx.check(result)
    secrets = {canary.text for canary in (*manifest.entries, *inserted.manifest.entries)}
    assert "".join(inserted.documents).count(inserted.manifest.canaries[0].text) == 16
    shown: list[Any] = [result, manifest, verdict, inserted, result.summary[1], result.plot()]
    for each in shown:
        text = repr(each) + getattr(each, "_repr_html_", lambda: "")()
        assert not [secret for secret in secrets if secret in text]
        assert len(repr(each)) < 1000
    assert verdict._repr_html_() in result._repr_html_()
    assert "<b>LEAKS</b>" in verdict._repr_html_()
    assert result.plot().kind == "exposure"
    assert "data:image/svg+xml" in result._repr_html_()
    assert "<td>1×</td>" in result._repr_html_()
    assert "found within 1,000 guesses" in result.summary[1]._repr_html_()
    assert f"<td>canary</td><td>16</td><td>{inserted.manifest.plan.canaries}</td>" in (
        inserted._repr_html_()
    )


def test_a_chart_is_chosen_by_its_name_and_shown() -> None:
    result = small_result()
    last = result.document().drawings()[-1].name
    assert result.plot(last).name == last != result.plot().name
    assert "<svg" in result.plot()._repr_svg_()
    with pytest.raises(SettingsError, match="name='rock' must be one of exposure-random_number, "):
        result.plot("rock")


def test_the_tab_key_offers_what_a_person_needs() -> None:
    """It was 101 names, most of them pydantic's or internal."""
    result = small_result()
    assert len(dir(result)) == 15
    assert all(hasattr(result, name) for name in dir(result))


@pytest.fixture
def held(tmp_path: Path) -> Result:
    """A result in memory, with its scores."""
    scores = Result.read(small_run(tmp_path / "run")).scores
    return small_result().with_scores(known(scores))


def test_scores_are_in_memory_or_next_to_the_file(tmp_path: Path) -> None:
    run = Result.read(small_run(tmp_path / "run"))
    assert known(run.scores).ids.size == 436
    for again in (copy(run), deepcopy(run), run.model_copy(update={"warnings": ("other",)})):
        assert again.scores is None
    (tmp_path / "run" / "result.json").rename(tmp_path / "run" / "other.json")
    assert Result.read(tmp_path / "run" / "other.json").scores is None
    assert small_result().scores is None


def test_scores_are_no_part_of_the_record(held: Result) -> None:
    assert held == small_result()
    assert held.to_dict() == small_result().to_dict()
    assert pickle.loads(pickle.dumps(held)) == held


def test_a_result_is_kept_with_its_scores(tmp_path: Path, held: Result) -> None:
    path = held.save(tmp_path / "deep" / "kept")
    kept = Result.read(tmp_path / "deep" / "kept")
    assert path.parent == kept.home
    assert kept.canaries == held.canaries
    kept_bits, bits = (known(one.scores).log_perplexity_bits for one in (kept, held))
    assert np.array_equal(kept_bits, bits)
    written = path.read_bytes()
    assert held.save(path.parent).read_bytes() == written
    with pytest.raises(ResultError, match=r"result.json is another result; choose another"):
        small_result(seed=5).save(path.parent)
    small_result().save(tmp_path / "bare")
    assert [p.name for p in (tmp_path / "bare").glob("[!.]*")] == ["result.json"]


@pytest.mark.parametrize("name", ["scores.parquet", "run.json"])
def test_a_result_is_kept_away_from_somebody_elses_files(tmp_path: Path, name: str) -> None:
    theirs = tmp_path / name
    theirs.write_text("theirs")
    with pytest.raises(ResultError, match=f"{name} is there already, and not of this result"):
        small_result().save(tmp_path)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(name, "theirs")]


def test_a_result_is_kept_whole_or_not_at_all(
    tmp_path: Path, held: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full, pytest.raises(FileError, match="No space left"):
        full.setattr(Result, "write", Mock(side_effect=FileError(ENOSPC, "No space left")))
        held.save(tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []
    assert Result.read(held.save(tmp_path / "kept")).scores is not None


def test_what_a_killed_save_left_is_gone_on_with(tmp_path: Path, held: Result) -> None:
    scores = known(held.scores)
    held.save(tmp_path / "kept").unlink()  # killed before result.json
    theirs = held.with_scores(replace(scores, repetitions=scores.repetitions + 1))
    for other in (theirs, small_result()):
        with pytest.raises(ResultError, match=r"scores.parquet is there already, and not of this"):
            other.save(tmp_path / "kept")
    assert Result.read(held.save(tmp_path / "kept")).scores is not None


def test_a_measurements_own_scores_stay_as_they_were(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    before = (run / "scores.parquet").read_bytes()
    Result.read(run).save(run)
    assert (run / "scores.parquet").read_bytes() == before


def test_the_tab_key_shows_about_fifteen_names_and_each_is_there(tmp_path: Path) -> None:
    result, inserted = small_result(), insert(["a line"] * 60, formats="pin", repetitions=16)
    verdict = lx.check(result)
    shown: list[Any] = [result, result.summary[1], inserted, inserted.manifest, verdict]
    for each in (*shown, result.formats[0], result.canaries[0]):
        assert 2 <= len(dir(each)) <= 18, (type(each), dir(each))
        assert not [name for name in dir(each) if name.startswith("_")]
        assert not {"construct", "model_dump", "copy", "count", "index"} & set(dir(each))
        assert [name for name in dir(each) if not hasattr(each, name)] == []
    for each in (result, result.summary[1], verdict):
        assert "plot" in dir(each)


def test_a_verdict_and_a_class_have_a_chart() -> None:
    result = small_result()
    verdict, row = lx.check(result), result.exposure(repetitions=4)
    assert verdict.plot().name == result.plot().name
    assert verdict.plot().image() in verdict._repr_html_()
    assert row.plot().title == "Secrets found by guessing: random_number, canary, repetitions 4"
    assert "guesses 1,000 " in row.plot().description
    assert row.plot().image() in row._repr_html_()
    unsearched = replace(row, guesses=())
    assert "<img" not in unsearched._repr_html_()
    with pytest.raises(SettingsError, match=r"was searched for.*; result\.plot\(\) shows its exp"):
        unsearched.plot()
    bare = replace(verdict, charts=None)
    assert bare == verdict
    assert "<img" not in bare._repr_html_()
    with pytest.raises(SettingsError, match="no charts; see the checks of the verdict"):
        bare.plot()
