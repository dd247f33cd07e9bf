"""What no result may lack: one part after another put out of order, and refused at the door."""

import json
import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from known import known
from made_results import (
    canary,
    changed,
    class_row,
    clean,
    estimate,
    exact,
    form,
    options,
    privacy,
    searched,
    small_result,
    small_run,
)

import lmexposure as lx
from lmexposure._files import canonical_json, content_hash, sha256_bytes
from lmexposure._integrity import CONTENT
from lmexposure.core import Thresholds, verdict_json
from lmexposure.errors import ResultError
from lmexposure.studies import (
    ExtractionCount,
    GuessCount,
    Margin,
    Result,
    Search,
    TokenProof,
    read_score_file,
)

Values = dict[str, Any]
Change = Callable[[Values], object]


def read(values: Values) -> Result:
    """What a file of these contents says, whose hash is right."""
    content = canonical_json(values)
    sealed = f'{{"{CONTENT}":"{sha256_bytes(content)}",'.encode() + content[1:]
    return Result.parse(sealed, Path("result.json"))


BESIDE_BASE = small_result(base=True, canaries=3, controls=2, privacy=False)


@cache
def _written() -> str:
    """A result that has everything the rules are about: a claim, searches, a curve shown."""
    curve = estimate("skew_normal", 31.7, low=20.0, high=33.0, level=0.95)
    shown = {"skew_normal": curve, "exact": exact(1.0)}
    drawn = [canary(i, exact(1.0), place=3 if i == 2 else None) for i in range(9)]
    drawn.append(canary(9, curve, estimates=shown))
    row = class_row(
        drawn,
        p_value=0.5,
        extraction=(
            ExtractionCount(method="best_first", revealed=0, found=1, of=10, by_chance=1e-5),
        ),
        guesses=(GuessCount(guesses=1, found=0, of=10), GuessCount(guesses=10, found=1, of=10)),
    )
    controls = [canary(i, exact(1.0), repetitions=0, guesses=None) for i in range(2)]
    result = changed(
        clean(n=10),
        formats=[form(search=_search())],
        canaries=[*drawn, *controls],
        summary=[row, class_row(controls, p_value=0.5)],
        settings=options(claimed_epsilon=2.0, delta=1e-5),
        privacy=privacy(0.5, 12.0, claimed=2.0, canaries=10),
    )
    return json.dumps(result.to_dict())


def _search() -> Search:
    return Search(
        tokens=TokenProof(rule="merges", counted=10**9, looked_up=271),
        shared_tokens=3,
        margin=Margin(bits=0.001, measured=1e-5, sample=64, empirical=False),
        budget_steps=2_000_000,
        draws=None,
        draw_steps=None,
        walk_steps=None,
        most_live=None,
        guesses_proven=1000,
        guess_steps=8669,
    )


def written() -> Values:
    values: Values = json.loads(_written())
    return values


def at(place: str, value: object) -> Change:
    """Put a value in the place "canaries.0.id"; `...` takes out what is there."""

    def change(values: Values) -> None:
        inner: Any = values
        *way, last = [int(part) if part.isdecimal() else part for part in place.split(".")]
        for part in way:
            inner = inner[part]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value

    return change


def exposed(**parts: Any) -> Change:
    """Another exposure of the first canary, and so another of its estimates."""

    def change(values: Values) -> None:
        row = values["canaries"][0]
        row["exposure"] |= parts
        row["estimates"] = {row["exposure"]["method"]: row["exposure"]}

    return change


def both(*changes: Change) -> Change:
    return lambda values: [change(values) for change in changes]


def doubled(name: str) -> Change:
    return lambda values: values[name].append(values[name][0])


def based(change: Change) -> Change:
    """Of a result beside a base, in place of the other."""

    def changed_base(values: Values) -> None:
        values.clear()
        values |= json.loads(json.dumps(BESIDE_BASE.to_dict()))
        change(values)

    return changed_base


def searched_with(**parts: Any) -> Change:
    return lambda values: values["canaries"][0]["extraction"][0].update(parts)


def valid(values: Values, change: Change) -> Result:
    change(values)
    return read(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        # Formats.
        (at("formats", None), "formats=None: Input should be a valid"),
        (at("formats", []), "canary 'random_number/x1/0000' is of format 'random_number', which"),
        (at("formats.0.space_size", "0"), r"formats\[0\].space_size='0'.* greater than or equal"),
        (at("formats.0.space_size", "-5"), r"space_size='-5': Input should be a decimal string"),
        (
            at("formats.0.references", 10**9),
            "has 1,000,000,000 references among 1000000000 secrets",
        ),
        (at("formats.0.references", 0), r"formats\[0\].references=0: Input should be greater"),
        (at("formats.0.reference_bits_quantiles", [1, 2]), "quantiles that are not 9 in order"),
        (at("formats.0.reference_bits_quantiles", [*range(8), 0]), "quantiles that are not 9 in"),
        (
            at("formats.0.set_aside", 10**9),
            "1,000,000,010 secrets were inserted or set aside, of 1",
        ),
        (doubled("formats"), "format 'random_number' is there 2 times"),
        # Canaries.
        (doubled("canaries"), "canary 'random_number/x1/0000' is there 2 times"),
        (at("canaries.0.role", "control"), "has role 'control' and repetitions 1"),
        (at("canaries.0.repetitions", 0), "has role 'canary' and repetitions 0"),
        (at("canaries.0.format", "pin"), "is of format 'pin', which the result does not have"),
        (at("canaries.0.log_perplexity_bits", -3.0), "log_perplexity_bits=-3.0: Input should be"),
        (at("canaries.0.log_perplexity_bits", None), "has no log-perplexity, and no warning says"),
        (exposed(value="2"), r"exposure.value='2': Input should be a valid number"),
        (exposed(value=None), "an exposure by 'exact' lacks its value or an end, and no warning"),
        (exposed(method="guess"), "exposure.method='guess': Input should be 'exact', 'exact up"),
        (exposed(method="sampled"), "an interval of a sample that never misses would have no end"),
        (exposed(level=0), "exposure.level=0: Input should be greater than or equal to 0.0000"),
        (exposed(low=3.0), "exposure 1 lies outside its interval 3 .. 1"),
        (exposed(value=5.0), "exposure 5 lies outside its interval 1 .. 1"),
        (at("canaries.9.estimates.guess", {}), "estimates.guess"),
        # Searches.
        (searched_with(method="beam"), "proven=1000 does not go with a search by 'beam'"),
        (searched_with(proven=None), "proven=None does not go with a search by 'best_first'"),
        (searched_with(found=True, place="1001"), "place=1,001 of 1,000 guesses, found=True"),
        (searched_with(place="3"), "place=3 of 1,000 guesses, found=False"),
        (searched_with(found=True, place="0"), r"place='0': Input should be greater than or"),
        (searched_with(revealed=-1), r"extraction\[0\].revealed=-1: Input should be greater"),
        (at("summary.0.extraction.0.of", 0), "1 of 0 secrets are said to be found"),
        (at("summary.0.guesses.1.of", 0), "1 of 0 secrets are said to be found"),
        # The summary.
        (at("summary.0", ...), "no row of format 'random_number', role 'canary', repetitions 1"),
        (at("summary.1", ...), "summary has no row of format 'random_number', role 'control', rep"),
        (
            lambda values: values["canaries"].__delitem__(slice(10, None)),
            "summary has a row of .*'control', repetitions 0, and the result holds no such",
        ),
        (doubled("summary"), r"summary of .*'canary', 1. is there 2 times"),
        (at("summary.0.n", 0), r"summary\[0\].n=0: Input should be greater"),
        (at("summary.0.epsilon", None), "a point value of epsilon is of canaries, and of each"),
        (
            both(at("summary.0.median.low", None), at("summary.0.median.note", None)),
            "0.5 quantile lacks an end, and no note says why",
        ),
        (at("summary.0.mean_interval.note", None), "mean lacks an end of its interval, and no"),
        (at("summary.0.guessing_test.permutations", 0), "permutations=0: Input should be greater"),
        (at("summary.0.guessing_test.p_value", 0), "p_value=0: Input should be greater than 0"),
        (at("summary.0.guessing_test.p_value", 1.5), "p_value=1.5: Input should be less than or"),
        (at("summary.0.guessing_test.p_value", 10**400), "p_value=1000.*: Input should be"),
        # Bounds.
        (at("privacy.primary", None), "a primary bound is there if, and only if, a class has one"),
        (at("privacy.primary.value", -1.0), "privacy.primary.value=-1.0: Input should be greater"),
        (at("privacy.primary.significance", 1), "significance=1: Input should be less than 1"),
        (at("privacy.primary.significance", 0), "significance=0: Input should be greater than 0"),
        (at("privacy.primary.delta", 1), "privacy.primary.delta=1: Input should be less than 1"),
        (at("privacy.max_attainable", None), "max_attainable is there if, and only if, a class"),
        (at("privacy.classes.0.bounds.primary.value", 13.0), "value=13, but at most 12 is attain"),
        (at("privacy.classes.0.bounds", None), "a primary bound is there if, and only if, a class"),
        (
            both(at("privacy.classes.0.bounds", None), at("privacy.classes.0.note", None)),
            "random_number: there is no bound, and no note says why",
        ),
        # A claim.
        (at("privacy.claim.bound", None), "'consistent', with a bound of None, and at most 12"),
        (at("privacy.claim.max_attainable", None), "a bound of 0.5, and at most None attainable"),
        (
            both(at("privacy.claim.bound", None), at("privacy.claim.verdict", "contradicted")),
            "said to be 'contradicted', with a bound of None",
        ),
        (at("privacy.claim.significance", 2), "claim.significance=2: Input should be less than"),
        (at("privacy.claim.could_show", 5.0), "could_show=5.0, but power=None"),
        # A base.
        (based(at("base", None)), "has a calibrated exposure, and the result no base"),
        (
            based(lambda values: values["base"]["canaries"].pop()),
            "the base are of .* canaries, and not those of",
        ),
        (
            based(at("canaries.0.estimates.calibrated", ...)),
            "the calibrated exposures are of .* canaries, and not those of the result",
        ),
        (
            based(lambda values: values["base"]["classes"].pop()),
            "beside the base are not those of the summary",
        ),
        # All else.
        (at("model.validation.improved", "yes"), "improved='yes': Input should be a valid boolean"),
        (at("model.validation.validation_bits", None), "have improved, and a loss is missing"),
        (at("model.validation.initial_validation_bits", None), "and a loss is missing"),
        (at("model.validation.validation_bits", -1), "validation_bits=-1: Input should be greater"),
        (at("surprise", 1), "surprise: Extra inputs are not permitted"),
        (at("model.dtype", ...), "model.dtype: Field required"),
        (at("manifest_sha256", "x"), "manifest_sha256='x': String should match"),
        (at("canaries", {}), "canaries={}: Input should be a valid tuple"),
        (at("canaries.0.log_perplexity_bits", 10**400), "log_perplexity_bits="),
        (at("formats.0.space_size", 10**9), "=1000000000: Input should be a decimal string"),
        (at("formats.0.space_size", "٣"), "should be a decimal string of at most"),
        (at("formats.0.space_size", "9" * 4200), "at most 4,000 digits"),
    ],
)
def test_what_cannot_be_is_refused(change: Change, message: str) -> None:
    with pytest.raises(
        ResultError, match=message + r"(.|\n)*; measure again with another directory"
    ):
        valid(written(), change)


@pytest.mark.parametrize(
    "change",
    [
        at("canaries.0.log_perplexity_bits", -1e-9),
        at("formats.0.reference_bits_quantiles", [*range(9)]),
        at("formats.0.set_aside", 10**9 - 10),  # all fills
        at("privacy.claim", None),
        both(at("summary.0.guessing_test", None), at("model.validation", None)),
        both(at("warnings", ["why"]), at("canaries.0.log_perplexity_bits", None)),
        at("summary.0.extraction", []),
        at("summary.0.mean", 2.0),  # what follows from other numbers is not computed again
        at("privacy.claim.claimed_epsilon", 3.0),
    ],
)
def test_what_can_be_is_read(change: Change) -> None:
    assert valid(written(), change).canaries


def test_a_result_beside_a_base_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert Result.read(BESIDE_BASE.save(tmp_path / "run")) == BESIDE_BASE
    assert valid({}, based(lambda values: None)) == BESIDE_BASE


def test_scores_beside_a_base_are_read(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", base=True)
    scores = known(Result.read(run / "result.json").scores)
    bits = scores.log_perplexity_bits
    assert known(scores.base_log_perplexity_bits).shape == bits.shape
    assert read_score_file(run / "scores.parquet").scores[0] == -bits[0]
    plain = known(Result.read(small_run(tmp_path / "plain") / "result.json").scores)
    assert plain.base_log_perplexity_bits is None


def test_half_a_character_is_refused() -> None:
    values = written() | {"warnings": ["\ud800"]}
    with pytest.raises(ResultError, match=r"half a character, '\\ud800'\); measure again"):
        Result.parse(json.dumps(values).encode(), Path("result.json"))


def test_a_character_of_two_halves_is_read() -> None:
    values = written() | {"warnings": ["\U0001f642"]}
    values[CONTENT] = content_hash(values)
    content = json.dumps(values).encode()
    assert b"\\ud83d\\ude42" in content
    assert Result.parse(content, Path("result.json")).warnings == ("\U0001f642",)


@pytest.mark.parametrize("deep", [False, True])
def test_a_copy_shows_its_own_canaries_and_formats(deep: bool) -> None:
    result, fewer = clean(n=2), clean(n=1)
    assert result.format_named
    assert fewer.classes != result.classes
    update = {"canaries": fewer.canaries, "formats": ()}
    copied = result.model_copy(update=update, deep=deep)
    assert copied.classes == fewer.classes
    assert not copied.format_named
    assert result.format_named


@pytest.mark.parametrize("broken", [math.nan, math.inf, 10**400])
@pytest.mark.parametrize("place", ["value", "log_perplexity_bits"])
def test_a_number_that_is_not_finite_is_refused_in_memory_too(place: str, broken: float) -> None:
    with pytest.raises(ValueError, match=f"(?s){place}.*(finite|valid) number|exposure nan lies"):
        if place == "value":
            canary(0, estimate("exact", broken, low=0.0, high=None, warnings=("no end",)))
        else:
            canary(0, exact(1.0), log_perplexity_bits=broken)


MISSING: tuple[object, ...] = (None, [])
WRONG: tuple[object, ...] = (0, -1, 10**400, "x", True)
ALL = Thresholds(max_epsilon=9, max_exposure=20)
# Parts that carry the verdict: without one of them nothing passes.
DECIDING = re.compile(
    r"canaries/\d+(/(id|format|role|repetitions|exposure|exposure/(method|value)))?|canaries"
    r"|formats(/\d+(/(name|space_size|bits|references))?)?"
    r"|summary(/\d+(/(format|role|repetitions|n|mean|methods))?)?"
    r"|summary/\d+/guessing_test/(p_value|n|references|alternative|permutations)"
    r"|model/validation/(improved|validation_bits|initial_validation_bits)"
    r"|privacy/(primary|max_attainable|claim/(verdict|reason|claimed_epsilon|claimed_delta|bound))"
    r"|(inputs|manifest)_sha256|model/weights_sha256"
)


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all parts."""
    if path:
        yield path
    inner = enumerate(value) if isinstance(value, list) else ()
    for key, part in value.items() if isinstance(value, dict) else inner:
        yield from nodes(part, (*path, key))


def places(values: Values) -> list[tuple[Any, ...]]:
    """Of all paths that differ by places in lists only, the first and the last."""
    alike: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for path in nodes(values):
        # The summary has rows of two kinds, so that each counts.
        key = tuple(
            "*" if isinstance(part, int) and path[0] != "summary" else part for part in path
        )
        alike.setdefault(key, []).append(path)
    return [path for found in alike.values() for path in dict.fromkeys((found[0], found[-1]))]


def exit_code(values: Values) -> int:
    """As `lmexposure check` has it; 3 for a result that is refused."""
    try:
        result = read(values)
    except ResultError:
        return 3
    verdict = lx.check(result, ALL)
    json.loads(verdict_json(verdict, result.hashes, result.provenance))
    return verdict.exit_code


@pytest.mark.parametrize("others", [MISSING, pytest.param(WRONG, marks=pytest.mark.slow)])
def test_no_part_out_of_order_crashes_the_gate_and_none_that_is_missing_lets_it_pass(
    others: tuple[object, ...],
) -> None:
    values = written()
    searched_none = [searched(1000).model_dump(mode="json")]
    values["canaries"][2]["extraction"] = searched_none  # a secret that was found is a leak
    values["summary"][0] |= {"extraction": [], "guesses": []}
    assert exit_code(values) == 0
    passed: list[str] = []
    for path in places(values):
        *way, last = path
        place: Any = values
        for part in way:
            place = place[part]
        kept, name = place[last], "/".join(str(part) for part in path)
        for wrong in others:
            if wrong == kept and type(wrong) is type(kept):
                continue
            place[last] = wrong
            missing = wrong is None or wrong == []
            if exit_code(values) == 0 and missing and DECIDING.fullmatch(name):
                passed.append(name)
        place[last] = kept
    assert passed == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_json_is_utf_8(tmp_path: Path, encoding: str) -> None:
    """In another encoding half a character would go unseen."""
    (tmp_path / "r.json").write_text(_written(), encoding=encoding)
    with pytest.raises(ResultError, match="is not readable JSON"):
        Result.read(tmp_path / "r.json")
