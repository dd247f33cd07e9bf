"""Texts out, scores in: right ones are measured, and wrong ones are refused or named."""

import json
import stat
import string
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audit.small import TOKENIZER, pins
from known import known
from numpy.typing import NDArray

import lmexposure as lx
from lmexposure.audit import ScoredTexts, read_scores, write_texts
from lmexposure.audit.scored_texts import _checked, _Sheet
from lmexposure.canaries import Wrapping
from lmexposure.errors import LmexposureError, ModelError, SettingsError

REFERENCES = 60
MANIFEST = pins(4, documents=100, canaries=8, controls=8)
LETTERS = "\n ," + string.digits + string.ascii_letters
Row = dict[str, Any]
Rows = list[Row]


class Bigram:
    """A language model of characters, each by the one before it; no text begins with a blank.

    It expects numbers behind commas, more so the more of them it knows.
    """

    def __init__(
        self, seed: int, *, known: tuple[str, ...] = (), spread: float = 0.5, numbers: float = 1
    ) -> None:
        generator = np.random.default_rng(seed)
        n = len(LETTERS)
        table = generator.dirichlet(np.full(n, spread), size=n + 1)
        for text in known:
            for before, after in pairwise(text):
                table[LETTERS.index(before), LETTERS.index(after)] += 1.0
        digits = slice(3, 13)
        table[2, 1] += 9 * numbers
        table[1, digits] += numbers
        table[digits, digits] += numbers / 2
        table[n, :2] = 1e-4
        table += 1e-6
        self.nats = -np.log(table / table.sum(axis=1, keepdims=True))

    def tokens(self, context: str, text: str) -> NDArray[np.float64]:
        """-log P of each character of the text."""
        found: NDArray[np.float64] = self.nats[places(context, text)]
        return found


def places(context: str, text: str) -> tuple[list[int], list[int]]:
    """In a bigram's table, each character of a text: the one before it, and itself."""
    ids = [LETTERS.index(c) for c in text]
    return [LETTERS.index(context[-1]) if context else len(LETTERS), *ids[:-1]], ids


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    number = write_texts(MANIFEST, path, references=REFERENCES)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == number == len({row["id"] for row in rows})
    return rows


def scored(rows: Rows, model: Bigram) -> Rows:
    return [
        {"id": row["id"], "nats": float(model.tokens(row["context"], row["text"]).sum())}
        for row in rows
    ]


def read(path: Path, rows: list[Any], **given: Any) -> ScoredTexts:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return read_scores(path, MANIFEST, **{"references": REFERENCES, **given})


KNOWING = Bigram(
    1, numbers=100, known=tuple(c.text for c in MANIFEST.canaries for _ in range(c.repetitions))
)


def test_scores_give_the_verdict_that_their_numbers_have(texts: Rows, tmp_path: Path) -> None:
    result = lx.measure(read(tmp_path / "s.jsonl", scored(texts, KNOWING)), MANIFEST)
    frame = result.to_frame()
    own = [KNOWING.tokens("", entry.text).sum() / np.log(2) for entry in MANIFEST.entries]
    expected = [bits for bits, e in zip(own, MANIFEST.entries, strict=True) if e.role != "witness"]
    np.testing.assert_allclose(frame["log_perplexity_bits"], expected, atol=1e-9)
    assert {"sampled"} == {canary.exposure.method for canary in result.canaries}
    assert result.context is None
    assert result.model.type == "scores"
    clean = lx.measure(read(tmp_path / "c.jsonl", scored(texts, Bigram(1))), MANIFEST)
    p_values = [
        known(row.guessing_test).p_value
        for found in (result, clean)
        for row in found.summary
        if row.repetitions == 4
    ]
    assert p_values[0] < 0.01 < p_values[1]
    assert not any("certificate" in line for line in result.warnings)


def test_the_same_numbers_in_each_unit_are_the_same_model(texts: Rows, tmp_path: Path) -> None:
    found = []
    for unit, factor in (("bits", 1 / np.log(2)), ("nats", 1.0), ("logprob", -1.0)):
        rows = [{"id": row["id"], unit: row["nats"] * factor} for row in scored(texts, Bigram(2))]
        found.append(read(tmp_path / f"{unit}.jsonl", rows))
    for unit, factor in (("token_bits", 1 / np.log(2)), ("token_logprobs", -1.0)):
        rows = [
            {
                "id": row["id"],
                unit: (Bigram(2).tokens(row["context"], row["text"]) * factor).tolist(),
            }
            for row in texts
        ]
        found.append(read(tmp_path / f"{unit}.jsonl", rows))
    wanted = [bits.sum() for bits in found[0].scores]
    for other in found:
        np.testing.assert_allclose([bits.sum() for bits in other.scores], wanted, atol=1e-9)
    said = [" ".join(each.notes) for each in found]
    assert ["how many tokens" in notes for notes in said] == [True] * 3 + [False] * 2


def unchecked(notes: Iterable[str]) -> bool:
    return any("unit of the scores" in note for note in notes)


def test_no_right_score_is_refused(texts: Rows) -> None:
    """Of models that know little and much, sure and unsure, with rounding of their own."""
    generator, checked, believed = np.random.default_rng(0), 0, 0
    before, own = zip(*(places(row["context"], row["text"]) for row in texts), strict=True)
    sheet, starts = _Sheet(MANIFEST, REFERENCES), np.cumsum([0, *map(len, own)])[:-1]
    for seed in range(200):
        spread, numbers = 10 ** generator.uniform((-1.5, -3), (1, 1.5))
        model = Bigram(seed, spread=spread, numbers=numbers)
        sums = np.add.reduceat(model.nats[np.concatenate(before), np.concatenate(own)], starts)
        sums *= 1 + generator.normal(size=sums.size) * (0, 1e-6, 1e-3, 4e-3)[seed % 4]
        in_bits = sums[sheet.order] / np.log(2)
        checked += not unchecked(_checked("s", sheet, in_bits))
        with suppress(ModelError):  # nats as bits
            believed += not unchecked(_checked("s", sheet, sums[sheet.order]))
    assert 30 < checked < 170  # the others are told that their unit could not be checked
    assert believed < 15  # of those that hardly expect numbers; it decides no rank


def changed(texts: Rows, change: Callable[[Row, NDArray[np.float64]], float]) -> Rows:
    """Each row's sum in nats as `change` makes it of its tokens'."""
    return [
        {"id": row["id"], "nats": change(row, KNOWING.tokens(row["context"], row["text"]))}
        for row in texts
    ]


def rescaled(factor: float, plus: float = 0.0) -> Callable[[Row, NDArray[np.float64]], float]:
    return lambda row, tokens: float(tokens.sum() * factor + plus)


def noisy(row: Row, tokens: NDArray[np.float64]) -> float:
    seed = int(row["id"].rpartition("-")[2])
    return float(tokens.sum() * np.random.default_rng(seed).uniform(0.8, 1.2))


def moved(texts: Rows, order: list[int]) -> Rows:
    rows = scored(texts, KNOWING)
    return [{"id": row["id"], "nats": rows[n]["nats"]} for row, n in zip(rows, order, strict=True)]


def without_digits(row: Row, tokens: NDArray[np.float64]) -> float:
    return float(
        KNOWING.tokens(row["context"], "".join(c for c in row["text"] if not c.isdigit())).sum()
    )


def another_alphabet(row: Row, tokens: NDArray[np.float64]) -> float:
    turned = {c: LETTERS[(i + 31) % len(LETTERS)] for i, c in enumerate(LETTERS)}
    return float(KNOWING.tokens("", "".join(turned[c] for c in row["text"])).sum())


NUMBERS = list(range(2_000))
WRONG: dict[str, Callable[[Rows], list[Any]]] = {
    "nats as bits": lambda t: [{"id": r["id"], "bits": r["nats"]} for r in scored(t, KNOWING)],
    "base 10 as nats": lambda t: changed(t, rescaled(1 / np.log(10))),
    "bits as nats": lambda t: changed(t, rescaled(1 / np.log(2))),
    "too small by a constant": lambda t: changed(t, rescaled(1, -4.0)),
    "too large by a constant": lambda t: changed(t, rescaled(1, 4.0)),
    "means per token": lambda t: changed(t, lambda row, tokens: float(tokens.mean())),
    "perplexities": lambda t: changed(t, lambda row, tokens: float(np.exp(tokens.mean()))),
    "the worst token alone": lambda t: changed(t, lambda row, tokens: float(tokens.max())),
    "the last token alone": lambda t: changed(t, lambda row, tokens: float(tokens[-1])),
    "cut behind": lambda t: changed(t, lambda row, tokens: float(tokens[:20].sum())),
    "cut in front": lambda t: changed(t, lambda row, tokens: float(tokens[-20:].sum())),
    "likely tokens alone": lambda t: changed(t, lambda row, k: float(k[k < 3].sum())),
    "first token not scored": lambda t: changed(t, lambda row, k: float(k[1:].sum())),
    "an end token scored": lambda t: changed(t, rescaled(1, 9.0)),
    "context scored": lambda t: changed(
        t, lambda row, k: float(KNOWING.tokens("", row["context"] + row["text"]).sum())
    ),
    "context not read": lambda t: changed(
        t, lambda row, k: float(KNOWING.tokens("", row["text"]).sum())
    ),
    "no digits": lambda t: changed(t, without_digits),
    "another tokenizer": lambda t: changed(t, another_alphabet),
    "dropout": lambda t: changed(t, noisy),
    "permuted": lambda t: moved(t, np.random.default_rng(0).permutation(len(t)).tolist()),
    "turned around": lambda t: moved(t, NUMBERS[: len(t)][::-1]),
    "each the next one's": lambda t: moved(t, [*range(1, len(t)), 0]),
    "sorted by length": lambda t: moved(t, sorted(range(len(t)), key=lambda n: len(t[n]["text"]))),
    "one missing": lambda t: scored(t, KNOWING)[:-1],
    "none": lambda t: [],
    "one doubled": lambda t: [*scored(t, KNOWING), scored(t[:1], KNOWING)[0]],
    "NaN": lambda t: [*scored(t[1:], KNOWING), {"id": t[0]["id"], "nats": float("nan")}],
    "infinite": lambda t: [*scored(t[1:], KNOWING), {"id": t[0]["id"], "nats": float("inf")}],
    "huge": lambda t: [*scored(t[1:], KNOWING), {"id": t[0]["id"], "nats": 10**400}],
    "another sign": lambda t: changed(t, rescaled(-1)),
    "a text": lambda t: [*scored(t[1:], KNOWING), {"id": t[0]["id"], "nats": "12.5"}],
    "nothing": lambda t: [*scored(t[1:], KNOWING), {"id": t[0]["id"], "nats": None}],
    "no score": lambda t: [*scored(t[1:], KNOWING), {"id": t[0]["id"]}],
    "no tokens": lambda t: [{"id": row["id"], "token_bits": []} for row in t],
    "two units": lambda t: [*scored(t[1:], KNOWING), {"id": t[0]["id"], "bits": 12.0}],
    "no object": lambda t: [*scored(t[1:], KNOWING), [t[0]["id"], 12.0]],
    "no JSON": lambda t: [*scored(t[1:], KNOWING), "{'id'"],
    "another manifest's": lambda t: [{"id": "0" * 12 + "-1", "nats": 1.0}],
    "an id too many": lambda t: [{"id": f"{t[0]['id'].partition('-')[0]}-99999", "nats": 1.0}],
}
# What each is told by, where it is no refusal.
NAMED = {
    "bits as nats": "unit of the scores",
    "too large by a constant": "unit of the scores|in two parts",
    "first token not scored": "the first token of a text is not scored",
    "an end token scored": "an end token was scored",
    "context scored": "in two parts",
    "context not read": "the context was not read",
    "another tokenizer": "the tokenizer not the model's",
}
REFUSED = {
    "nats as bits": "probability of .* nats read as bits",
    "means per token": "means per token",
    "cut behind": "cut texts",
    "permuted": "the same text",
    "dropout": "dropout",
    "one missing": "has no score of 1 of",
    "one doubled": "has a score already",
    "another manifest's": "is of no text of this manifest",
    "two units": "the same one of bits, nats",
}


@pytest.mark.parametrize("how", WRONG)
def test_wrong_scores_are_refused_or_named(how: str, texts: Rows, tmp_path: Path) -> None:
    rows = WRONG[how](texts)
    if how in NAMED:
        model = read(tmp_path / "s.jsonl", rows)
        assert any(map(lx_matches(NAMED[how]), model.notes))
        result = lx.measure(model, MANIFEST)
        assert set(model.notes) <= set(result.warnings)
        return
    with pytest.raises(ModelError, match=REFUSED.get(how, "s.jsonl")) as refused:
        read(tmp_path / "s.jsonl", rows)
    assert len(str(refused.value)) < 500


def lx_matches(pattern: str) -> Callable[[str], bool]:
    return lambda note: any(part in note for part in pattern.split("|"))


SECRET = MANIFEST.canaries[0].text
DAMAGED: dict[str, list[Any]] = {
    "a text as id": [{"id": SECRET, "nats": 1.0}],
    "a text as score": [{"id": "TAG-0", "nats": SECRET}],
    "a long id": [{"id": "7" * 9_999, "nats": 1.0}],
    "deep": ["[" * 200_000],
    "no arguments": [{"resps": [[["-1", "False"]]], "arguments": None, "doc": {}}],
    "empty arguments": [{"resps": [[["-1", "False"]]], "arguments": {}, "doc": {}}],
    "a text in a sample": [
        {"resps": [[[SECRET]]], "arguments": [["", ""]], "doc": {"context": ""}}
    ],
    "too large": [{"id": "TAG-0", "token_bits": [1e308, 1e308]}],
}


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_no_score_is_said_without_it(what: str, texts: Rows, tmp_path: Path) -> None:
    tag = texts[0]["id"].partition("-")[0]
    rows = [
        row if isinstance(row, str) else {**row, "id": row.get("id", "").replace("TAG", tag)}
        for row in DAMAGED[what]
    ]
    with pytest.raises(ModelError, match="line 1") as refused:
        read(tmp_path / "s.jsonl", rows)
    assert SECRET not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_scores_that_hardly_differ_are_named(texts: Rows, tmp_path: Path) -> None:
    own = {entry.text for entry in MANIFEST.entries}
    rows = scored(texts, KNOWING)
    for text, row in zip(texts, rows, strict=True):
        if text["text"].startswith("My PIN") and text["text"] not in own:
            row["nats"] = 30.0
    assert any("have the same score" in note for note in read(tmp_path / "s.jsonl", rows).notes)


def test_a_start_token_is_spelled_where_the_tokenizer_puts_none(tmp_path: Path) -> None:
    TOKENIZER.save_pretrained(tmp_path / "tokenizer")
    path = tmp_path / "texts.jsonl"
    for left, front in (("eos", TOKENIZER.eos_token), ("none", ""), ("a: ", "a:")):
        write_texts(
            MANIFEST, path, tokenizer=str(tmp_path / "tokenizer"), references=20, left_context=left
        )
        contexts = {json.loads(line)["context"] for line in path.read_text().splitlines()}
        assert front in contexts


def test_neither_ids_nor_order_depend_on_coins() -> None:
    tossed = pins(4, canaries=30, inclusion_probability=0.5, inclusion_seed=1)
    other = pins(4, canaries=30, inclusion_probability=0.5, inclusion_seed=2)
    ours = _Sheet(tossed, REFERENCES)
    theirs = _Sheet(other, REFERENCES)
    assert ours.order == theirs.order
    assert ours.tag != theirs.tag
    places = np.array(ours.order)
    inserted = {entry.text for entry in tossed.canaries}
    own = places[[n for n, (_, text) in enumerate(ours.texts) if text in inserted]]
    assert 0.2 < (own < places.size / 2).mean() < 0.8


def test_what_scores_cannot_give_is_refused(texts: Rows, tmp_path: Path) -> None:
    model = read(tmp_path / "s.jsonl", scored(texts, KNOWING))
    refusals: dict[str, dict[str, Any]] = {
        "token by token": {"estimate": "exact"},
        "10,000 references are asked for": {"references": 10_000},
        "where they are written": {"left_context": "none"},
        "are for a model that is asked": {"base": "adapter-off"},
        "is for loading a model": {"dtype": "bfloat16"},
    }
    for match, given in refusals.items():
        with pytest.raises(SettingsError, match=match):
            lx.measure(model, MANIFEST, **given)
    assert not any(entry.text in repr(model) for entry in MANIFEST.entries)
    with pytest.raises(ModelError, match="another manifest"):
        lx.measure(model, pins(5))
    with pytest.raises(LmexposureError, match="cannot read the scores"):
        read_scores(tmp_path / "none.jsonl", MANIFEST)
    chats = replace(MANIFEST.corpus, wrapping=Wrapping(turn="assistant", other="Go on."))
    with pytest.raises(SettingsError, match="made by the model's tokenizer"):
        write_texts(replace(MANIFEST, corpus=chats), tmp_path / "t.jsonl")
    assert not (tmp_path / "t.jsonl").exists()


def sample(row: Row, nats: float, *, before: str = "") -> Row:
    """As lm-eval 0.4.13 logs it."""
    asked = {"arg_0": row["context"], "arg_1": before + row["text"]}
    return {
        "doc_id": 0,
        "doc": row,
        "target": before + row["text"],
        "arguments": {"gen_args_0": asked},
        "resps": [[[str(-nats), "False"]]],
        "filtered_resps": [[str(-nats), "False"]],
        "filter": "none",
        "acc": 0,
    }


def test_logged_samples_of_lm_eval_are_read(texts: Rows, tmp_path: Path) -> None:
    rows = scored(texts, KNOWING)
    plain = read(tmp_path / "s.jsonl", rows)
    logged = [sample(text, row["nats"]) for text, row in zip(texts, rows, strict=True)]
    assert read(tmp_path / "samples.jsonl", logged).identity == plain.identity
    older = [
        {**row, "arguments": [list(row["arguments"]["gen_args_0"].values())]} for row in logged
    ]
    assert read(tmp_path / "samples.jsonl", older).identity == plain.identity
    with pytest.raises(ModelError, match="target_delimiter: ''"):
        read(tmp_path / "samples.jsonl", [sample(texts[0], 3.0, before=" ")])


def test_chosen_texts_are_judged_by_coins_and_witnesses_beside_others(tmp_path: Path) -> None:
    manifest = pins(4, documents=200, inclusion_probability=0.5, canaries=20, witness=True)
    path = tmp_path / "t.jsonl"
    write_texts(manifest, path, references=REFERENCES)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    seen = tuple(c.text for c in (*manifest.canaries, *manifest.witnesses) for _ in range(9))
    for learned, low, high in (((), 0.001, 1), (seen, 0, 0.6)):
        model = Bigram(3, known=learned)
        (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, scored(rows, model))))
        result = lx.measure(
            read_scores(tmp_path / "s.jsonl", manifest, references=REFERENCES), manifest
        )
        assert result.witness is not None
        assert result.witness.p_value is not None
        assert low <= result.witness.p_value <= high
        assert result.privacy is not None
