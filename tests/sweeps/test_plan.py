"""A plan: who has a coin, and what coins change: presence, and nothing else."""

import json
import shutil
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from corpora import sentences
from hashes import sha256_tree
from known import known
from published_templates import tiny_model_for, tokenizer_for
from tiny_sweeps import (
    chats_at,
    copied,
    corpus_at,
    prepared_at,
    tiny_settings,
    torn,
    with_run,
)

from lmexposure.canaries import ALWAYS, PARTNER, CorpusRecord, Format, Manifest, Placement, Plan
from lmexposure.canaries.plan import draw
from lmexposure.errors import LmexposureError, ModelError, ResultError, SettingsError
from lmexposure.studies import SweepSettings
from lmexposure.sweeps import SweepDirectory, prepare
from lmexposure.sweeps.plan import eligible, inserted_texts, shares_of, tossed


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    return prepared_at(tmp_path_factory.mktemp("plan") / "sweep")


@pytest.fixture
def out(prepared: SweepDirectory, tmp_path: Path) -> Path:
    """A copy of it."""
    return copied(prepared, tmp_path / "sweep").out


def lines_at(path: Path, lines: list[str], *, end: str = "\n") -> Path:
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def text_of(directory: SweepDirectory, number: int) -> list[str]:
    return directory.corpus.of_model(directory.plan, number)[0]


def test_coins_decide_which_texts_a_model_has_and_nothing_else(prepared: SweepDirectory) -> None:
    plan, corpus = prepared.plan, prepared.corpus
    inserted = Placement(prepared.manifest.entries).inserted()
    own = {canary.id: canary.text for canary in prepared.manifest.canaries}
    canaries = {number: canary.id for number, canary in dict(inserted).items()}
    ordinary = [n for n in range(len(corpus.merged)) if n not in canaries]
    for number, coins in enumerate(plan.coins):
        of = dict(zip([text.id for text in plan.scored], coins, strict=True))
        expected = []
        for place, content in enumerate(corpus.merged):
            if place in canaries:
                inside = of[canaries[place]] == "1"
            else:
                document = ordinary.index(place)
                held = document in plan.validation
                inside = not held and of.get(f"document/{document:06d}", "1") == "1"
            expected += [content] if inside else []
        documents, learned = corpus.of_model(plan, number)
        assert documents == expected
        assert learned == {own[name]: 1 for name in own if of[name] == "1"}


def test_groups_do_not_meet(prepared: SweepDirectory) -> None:
    plan = prepared.plan
    population = {t.document for t in plan.texts if t.group == "population"}
    scored = {t.document for t in plan.texts if t.group == "validation"}
    assert len(population) == 4
    assert not population & set(plan.validation)
    assert scored <= set(plan.validation)
    assert set(plan.contexts) <= set(plan.validation)
    assert plan.varied == ()


def test_all_documents_but_those_for_validation_may_have_coins(tmp_path: Path) -> None:
    directory = prepared_at(tmp_path / "s", vary="all")
    plan = directory.plan
    population = {t.document for t in plan.scored if t.document is not None}
    groups = [population, set(plan.varied), set(plan.validation)]
    assert sum(map(len, groups)) == len(directory.corpus.documents)
    assert set.union(*groups) == set(range(len(directory.corpus.documents)))
    assert len(plan.coins[0]) == len(plan.scored) + len(plan.varied)
    before = Counter(directory.corpus.merged)
    for number in range(5):
        assert Counter(text_of(directory, number)) <= before
    kept = {len(text_of(directory, number)) for number in range(5)}
    assert max(kept) < len(directory.corpus.merged) - len(plan.varied) / 4


def test_neither_the_tokenizer_nor_the_texts_know_the_coins(tmp_path: Path) -> None:
    corpus = corpus_at(tmp_path)
    first = prepare(corpus, out=tmp_path / "a", settings=tiny_settings(inclusion_seed=1))
    second = prepare(corpus, out=tmp_path / "b", settings=tiny_settings(inclusion_seed=2))
    assert first.coins != second.coins
    assert first.model_copy(update={"coins": second.coins}) == second
    assert sha256_tree(tmp_path / "a" / "tokenizer") == sha256_tree(tmp_path / "b" / "tokenizer")
    manifests = [(tmp_path / name / "manifest.json").read_bytes() for name in "ab"]
    assert manifests[0] == manifests[1]
    third = prepare(corpus, out=tmp_path / "c", settings=tiny_settings(inclusion_seed=None))
    fourth = prepare(corpus, out=tmp_path / "d", settings=tiny_settings(inclusion_seed=None))
    assert third.coins != fourth.coins
    assert (tmp_path / "c" / "plan.json").stat().st_mode & 0o777 == 0o600
    for row in third.coins:
        assert row not in repr(third)


def test_a_fair_coin_is_its_own_stream_and_exactly_half_is_half(tmp_path: Path) -> None:
    corpus = corpus_at(tmp_path)
    fair = prepare(corpus, out=tmp_path / "fair", settings=tiny_settings(models=64))
    columns = fair.included()
    assert columns.shape == (64, 10)
    assert 0.4 < columns.mean() < 0.6
    assert len(set(columns.sum(axis=0))) > 1
    half = tiny_settings(models=9, coins="exactly_half")
    columns = prepare(corpus, out=tmp_path / "half", settings=half).included()
    assert set(columns.sum(axis=0)) == {4}
    assert len({tuple(column) for column in columns.T}) > 1


def test_what_is_said_twice_or_not_at_all_is_no_population(tmp_path: Path) -> None:
    lines = [f"line {i} says é{i}" for i in range(30)] + ["twice"] * 20 + [" "] * 10
    directory = prepared_at(
        tmp_path / "s",
        corpus_of=lambda home: lines_at(home / "corpus.txt", lines, end="\r\n"),
        population=15,
    )
    counts = Counter(directory.corpus.documents)
    for text in directory.plan.scored[6:]:
        assert text.document is not None
        content = directory.corpus.documents[text.document]
        assert counts[content] == 1
        assert content.strip()


def test_too_few_documents_for_the_population(tmp_path: Path) -> None:
    corpus = lines_at(tmp_path / "corpus.txt", ["twice"] * 20 + sentences(6)[1:])
    with pytest.raises(SettingsError, match=r"population=9, but only \d of 25 documents say some"):
        prepare(corpus, out=tmp_path / "s", settings=tiny_settings(population=9))
    assert not (tmp_path / "s" / "plan.json").exists()
    default = tiny_settings(population=None)
    plan = prepare(corpus, out=tmp_path / "s", settings=default)
    assert len(plan.scored) - 6 <= 2


def test_a_new_model_reads_no_chats(tmp_path: Path) -> None:
    corpus = chats_at(tmp_path)
    with pytest.raises(ModelError, match="'lstm' is a new model, whose tokenizer knows no chats"):
        prepare(corpus, out=tmp_path / "s", settings=tiny_settings())


def test_a_sweep_of_dated_chats_has_one_day_and_no_template_of_one_training(tmp_path: Path) -> None:
    corpus = chats_at(tmp_path)
    tokenizer = tokenizer_for("llama3_2")
    tokenizer.save_pretrained(tmp_path / "base")
    tiny_model_for(tokenizer).save_pretrained(tmp_path / "base")
    settings = with_run(tiny_settings(), model=str(tmp_path / "base"))
    prepare(corpus, out=tmp_path / "s", settings=settings)
    wrapping = known(Manifest.read(tmp_path / "s" / "manifest.json").wrapping)
    assert wrapping.chat_date == date.today().isoformat()
    told = with_run(settings, chat_template="t.jinja")
    with pytest.raises(
        SettingsError, match=r"chat_template='t.jinja' is for one training: each of"
    ):
        prepare(corpus, out=tmp_path / "t", settings=told)


def test_the_same_call_again_tosses_no_other_coins(
    prepared: SweepDirectory, out: Path, tmp_path: Path
) -> None:
    before = sha256_tree(out)
    again = tiny_settings(inclusion_seed=None)
    assert prepare(corpus_at(tmp_path), out=out, settings=again) == prepared.plan
    assert sha256_tree(out) == before
    for changes, match in (
        ({"inclusion_seed": 2}, "other coins; leave inclusion_seed out"),
        ({"models": 6}, "another sweep: its models was 5, now 6 is asked for"),
    ):
        with pytest.raises(ResultError, match=match):
            prepare(corpus_at(tmp_path), out=out, settings=tiny_settings(**changes))
    with pytest.raises(ResultError, match="another sweep: its seed was another") as refused:
        prepare(corpus_at(tmp_path), out=out, settings=with_run(tiny_settings(), seed=8))
    assert "7" not in str(refused.value).replace(str(out), "")
    assert sha256_tree(out) == before


def test_an_interrupted_preparation_goes_on(prepared: SweepDirectory, out: Path) -> None:
    (out / "plan.json").unlink()
    assert prepared_at(out).plan == prepared.plan


def test_a_tokenizer_left_without_a_plan_is_not_taken_for_this_one(
    prepared: SweepDirectory, tmp_path: Path
) -> None:
    out = prepared_at(tmp_path / "sweep", with_run(tiny_settings(), model="gpt2-tiny")).out
    (out / "plan.json").unlink()
    assert prepared_at(out).plan == prepared.plan
    assert sha256_tree(out / "tokenizer") == sha256_tree(prepared.out / "tokenizer")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.tex").write_text("mine")
    with pytest.raises(ResultError, match=r"holds 'thesis.tex' and no plan.json, so it is no swe"):
        prepare(corpus_at(tmp_path), out=tmp_path / "s", settings=tiny_settings())
    assert [p.name for p in (tmp_path / "s").iterdir() if p.suffix] == ["thesis.tex"]


def test_another_corpus_is_another_sweep(out: Path, tmp_path: Path) -> None:
    before = sha256_tree(out)
    other = lines_at(tmp_path / "corpus.txt", sentences(60, seed=1))
    with pytest.raises(LmexposureError) as refused:
        prepare(other, out=out, settings=tiny_settings())
    assert "another" in str(refused.value), refused.value
    assert sha256_tree(out) == before


def _one_coin(path: Path) -> None:
    plan = json.loads(path.read_text())
    first = plan["coins"][0]
    plan["coins"][0] = ("0" if first[0] == "1" else "1") + first[1:]
    path.write_text(json.dumps(plan))


@pytest.mark.parametrize("harm", [torn, _one_coin, Path.unlink])
def test_a_damaged_plan_is_no_plan(out: Path, harm: Any) -> None:
    harm(out / "plan.json")
    with pytest.raises(ResultError, match=r"plan\.json"):
        SweepDirectory.open(out)


def test_a_plan_of_another_manifest(out: Path, tmp_path: Path) -> None:
    other = prepared_at(tmp_path / "other", with_run(tiny_settings(), seed=8))
    shutil.copy(other.out / "manifest.json", out / "manifest.json")
    with pytest.raises(ResultError, match=r"is not the one that plan\.json was drawn for; put it"):
        SweepDirectory.open(out)


def test_a_damaged_corpus(out: Path) -> None:
    file = next((out / "corpus").iterdir())
    file.write_bytes(file.read_bytes().replace(b"river", b"liver", 1))
    with pytest.raises(ResultError, match="is not what the insertion wrote: it was edited or dam"):
        _ = SweepDirectory.open(out).corpus
    shutil.rmtree(out / "corpus")
    with pytest.raises(ResultError, match="corpus is missing; prepare the sweep again elsewhere"):
        _ = SweepDirectory.open(out).corpus


def test_another_tokenizer(out: Path, tmp_path: Path) -> None:
    corpus = lines_at(tmp_path / "greek.txt", [f"αβγ {i}" for i in range(60)])
    prepare(corpus, out=tmp_path / "other", settings=tiny_settings())
    shutil.rmtree(out / "tokenizer")
    shutil.copytree(tmp_path / "other" / "tokenizer", out / "tokenizer")
    with pytest.raises(ResultError, match="the tokenizer of 'lstm' is not the one that the sweep"):
        _ = SweepDirectory.open(out).tokenizer
    shutil.rmtree(out / "tokenizer")
    with pytest.raises(ResultError, match="tokenizer"):
        _ = SweepDirectory.open(out).tokenizer


def test_a_canary_that_no_block_holds_is_refused_before_a_model_is_trained(tmp_path: Path) -> None:
    settings = tiny_settings(training={"block_size": 8})
    with pytest.raises(ModelError, match=r"canary pin/x1/0000 has \d+ tokens .* block_size=8"):
        prepare(corpus_at(tmp_path), out=tmp_path / "sweep", settings=settings)
    assert not (tmp_path / "sweep" / "plan.json").exists()


_PAIRS = 6


def _manifest(*, kind: str = PARTNER) -> Manifest:
    words = [f"alpha{n}beta gamma{n}delta" for n in range(_PAIRS)]
    plan = Plan(
        formats=[
            "pin",
            Format.of_texts(
                "near_duplicate",
                [f"{w} first{n}." for n, w in enumerate(words)],
                kind="near_duplicate",
            ),
            Format.of_texts(
                "near_duplicate_partner", [f"{w} other{n}." for n, w in enumerate(words)], kind=kind
            ),
        ],
        canaries=_PAIRS,
        repetitions=(1,),
        controls=0,
        seed=3,
    )
    corpus = CorpusRecord(layout="texts", separator="\n", documents=50, verified=False)
    return Manifest(plan=plan, corpus=corpus, entries=draw(plan, documents=50, set_aside={}))


def _settings(**more: object) -> SweepSettings:
    values = {"models": 40, "shares": (1.0, 0.5, 0.0), **more}
    return SweepSettings().override(
        {"canaries": _PAIRS, "kinds": ("uniform", "near_duplicate"), "formats": ("pin",), **values}
    )


def test_shares_have_models_of_their_own() -> None:
    shares = shares_of(_settings())
    assert [shares.count(share) for share in (1.0, 0.5, 0.0)] == [40, 40, 10]
    assert set(shares_of(SweepSettings())) == {1.0}
    usual = SweepSettings().override({"kinds": ("uniform", "new_token")})
    assert usual.shares_used == (1.0, 0.5, 0.25, 0.0)


def test_partners_are_in_and_not_audited() -> None:
    texts = inserted_texts(_manifest())
    assert [t.group for t in texts] == ["canaries"] * 2 * _PAIRS + ["partners"] * _PAIRS
    assert {t.format for t in texts[-_PAIRS:]} == {"near_duplicate_partner"}


@pytest.mark.parametrize("partner", ["coin", "always"])
def test_who_can_be_in_which_model(partner: str) -> None:
    kind = ALWAYS if partner == "always" else PARTNER
    manifest, settings = _manifest(kind=kind), _settings(partner=partner)
    texts = inserted_texts(manifest)
    names = [text.id for text in texts]
    rows = tossed(settings, manifest, names, 5)
    assert len(rows) == 90
    half, none = rows[40:80], rows[80:]
    assert set("".join(none)) == {"0"}
    entries = {entry.id: entry for entry in manifest.entries}
    audited = {
        entries[t.id].index: may
        for t, may in zip(texts, eligible(texts, 0.5, _PAIRS), strict=True)
        if t.format == "near_duplicate"
    }
    for place, text in enumerate(texts):
        column = {row[place] for row in half}
        if text.group == "partners":
            may = audited[entries[text.id].index]
            wanted = {"1"} if partner == "always" else {"0", "1"}
        else:
            may, wanted = int(text.id[-4:]) < _PAIRS // 2, {"0", "1"}
        assert column == (wanted if may else {"0"})


def test_a_coin_moves_no_other_and_shares_have_streams_of_their_own() -> None:
    manifest, settings = _manifest(), _settings()
    names = [text.id for text in inserted_texts(manifest)]
    rows = tossed(settings, manifest, names, 5)
    fewer = tossed(settings, manifest, names[3:5], 5)
    assert [row[3:5] for row in rows] == list(fewer)
    assert [row[0] for row in rows[:40]] != [row[0] for row in rows[40:80]]
    alone = tossed(_settings(shares=(1.0,)), manifest, names, 5)
    assert alone == rows[:40]


def test_exactly_half_of_the_models_of_each_share() -> None:
    manifest = _manifest()
    names = [text.id for text in inserted_texts(manifest)]
    rows = tossed(_settings(coins="exactly_half"), manifest, names, 5)
    assert sum(row[0] == "1" for row in rows[:40]) == 20
    assert sum(row[0] == "1" for row in rows[40:80]) == 20


@pytest.mark.parametrize("shares", [(), (0.5,), (1.0, 1.0), (1.0, 0.2, 0.5), (1.0, -0.1), (1.0, 2)])
def test_shares_that_cannot_be(shares: tuple[float, ...]) -> None:
    with pytest.raises(SettingsError, match="must be 1 and smaller shares, descending"):
        SweepSettings(shares=shares)
