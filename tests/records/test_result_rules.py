"""What no result may say: one part after another put out of order, and refused at the door."""

import json
import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from made_results import (
    RANDOM_NUMBER,
    REFERENCES,
    canary,
    changed,
    class_row,
    clean,
    estimate,
    exact,
    form,
    made,
    options,
    privacy,
    searched,
)
from pydantic import ValidationError

from lmexposure import gate
from lmexposure._files import canonical_json, sha256_bytes
from lmexposure._integrity import CONTENT
from lmexposure.errors import ResultError
from lmexposure.gate import Thresholds, verdict_json
from lmexposure.records import (
    ClaimCheck,
    ExtractionCount,
    GuessCount,
    Margin,
    Method,
    Provenance,
    Result,
    Search,
    TokenProof,
)

Values = dict[str, Any]
Change = Callable[[Values], object]


def read(values: Values) -> Result:
    """What a file of these contents says, whose hash is right."""
    content = canonical_json(values)
    sealed = f'{{"{CONTENT}":"{sha256_bytes(content)}",'.encode() + content[1:]
    return Result.parse(sealed, Path("result.json"))


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


def searched_with(**parts: Any) -> Change:
    return lambda values: values["canaries"][0]["extraction"][0].update(parts)


def valid(values: Values, change: Change) -> Result:
    change(values)
    return read(values)


_NAME = "random_number, canary, repetitions 1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (at("formats", None), "formats=None: Input should be a valid"),
        (at("formats", []), "canary 'random_number/x1/0000' is of format 'random_number', which"),
        (at("formats.0.bits", 20.0), "has 20 bits, which is not log2 of its size 1000000000"),
        (at("formats.0.bits", True), r"formats\[0\].bits=True: Input should be a valid number"),
        (at("formats.0.space_size", "0"), r"formats\[0\].space_size='0'.* greater than or equal"),
        (at("formats.0.space_size", "-5"), r"space_size='-5': Input should be a decimal string"),
        (
            at("formats.0.space_size", 10**9),
            r"space_size=1000000000: Input should be a decimal string",
        ),
        (
            at("formats.0.space_size", "9" * 4001),
            "Input should be a decimal string of at most 4,000 digits",
        ),
        (at("formats.0.references", 10**9), "has 1,000,000,000 references among 1000000000 fills"),
        (at("formats.0.references", 0), r"formats\[0\].references=0: Input should be greater"),
        (at("formats.0.references", True), r"formats\[0\].references=True: Input should be"),
        (at("formats.0.reference_bits_quantiles", [1, 2]), "quantiles that are not 9 in order"),
        (at("formats.0.reference_bits_quantiles", [*range(8), 0]), "quantiles that are not 9 in"),
        (at("formats.0.set_aside", 10**9), "1,000,000,010 fills were inserted or set aside, of 1"),
        (at("formats.0.search", []), r"formats\[0\].search=\[\]: Input should be a valid"),
        (at("formats.0.interrupted", "no"), r"formats\[0\].interrupted='no': Input should be"),
        (doubled("formats"), "format 'random_number' is there 2 times"),
    ],
)
def test_a_format_that_cannot_be_is_refused(change: Change, message: str) -> None:
    with pytest.raises(
        ResultError, match=message + r"(.|\n)*; measure again with another directory"
    ):
        valid(written(), change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (doubled("canaries"), "canary 'random_number/x1/0000' is there 2 times"),
        (at("canaries.0.role", "canery"), r"canaries\[0\].role='canery': Input should be 'canary'"),
        (at("canaries.0.role", "held_out"), r"canaries\[0\].role='held_out': Input should be"),
        (at("canaries.0.role", "control"), "has role 'control' and repetitions 1"),
        (at("canaries.0.repetitions", 0), "has role 'canary' and repetitions 0"),
        (at("canaries.0.repetitions", True), r"canaries\[0\].repetitions=True: Input should be"),
        (at("canaries.0.format", "pin"), "is of format 'pin', which the result does not have"),
        (at("canaries.0.log_perplexity_bits", -3.0), "log_perplexity_bits=-3.0: Input should be"),
        (at("canaries.0.log_perplexity_bits", True), "log_perplexity_bits=True: Input should be"),
        (at("canaries.0.log_perplexity_bits", None), "has no log-perplexity, and no warning says"),
        (at("canaries.0.exposure.rank", "2"), "has an exposure .* that is none of its estimates"),
        (exposed(value="2"), r"exposure.value='2': Input should be a valid number"),
        (exposed(value=None), "an exposure by 'exact' lacks its value or an end, and no warning"),
        (exposed(method="guess"), "exposure.method='guess': Input should be 'exact', 'exact up"),
        (exposed(method="sampled"), "an interval of a sample that never misses would have no end"),
        (exposed(level=0), "exposure.level=0: Input should be greater than or equal to 0.0000"),
        (exposed(capped=1), "exposure.capped=1: Input should be a valid boolean"),
        (exposed(low=3.0), "exposure 1 lies outside its interval 3 .. 1"),
        (exposed(value=5e3, high=5e3), "an exposure of 5000 bits, outside of 0 to 29.8974"),
        (exposed(value=-0.001, low=-1.0), "an exposure of -0.001 bits, outside of 0 to 29.8974"),
        (
            exposed(method="sampled", value=-0.01, low=-1.0, level=0.95),
            "an exposure of -0.01 bits, outside of -0.0001443 to 29.8974",
        ),
        (
            at("canaries.9.estimates.sampled", exact(3.0).model_dump()),
            "has an estimate by 'exact' under 'sampled'",
        ),
        (at("canaries.9.estimates", [1]), r"canaries\[9\].estimates=\[1\]: Input should be a"),
        (at("canaries.9.estimates.guess", {}), "estimates.guess"),
    ],
)
def test_a_canary_that_cannot_be_is_refused(change: Change, message: str) -> None:
    with pytest.raises(ResultError, match=message + r".*; measure again with another directory"):
        valid(written(), change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (at("canaries.0.extraction.0", "found"), r"extraction\[0\]='found': Input should be a"),
        (searched_with(method="oracle"), r"extraction\[0\].method='oracle': Input should be"),
        (searched_with(method="beam"), "proven=1000 does not go with a search by 'beam'"),
        (searched_with(proven=None), "proven=None does not go with a search by 'best_first'"),
        (searched_with(found=True, place="1001"), "place=1,001 of 1,000 guesses, found=True"),
        (searched_with(place="3"), "place=3 of 1,000 guesses, found=False"),
        (searched_with(found=True, place="0"), r"place='0': Input should be greater than or"),
        (searched_with(found="no"), r"extraction\[0\].found='no': Input should be a valid boolean"),
        (searched_with(revealed=-1), r"extraction\[0\].revealed=-1: Input should be greater"),
        (at("canaries.0.extraction.0.width", ...), r"extraction\[0\].width: Field required"),
        (searched_with(found=True, place="2"), f"{_NAME}, best_first .*: found=1, .* holds 2"),
        (at("summary.0.extraction.0.of", 9), f"{_NAME}, best_first .*: of=9, .* holds 10"),
        (at("summary.0.guesses.1.found", 0), "within 10 guesses: found=0, .* holds 1"),
        (at("summary.0.guesses.1.of", 9), "within 10 guesses: of=9, but the result holds 10"),
    ],
)
def test_a_search_that_cannot_be_is_refused(change: Change, message: str) -> None:
    with pytest.raises(ResultError, match=message):
        valid(written(), change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            at("summary.0", ...),
            "summary has no row of format 'random_number', role 'canary', repetitions 1",
        ),
        (at("summary.1", ...), "summary has no row of format 'random_number', role 'control', rep"),
        (
            lambda values: values["canaries"].__delitem__(slice(10, None)),
            "summary has a row of .*'control', repetitions 0, and the result holds no such",
        ),
        (doubled("summary"), r"summary of .*'canary', 1. is there 2 times"),
        (at("summary.0.role", "held_out"), r"summary\[0\].role='held_out': Input should be"),
        (at("summary.0.repetitions", 3), "epsilon is of 1 repetitions"),
        (at("summary.0.n", 11), "guessing test of n=10 and 'memorised', but the class is of n=11"),
        (at("summary.0.n", True), r"summary\[0\].n=True: Input should be a valid integer"),
        (at("summary.0.level", 0.9), "level=0.9, but the result holds 0.95"),
        (at("settings.level", 0.9), "level=0.95, but the result holds 0.9"),
        (at("settings.extraction", False), "revealed, but the settings say extraction=False"),
        (at("summary.0.mean", 2.0), "mean=2, but the result's canaries give 4.07"),
        (at("summary.0.median.value", 2.0), "0.5 quantile=2, but the result's canaries give 1"),
        (at("summary.0.methods", {"exact": 10}), r"methods=\{'exact': 10\}, but the result holds"),
        (at("summary.0.capped", 1), "capped=1, but the result holds 0"),
        (at("summary.0.guessing_test", [1]), r"guessing_test=\[1\]: Input should be a valid"),
        (at("summary.0.guessing_test.n", 9), "guessing test of n=9 and 'memorised', but the"),
        (
            at("summary.0.guessing_test.alternative", "different"),
            "guessing test of n=10 and 'different', but the class is of n=10 and 'memorised'",
        ),
        (
            at("summary.1.guessing_test.alternative", "memorised"),
            "guessing test of n=2 and 'memorised', but the class is of n=2 and 'different'",
        ),
        (
            at("summary.0.guessing_test.references", 9_999),
            "guessing test: references=9999, but the result holds 10000",
        ),
        (at("summary.0.guessing_test.references", None), "references=None: Input should be a"),
        (at("summary.0.guessing_test.permutations", 0), "permutations=0: Input should be greater"),
        (at("summary.0.guessing_test.p_value", 0), "p_value=0: Input should be greater than 0"),
        (at("summary.0.guessing_test.p_value", 1.5), "p_value=1.5: Input should be less than or"),
        (at("summary.0.guessing_test.p_value", 1e-5), "p_value=1e-05, but .* give at least 0.0001"),
        (at("summary.0.epsilon.value", 3.0), "value=3, but a median exposure of 1 bits gives 0"),
        (at("summary.0.guessing_test.p_value", None), "p_value=None: Input should be a valid"),
        (at("summary.0.guessing_test.p_value", 10**400), "p_value=1000.*: Input should be"),
    ],
)
def test_a_summary_of_other_canaries_is_refused(change: Change, message: str) -> None:
    with pytest.raises(ResultError, match=message):
        valid(written(), change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (at("privacy", "text"), "privacy='text': Input should be a valid dictionary"),
        (at("privacy.primary", "4"), "privacy.primary='4': Input should be a valid dictionary"),
        (at("privacy.primary", None), "a primary bound is there if, and only if, a class has one"),
        (at("privacy.primary.value", "much"), "privacy.primary.value='much': Input should be"),
        (at("privacy.primary.value", -1.0), "privacy.primary.value=-1.0: Input should be greater"),
        (at("privacy.primary.value", 0.4), "the primary bound is 0.4, the largest of the classes'"),
        (at("privacy.primary.significance", 1), "significance=1: Input should be less than 1"),
        (at("privacy.primary.significance", 0), "significance=0: Input should be greater than 0"),
        (at("privacy.primary.significance", None), "significance=None: Input should be a valid"),
        (at("privacy.primary.significance", 0.05), "has the significance 0.05, and those of its"),
        (at("privacy.primary.delta", 1), "privacy.primary.delta=1: Input should be less than 1"),
        (
            at("privacy.primary.formats", ["pin"]),
            "the primary bound is that of none of the classes",
        ),
        (at("privacy.max_attainable", 13.0), "max_attainable=13.0, but the most of the classes'"),
        (at("privacy.max_attainable", None), "max_attainable=None, but the most of the classes'"),
        (at("privacy.classes.0.canaries", 9), "repetitions 1: canaries=9, but the result holds 10"),
        (at("privacy.classes.0.bounds.primary.value", 13.0), "value=13, but at most 12 is attain"),
        (at("privacy.inclusion_probability", 0.5), "inclusion_probability=None, .* holds 0.5"),
        (at("privacy.classes.0.bounds", None), "a primary bound is there if, and only if, a class"),
        (
            both(at("privacy.classes.0.bounds", None), at("privacy.classes.0.note", None)),
            "random_number: there is no bound, and no note says why",
        ),
    ],
)
def test_a_bound_that_cannot_be_is_refused(change: Change, message: str) -> None:
    with pytest.raises(ResultError, match=message):
        valid(written(), change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (at("privacy.claim", "fine"), "privacy.claim='fine': Input should be a valid dictionary"),
        (at("privacy.claim", {}), "privacy.claim.verdict: Field required"),
        (at("privacy.claim.verdict", "fine"), "claim.verdict='fine': Input should be 'contradict"),
        (
            at("privacy.claim.verdict", "contradicted"),
            "said to be 'contradicted', but with a bound",
        ),
        (at("privacy.primary.method", "dkw"), "the primary bound is that of none of the classes"),
        (at("privacy.significance", 0.2), "privacy: significance=0.2, but the result holds 0.05"),
        (at("settings.significance", 0.2), "privacy: significance=0.05, but the result holds 0.2"),
        (at("settings.delta", 0.1), r"privacy: deltas=\(1e-05,\), but the result holds \(0.1,\)"),
        (at("privacy.claim.verdict", "cannot tell"), "said to be 'cannot tell', but with a bound"),
        (at("privacy.claim.bound", None), "'consistent', but with a bound of None, and at most 12"),
        (at("privacy.claim.bound", 2.1), "'consistent', but with a bound of 2.1, and at most 12"),
        (at("privacy.claim.max_attainable", None), "a bound of 0.5, and at most None attainable"),
        (at("privacy.claim.max_attainable", 2.0), "a bound of 0.5, and at most 2.0 attainable, it"),
        (at("privacy.claim.bound", 0.4), "claim: bound=0.4, but the result holds 0.5"),
        (at("privacy.claim.max_attainable", 9.0), "claim: max_attainable=9.0, .* holds 12.0"),
        (at("privacy.claim.significance", 0.01), "claim: significance=0.01, .* holds 0.025"),
        (at("privacy.claim.significance", 2), "claim.significance=2: Input should be less than"),
        (at("privacy.claim.validity", "gaussian"), "claim: validity=gaussian, .* holds any-dp"),
        (at("privacy.claim.method", "dkw"), "claim: method=dkw, .* holds one_run_audit"),
        (at("privacy.claim.claimed_delta", 0.1), "claimed_delta=0.1 is above the primary bound's"),
        (at("privacy.claim.claimed_epsilon", None), "claim.claimed_epsilon=None: Input should be"),
        (
            at("privacy.claim.claimed_epsilon", 3.0),
            "the claim is of epsilon 3, and the settings' claimed_epsilon is 2.0",
        ),
        (
            at("settings.claimed_epsilon", None),
            "the claim is of epsilon 2, and the settings' claimed_epsilon is None",
        ),
    ],
)
def test_a_claim_that_does_not_follow_is_refused(change: Change, message: str) -> None:
    with pytest.raises(ResultError, match=message):
        valid(written(), change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (at("model", []), r"model=\[\]: Input should be a valid dictionary"),
        (at("model.weights_sha256", None), "model.weights_sha256=None: Input should be a valid"),
        (at("model.weights_sha256", "x"), "model.weights_sha256='x': String should match pattern"),
        (at("model.validation.improved", "yes"), "improved='yes': Input should be a valid boolean"),
        (at("model.validation.validation_bits", 7.0), "to have improved, from 6.5 to 7.0 bits per"),
        (at("model.validation.validation_bits", None), "to have improved, from 6.5 to None bits"),
        (at("model.validation.validation_bits", -1), "validation_bits=-1: Input should be greater"),
        (at("settings.quick", "yes"), "settings.quick='yes': Input should be a valid boolean"),
        (at("settings.quick", ...), "settings.quick: Field required"),
        (at("settings.colour", "red"), "settings.colour: Extra inputs are not permitted"),
        (at("manifest_sha256", 5), "manifest_sha256=5: Input should be a valid string"),
        (at("inputs_sha256", None), "inputs_sha256=None: Input should be a valid string"),
        (at("warnings", "none"), "warnings='none': Input should be a valid tuple"),
    ],
)
def test_another_part_that_cannot_be_is_refused(change: Change, message: str) -> None:
    with pytest.raises(ResultError, match=message):
        valid(written(), change)


@pytest.mark.parametrize(
    "change",
    [
        at("canaries.0.log_perplexity_bits", -1e-9),
        at("formats.0.reference_bits_quantiles", [*range(9)]),
        at("privacy.claim", None),
        both(at("summary.0.guessing_test", None), at("model.validation", None)),
        both(at("warnings", ["why"]), at("canaries.0.log_perplexity_bits", None)),
        at("summary.0.extraction", []),
    ],
)
def test_what_can_be_is_read(change: Change) -> None:
    assert valid(written(), change).canaries


@pytest.mark.parametrize(
    "found",
    [
        estimate("skew_normal", 31.7, low=20.0, high=33.0, level=0.95),
        estimate("skew_normal", -0.5, low=-1.0, level=0.95),
        estimate("importance", 0.0, level=0.95),
        estimate("sampled", math.log2(10_000 / 10_001), low=-1.0, high=2.0, level=0.95),
        estimate("bounded", math.log2(10**9) + 1e-7, capped=True),
    ],
)
def test_an_exposure_that_can_be_is_kept(found: Any) -> None:
    result, one = clean(n=2), canary(0, found)
    row = class_row([one])
    alone = changed(result, canaries=[one], summary=[row])
    assert alone.canaries[0].exposure.value == found.value


@pytest.mark.parametrize("schema", [f"lmexposure.result/{n}" for n in (1, 2, 3)])
def test_half_a_character_is_refused(schema: str) -> None:
    values = written() | {"schema": schema, "warnings": ["\ud800"]}
    with pytest.raises(ResultError, match=r"half a character, '\\ud800'\); measure again"):
        Result.parse(json.dumps(values).encode(), Path("result.json"))


def test_a_character_of_two_halves_is_read() -> None:
    values = written() | {"warnings": ["\U0001f642"]}
    values[CONTENT] = sha256_bytes(canonical_json(values))
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
    with pytest.raises(ValueError, match=f"(?s){place}.*(finite|valid) number"):
        if place == "value":
            estimate("exact", broken, low=0.0, high=None, warnings=("no end",))
        else:
            canary(0, exact(1.0), log_perplexity_bits=broken)


WRONG: tuple[object, ...] = (None, 0, -1, 10**400, "x", [], True)
ALL = Thresholds(max_epsilon=9, max_exposure=20)
# Parts that carry the verdict: with any other value the result is of something else.
DECIDING = re.compile(
    r"canaries/\d+(/(id|format|role|repetitions|exposure|exposure/(method|value)))?|canaries"
    r"|formats(/\d+(/(name|space_size|bits|references))?)?"
    r"|summary(/\d+(/(format|role|repetitions|n|mean|methods))?)?"
    r"|summary/\d+/guessing_test/(p_value|n|references|alternative|permutations)"
    r"|model/validation/(improved|validation_bits|initial_validation_bits)"
    r"|privacy/(primary|max_attainable|claim/.*)"
    r"|(inputs|manifest)_sha256|model/weights_sha256"
)
# And these other values are as good as those that were there.
FITS = {
    ("canaries/0/id", "x"),
    ("canaries/11/id", "x"),
    ("model/validation/validation_bits", "0"),
    ("privacy/claim/claimed_delta", "0"),
    ("privacy/claim/reason", "x"),
}


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
    verdict = gate.check(result, ALL)
    json.loads(verdict_json(verdict, result, Provenance.of(result)))
    return verdict.exit_code


def test_no_part_out_of_order_crashes_the_gate_or_lets_it_pass() -> None:
    values = written()
    searched_none = [searched(1000).model_dump(mode="json")]
    values["canaries"][2]["extraction"] = searched_none  # a secret that was found is a leak
    values["summary"][0] |= {"extraction": [], "guesses": []}
    assert exit_code(values) == 0
    passed: list[tuple[str, str]] = []
    for path in places(values):
        *way, last = path
        place: Any = values
        for part in way:
            place = place[part]
        kept, name = place[last], "/".join(str(part) for part in path)
        for wrong in WRONG:
            if wrong == kept and type(wrong) is type(kept):
                continue
            place[last] = wrong
            if exit_code(values) == 0 and DECIDING.fullmatch(name):
                passed.append((name, str(wrong)))
        place[last] = kept
    assert [found for found in passed if found not in FITS] == []


@pytest.mark.parametrize("method", ["exact", "bounded", "sampled"])
def test_an_exposure_follows_from_its_rank(method: Method) -> None:
    among = REFERENCES if method == "sampled" else RANDOM_NUMBER
    capped = method == "bounded"
    bits = math.log2(among) - math.log2(8)
    sound = estimate(method, bits, rank=8, level=0.95, capped=capped)
    assert made([canary(0, sound)]).canaries[0].exposure.rank == 8
    other = sound.model_copy(update={"rank": 9})
    with pytest.raises(ValidationError, match=f"by '{method}', but its rank 9 gives"):
        made([canary(0, other)])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_json_is_utf_8(tmp_path: Path, encoding: str) -> None:
    """In another encoding half a character would go unseen."""
    (tmp_path / "r.json").write_text(_written(), encoding=encoding)
    with pytest.raises(ResultError, match="is not readable JSON"):
        Result.read(tmp_path / "r.json")


def test_the_power_of_a_claim_check_is_whole() -> None:
    values: dict[str, Any] = {
        "verdict": "cannot tell",
        "reason": "made",
        "claimed_epsilon": 4.0,
        "claimed_delta": 1e-5,
        **dict.fromkeys(("bound", "max_attainable", "significance", "validity", "method")),
    }
    assert ClaimCheck(**values).power is None
    with pytest.raises(ValidationError, match=r"could_show=5.0, but power=None"):
        ClaimCheck(**values, could_show=5.0)
    with pytest.raises(ValidationError, match=r"refutable_from=6, but could_show=3.0 is not"):
        ClaimCheck(**values, could_show=3.0, refutable_from=6.0, power=0.8)
