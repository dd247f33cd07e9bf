"""Natural identifiers: known to a model that read them, and to no other; what is refused."""

import random
import stat
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import torch
from identifier_corpora import KEY, LINES, keyed_lines, trained, write_lines
from known import known
from made_studies import identifiers
from tiny import model_of
from transformers import GPT2Config, GPT2LMHeadModel

from lmexposure.audit import IdentifierSettings, natural_identifiers
from lmexposure.audit.identifier_ranking import _Place, _ranks_under
from lmexposure.canaries import Format, derive_seed, find_identifiers, load_format
from lmexposure.core import as_markdown
from lmexposure.doors import check
from lmexposure.errors import (
    CorpusError,
    FormatError,
    LmexposureError,
    ModelError,
    ResultError,
    SettingsError,
)
from lmexposure.models import Context, LoadedModel, new_model
from lmexposure.scoring import TorchModel, log_perplexity
from lmexposure.statistics import identifiers_needed
from lmexposure.studies import NaturalIdentifiers

FEW = IdentifierSettings(draws=99, left=40)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("keyed") / "corpus.txt", keyed_lines(1))


@cache
def reader() -> LoadedModel:
    return trained(keyed_lines(1), epochs=30)


@cache
def base() -> LoadedModel:
    """It knows lines with keys as well, and none of these keys."""
    return trained(keyed_lines(2), epochs=30)


def compared(model: Any, corpus: Path, **changes: Any) -> NaturalIdentifiers:
    return natural_identifiers(model, corpus, **{"formats": [KEY], "settings": FEW, **changes})


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of the same source that no model read."""
    return write_lines(tmp_path_factory.mktemp("apart") / "held-out.txt", keyed_lines(9, 60))


@pytest.mark.slow
def test_membership_is_claimed_beside_a_random_split(corpus: Path, apart: Path) -> None:
    record = compared(reader(), corpus, held_out=apart)
    assert record.claim == "membership"
    assert "lie lower beside their draws than those of held-out documents" in record.reason
    split = known(record.split)
    assert (split.documents, split.tested, split.both) == (60, 60, 0)
    assert split.area > 0.9
    assert split.p_value < 1e-3
    assert split.model.tpr < 0.1
    text = as_markdown(record.document())
    assert "Membership: the model read these identifiers" in text
    assert "Beside 60 held-out documents" in text
    clean = compared(base(), corpus, held_out=apart)
    assert clean.claim == "nothing found"
    assert "are as likely as those of held-out documents" in clean.reason


@pytest.mark.parametrize(
    ("changes", "outcome", "said"),
    [
        ({"claim": "nothing found"}, "pass", "nothing found"),
        ({"claim": "distribution or membership"}, "inconclusive", "distribution or membership"),
        ({"claim": "membership", "p": 0.002}, "leak", "the model read these identifiers"),
        (
            {"claim": "membership", "p": 0.03},
            "inconclusive",
            "of 0.01 membership is not shown, and",
        ),
        ({"claim": "nothing found", "p": 0.007}, "inconclusive", "chance does not explain this"),
    ],
)
def test_the_gate_takes_what_is_shown_at_its_significance_for_a_leak(
    changes: dict[str, Any], outcome: str, said: str
) -> None:
    made = next(study for study in map(identifiers, range(99)) if study.split is not None)
    split = known(made.split).model_copy(update={"p_value": changes.pop("p", 0.5)})
    verdict = check(made.model_copy(update={"split": split, **changes}))
    assert (verdict.outcome, said in verdict.sentence) == (outcome, True)


def test_ended_anywhere_it_goes_on_to_the_same(corpus: Path, tmp_path: Path) -> None:
    settings = replace(FEW, most=150)  # blocks of fifty
    whole = compared(base(), corpus, settings=settings)
    for last in (50, 50, 100):

        def ends(what: str, done: int, total: int, note: str = "", last: int = last) -> None:
            if done >= last:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            compared(base(), corpus, settings=settings, out=tmp_path, progress=ends)
    (torn, *_) = (tmp_path / ".work").glob("comparing-*")
    torn.write_bytes(torn.read_bytes()[:-1])
    with pytest.raises(ResultError, match="its left was 40, now 30 is asked for"):
        compared(base(), corpus, settings=replace(settings, left=30), out=tmp_path)
    ended = compared(base(), corpus, settings=settings, out=tmp_path)
    assert ended.model_copy(update={"measured": whole.measured}) == whole
    assert {path.name for path in (tmp_path / ".work").iterdir()} == {"asked.json"}
    assert compared(base(), corpus, settings=settings, out=tmp_path) == ended


@pytest.mark.slow
def test_what_a_source_has_in_common_is_not_membership(tmp_path: Path) -> None:
    """A key prefix that the model learned from other documents, and the base never saw."""

    def prefixed(seed: int, lines: int) -> list[str]:
        keyed = (line.split() for line in keyed_lines(seed, lines))
        return [f"no {words[1]} has fecd{words[3][4:]} now" for words in keyed]

    model = trained(prefixed(11, 400), epochs=8)
    base = trained(keyed_lines(12, 400), epochs=8)
    fresh = write_lines(tmp_path / "fresh.txt", prefixed(13, LINES))
    record = compared(model, fresh, base=base)
    every = record.classes[-1]
    assert known(every.model).p_value < 1e-20
    assert known(every.base).null
    assert record.claim == "distribution or membership"
    assert "such as a prefix" in record.reason
    for text in (record.finding, as_markdown(record.document())):
        assert "membership: the model" not in text.lower()
        assert "the model read" not in text
    other = write_lines(tmp_path / "held-out.txt", prefixed(14, 60))
    beside = compared(model, fresh, held_out=other)
    assert beside.claim == "nothing found"
    assert "they rank lower than fresh draws" in beside.reason
    read = write_lines(tmp_path / "read.txt", prefixed(11, 400))
    some = replace(FEW, most=LINES)  # of the 400
    reader = compared(trained(prefixed(11, 400), epochs=25), read, held_out=other, settings=some)
    assert reader.claim == "membership"  # though nearly all rank first, read or not


def test_what_both_sides_of_a_split_hold_is_left_out_of_both(corpus: Path, tmp_path: Path) -> None:
    lines = [*keyed_lines(9, 30), *keyed_lines(1)[:5]]
    record = compared(base(), corpus, held_out=write_lines(tmp_path / "apart.txt", lines))
    assert (known(record.split).tested, known(record.split).both) == (30, 5)
    assert record.classes[-1].tested == LINES - 5


@pytest.mark.slow
def test_a_random_uuid_is_membership_by_its_standard(tmp_path: Path) -> None:
    uuids = [str(UUID(int=random.Random(n).getrandbits(128), version=4)) for n in range(LINES)]
    lines = [f"no 1 has {own} now" for own in uuids]
    model, corpus = trained(lines, epochs=30), write_lines(tmp_path / "uuids.txt", lines)
    alone = compared(model, corpus, formats=["uuid"])
    assert (alone.claim, alone.uniform_source) == ("membership", True)
    assert "random by RFC 9562" in alone.reason
    beside = compared(model, corpus, formats=["uuid"], base=model)
    assert beside.claim == "distribution or membership"


@pytest.mark.slow
def test_a_base_that_is_null_does_not_make_it_membership(corpus: Path, tmp_path: Path) -> None:
    record = compared(reader(), corpus, base=base(), out=tmp_path)
    (own, every) = record.classes
    assert (record.claim, record.uniform_source) == ("distribution or membership", False)
    assert "and not under the base" in record.reason
    assert (own.found, own.distinct, own.compared, own.tested) == (LINES,) * 4
    assert own.space_size == 16**8
    assert known(every.model).tpr > 0.5 > 0.1 > known(every.base).tpr
    assert known(every.difference).low > 0.4
    assert known(every.difference).p_value < 1e-6
    written = tmp_path / "identifiers.json"
    assert NaturalIdentifiers.read(written) == record
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    for line in keyed_lines(1):
        assert line.split()[3] not in written.read_text()
    with pytest.raises(ResultError, match=r"its base was given, and now it is not"):
        compared(reader(), corpus, out=tmp_path)
    assert compared(reader(), corpus, base=base(), out=tmp_path) == record


def test_without_a_base_or_a_split_it_may_be_the_distribution(corpus: Path) -> None:
    record = compared(reader(), corpus)
    assert (record.claim, record.base) == ("distribution or membership", None)
    assert "held out of the training at random can tell: give them (held_out=...)" in record.reason
    assert all(row.base_rank is None for row in record.identifiers)


@pytest.mark.slow
def test_a_model_that_never_saw_them_shows_nothing(corpus: Path) -> None:
    record = compared(base(), corpus, base=base())
    assert record.claim == "nothing found"
    assert any("very weights of the model" in line for line in record.warnings)
    difference = known(record.classes[-1].difference)
    assert (difference.value, difference.p_value) == (0, 1)


@pytest.mark.slow
def test_a_base_to_which_identifiers_are_no_random_draws_allows_no_claim(tmp_path: Path) -> None:
    """Keys that all begin alike; the reader serves as base, which knows other such keys."""
    lines = [f"no 1 has 0000{line.split()[3][4:]} now" for line in keyed_lines(1)]
    corpus, other = write_lines(tmp_path / "alike.txt", lines), keyed_lines(3)
    base = trained([f"no 1 has 0000{line.split()[3][4:]} now" for line in other], epochs=4)
    record = compared(trained(lines, epochs=6), corpus, base=base)
    assert record.claim == "distribution or membership"
    assert "and under the base, which never saw them, too (p = " in record.reason


def test_a_rank_is_that_of_a_slow_count(corpus: Path) -> None:
    record = compared(reader(), corpus)
    found = find_identifiers(corpus, [KEY], most=FEW.most, left=FEW.left, seed=FEW.seed)
    rank_of = {row.document: row.rank for row in record.identifiers}
    for number in (0, 77):
        kept = found.kept[number]
        draws = found.draws("key", 99, seed=derive_seed(0, "draws", str(number)))
        form = found.formats["key"]
        own = (reader().model, reader().tokenizer)
        context = Context(before=kept.before, behind=kept.behind)
        scored = [
            log_perplexity(*own, [form.text(i)], context=context) for i in (kept.index, *draws)
        ]
        bits = [float(found[0]) for found in scored]
        assert rank_of[kept.document] == 1 + sum(b <= bits[0] for b in bits[1:])


@pytest.mark.slow
def test_a_sample_is_compared_where_there_are_many(tmp_path: Path) -> None:
    lines = [f"{a} {b}" for a, b in zip(keyed_lines(4, 200), keyed_lines(5, 200), strict=True)]
    corpus = write_lines(tmp_path / "many.txt", [*lines, *lines[:3]])
    ssn = Format(name="ssn", template="{digits:3}-{digits:2}-{digits:4}")
    record = compared(base(), corpus, formats=[KEY, ssn], settings=replace(FEW, most=300))
    keys, ssns, every = record.classes
    assert (keys.found, keys.distinct, keys.repeated, keys.compared) == (406, 400, 6, 300)
    assert identifiers_needed() <= keys.tested <= 200
    assert (ssns.found, ssns.model, every.tested) == (0, None, keys.tested)
    assert "300 of 400 identifiers were compared, chosen at random" in record.warnings
    assert "no identifier of format ssn is in the corpus" in record.warnings
    assert {row.times for row in record.identifiers} == {1, 2}


def test_too_few_identifiers_are_refused_with_their_numbers(corpus: Path, tmp_path: Path) -> None:
    few = write_lines(tmp_path / "few.txt", [*keyed_lines(1, 30), " ".join(keyed_lines(2, 200))])
    none = write_lines(tmp_path / "none.txt", ["no key"])
    small = write_lines(tmp_path / "small.txt", [f"{i} is a {i % 190:03}" for i in range(950)])
    digits = {"formats": [Format(name="digits", template="a {digits:3}")]}
    apart = write_lines(tmp_path / "apart.txt", [*keyed_lines(9, 19), *keyed_lines(1)[:5]])
    refused: list[tuple[Path, dict[str, Any], type[LmexposureError], str]] = [
        (
            few,
            {},
            CorpusError,
            r"230 different identifiers in 31 documents are fewer than needed \(key: 230\): .* "
            "takes 142 documents",
        ),
        (none, {}, CorpusError, r"holds no identifiers \(key: 0, in 1 document\)"),
        (tmp_path / "missing.txt", {}, CorpusError, "cannot read the corpus"),
        (
            corpus,
            {"held_out": apart},
            CorpusError,
            r"held out are identifiers in 19 documents \(5 are in .* at least 20",
        ),
        (
            few,
            {"settings": replace(FEW, most=141)},
            SettingsError,
            "most=141 is fewer than needed: a claim takes 142",
        ),
        (
            small,
            {**digits, "settings": IdentifierSettings()},
            FormatError,
            r"'digits' has 1,000 secrets, of which \d+ are in the c",
        ),
        (corpus, {"formats": ["nothing"]}, FormatError, "no format 'nothing'"),
        *(
            (
                corpus,
                {"formats": wrong},
                SettingsError,
                r"^formats=.* must be a list of formats, su",
            )
            for wrong in (None, "uuid", ())
        ),
    ]
    for texts, options, error, match in refused:
        with pytest.raises(error, match=match):
            compared("never loaded", texts, **options)


def test_a_model_that_cannot_compare_is_refused_by_what_it_lacks(
    corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=r"no base: .*missing"):
        compared(base(), corpus, base=tmp_path / "missing")
    lacking = new_model("lstm", ["no 0123456789 abcde has now"], seed=1, separator="\n")
    model = model_of("gpt2", len(base().tokenizer))
    model.config.max_position_embeddings = 16
    short = LoadedModel(model=model, tokenizer=base().tokenizer, name="short")
    for refused, said in (
        (tmp_path / "missing", "missing"),
        (lacking, "has no token for 'f', which secrets of format 'key' hold"),
        (short, r"in document \d+ of .*: \d+ tokens with the text in front, and model 's"),
    ):
        with pytest.raises(ModelError, match=said):
            compared(refused, corpus)
    place = _Place(texts=["\u03a9"], context=Context(before="no "), where="an identifier of x")
    with pytest.raises(ModelError, match=r"an identifier of x, under model .*: text 0 of"):
        _ranks_under(TorchModel.of(base()), [place])


class _Copier(GPT2LMHeadModel):  # type: ignore[misc]
    """Without memory: expects what followed the last two tokens earlier in its own context."""

    def forward(self, input_ids: Any = None, **more: Any) -> Any:
        out = super().forward(input_ids=input_ids, **more)
        out.logits = torch.zeros_like(out.logits)
        first = out.logits.shape[1] - input_ids.shape[1]
        for row, ids in enumerate(input_ids.tolist()):
            behind: dict[tuple[int, int], int] = {}
            for place, pair in enumerate(pairwise(ids), start=1):
                if pair in behind:
                    out.logits[row, first + place, behind[pair]] = 6.0
                if place + 1 < len(ids):
                    behind[pair] = ids[place + 1]
        return out


def echoing(draw: random.Random, lines: int, shared: int) -> list[str]:
    """UUIDs of version 4, some first digits of which stand in front of them."""
    every = [str(UUID(int=draw.getrandbits(128), version=4)) for _ in range(lines)]
    return [f"worker {own[:shared]} ok; no {own} done" for own in every]


@pytest.mark.slow
def test_what_stands_in_front_is_copied_and_not_remembered(tmp_path: Path) -> None:
    plain = echoing(random.Random(1), 150, 0)
    read = echoing(random.Random(2), 30, 8)
    tokenizer = new_model("lstm", read, seed=1, separator="\n").tokenizer
    sizes = GPT2Config(vocab_size=len(tokenizer), n_positions=256, n_embd=8, n_head=1)
    sizes.bos_token_id = sizes.eos_token_id = None
    copier = LoadedModel(model=_Copier(sizes).eval(), tokenizer=tokenizer, name="copier")
    lines = [*plain, *echoing(random.Random(3), 30, 3), *echoing(random.Random(4), 30, 8)]
    corpus = write_lines(tmp_path / "some", lines)
    record = compared(copier, corpus, formats=["uuid"])
    assert (record.claim, record.foretold) == ("nothing found", 60)
    assert record.classes[-1].tested == 150
    assert any(line.startswith("60 identifiers left out: the text") for line in record.warnings)
    alone = write_lines(tmp_path / "alone", echoing(random.Random(3), 160, 8))
    with pytest.raises(CorpusError, match=r"with some \(160 are left out: the text in front"):
        compared(copier, alone, formats=["uuid"])
    with pytest.raises(CorpusError, match=r"and left out\) \(160 are left out: the text in f"):
        compared(copier, corpus, formats=["uuid"], held_out=alone)


def test_chance_leaves_few_out_and_draws_share_no_run_either(tmp_path: Path) -> None:
    draw = random.Random(5)
    uuids = [str(UUID(int=draw.getrandbits(128), version=4)) for _ in range(1200)]
    lines = [f"no {one} has {two}" for one, two in zip(uuids[::2], uuids[1::2], strict=True)]
    corpus = write_lines(tmp_path / "two.txt", lines)
    found = find_identifiers(corpus, [load_format("uuid")], most=1200, left=200, seed=0)
    assert len(found.kept) + found.foretold == 1200
    assert 0 < found.foretold < 30  # about 1.3 % of 600
    before = "no " + lines[0].split()[1].upper() + " has "
    own = before.lower().replace("-", "")
    drawn = [
        found.formats["uuid"].text(index).replace("-", "")
        for index in found.draws("uuid", 2000, seed=1, before=before)
    ]
    assert not any(text[i : i + 4] in own for text in drawn for i in range(29))
    assert any(text[i : i + 3] in own for text in drawn for i in range(30))


def test_words_that_many_fills_hold_leave_none_out(tmp_path: Path) -> None:
    """The prefix of a key, or a number of few digits, is in front by chance."""
    draw = random.Random(6)
    keys = [f"keys begin with fkey: fkey{draw.randbytes(8).hex()}" for _ in range(30)]
    form = Format(name="own", template="fkey{hex:16}")
    corpus = write_lines(tmp_path / "keys.txt", keys)
    assert len(find_identifiers(corpus, [form], most=99, left=200, seed=0).kept) == 30
    few = Format(name="few", template="{digits:3}")
    none = write_lines(tmp_path / "none.txt", ["none"])
    found = find_identifiers(none, [few], most=9, left=9, seed=0)
    with pytest.raises(
        FormatError, match=r"'few' has 1,000 secrets, of which 0 are in the corpus, "
    ):
        found.draws("few", 1000, seed=0, before="no 123 has")
