"""A comparison from the corpus to the table, by the tiniest models."""

import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forks import die_behind, start
from numpy.typing import NDArray
from scipy import stats
from tiny_defences import CANARIES, MODELS, made_row, text_at, tiny_comparison

import lmexposure.defences.comparison
import lmexposure.defences.driver
from lmexposure._forecast import Phase
from lmexposure.audit import training_settings
from lmexposure.core import Work
from lmexposure.defences import compare_defences, prepare_comparison
from lmexposure.defences.attacks import (
    adapted_attacks,
    attack_parts,
    of_kept_tokens,
    shows_less_p,
    strongest,
)
from lmexposure.defences.comparison import Comparison, _slice, told_apart
from lmexposure.defences.needs import paid_level
from lmexposure.errors import CorpusError, ResultError, SettingsError
from lmexposure.models import left_out
from lmexposure.statistics import binomial_interval, rate_parts, tpr_at_fpr
from lmexposure.studies import DefenceAttack, DefenceRow, Defences
from lmexposure.studies.defences import alike_to
from lmexposure.sweeps import Cost, Group, SweepDirectory, part_rates, read_matrices

_METHODS = ("goldfish",)
COST = Cost(seconds=1.0, at_most=True, with_scores=1.25)


class Watching:
    """A watcher of a comparison, that hears what is said and announced."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.seen: list[str] = []
        self.phases: list[str] = []
        self.expected: set[str] = set()

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        self.seen += [what] * (what not in self.seen)

    def plan(self, title: str, phases: Sequence[Phase], *, keeps: bool) -> None:
        self.said.append(title)
        self.phases = [phase.what for phase in phases]

    def expect(self, what: str, seconds: float) -> None:
        self.expected.add(what)

    def end_asked(self) -> bool:
        return False

    def say(self, line: str) -> None:
        self.said.append(line)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Watching]:
    home = tmp_path_factory.mktemp("defences")
    watching = Watching()
    compare_defences(
        text_at(home),
        out=home / "out",
        settings=tiny_comparison(*_METHODS),
        workers=1,
        progress=watching,
    )
    return home, watching


@pytest.fixture
def home(compared: tuple[Path, Watching]) -> Path:
    return compared[0]


def _record(home: Path) -> Defences:
    path = home / "out" / Defences.NAME
    return Defences.parse(path.read_bytes(), path)


def test_the_table_has_a_row_a_method_and_says_how_it_came_about(
    compared: tuple[Path, Watching],
) -> None:
    home, watching = compared
    record = _record(home)
    names = [row.name for row in record.rows]
    assert names[0] == "none"
    assert set(names) | set(record.failed) == {"none", *_METHODS}
    undefended = record.rows[0]
    assert (undefended.ratio, undefended.ranked, undefended.target) == (1.0, True, 1.0)
    for row in record.rows:
        assert row.models == MODELS
        assert row.ratio == pytest.approx(row.bits / undefended.bits)
        assert row.ranked == (abs(row.ratio / row.target - 1) <= record.settings.tolerance)
        assert row.strongest == strongest(row.attacks)
        assert row.epsilon is None
        assert len(row.search.tries) <= 3
    announced, *said = watching.said
    assert announced.startswith("2 methods of 6 models each, after a search of at most 3 trainings")
    assert said[0].startswith("none:")
    assert len(said) == 2
    seen = [what for what in watching.seen if not what.endswith("collecting")]
    assert seen == watching.phases
    assert watching.expected <= set(seen)


def test_the_search_has_other_secrets_and_coins_than_the_table(home: Path) -> None:
    table = SweepDirectory.open(home / "out" / "methods" / "none")
    searched = SweepDirectory.open(home / "out" / "search" / "sweep")
    texts = [{entry.text for entry in one.manifest.entries} for one in (table, searched)]
    assert not texts[0] & texts[1]
    assert table.plan.coins[0] != searched.plan.coins[0]


def test_all_methods_have_the_same_canaries_coins_and_seeds(home: Path) -> None:
    methods = [SweepDirectory.open(path) for path in (home / "out" / "methods").iterdir()]
    first = methods[0]
    for other in methods[1:]:
        assert other.plan.coins == first.plan.coins
        assert other.plan.validation == first.plan.validation
        assert other.seed(3) == first.seed(3)
        assert [e.text for e in other.manifest.entries] == [e.text for e in first.manifest.entries]


def test_the_choice_among_attacks_is_paid_for(home: Path) -> None:
    directory = SweepDirectory.open(home / "out" / "methods" / "none")
    matrices = read_matrices(directory.out, directory.plan)
    found = adapted_attacks(directory, matrices, fpr=0.01, level=0.95)
    assert {attack.among for attack in found} == {3}
    assert paid_level(0.95, 1, goldfish=False, methods=4) == pytest.approx(1 - 0.05 / 12)
    group = Group.of("canaries", directory.plan.scored, matrices)
    parts = {"all": np.arange(CANARIES)}
    naive = part_rates(group, "secret_tokens", "lira", parts=parts, level=1 - 0.05 / 3)["all"]
    rate = next(rate for rate in naive.rates if rate.fpr == 0.01)
    own = next(attack for attack in found if attack.score == "secret_tokens")
    assert (own.tpr, own.low, own.high) == (rate.value, rate.low, rate.high)
    values = [-1.0 if attack.tpr is None else attack.tpr for attack in found]
    assert values == sorted(values, reverse=True)


def test_each_ranked_method_is_compared_with_the_lowest_over_the_models_of_both(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeps = {name: home / "out" / "methods" / name for name in ("none", *_METHODS)}
    ranked = [r.model_copy(update={"ranked": True, "why": None}) for r in _record(home).rows]
    apart = ranked[1].model_copy(update={"name": "selena", "ranked": False, "why": "less useful"})
    directories = [SweepDirectory.open(path) for path in sweeps.values()]
    matrices = [read_matrices(directory.out, directory.plan) for directory in directories]
    kept = np.arange(MODELS) != 2
    for models in (np.ones(MODELS, dtype=bool), kept):
        parts = [
            attack_parts(directory, its.of_models(models), fpr=0.01)
            for directory, its in zip(directories, matrices, strict=True)
        ]
        assert [len(its) for its in parts] == [3, 4]
        for attack in ranked[0].attacks if models.all() else ():
            assert parts[0][attack.kind, attack.score].value == attack.tpr
        found = told_apart([*ranked, apart], sweeps, fpr=0.01)
        expected = min(1.0, 2 * shows_less_p(parts[1], parts[0]))
        assert [row.above_p for row in found] == [pytest.approx(expected), None, None]

        def without_one(path: Path, plan: Any) -> Any:
            found = read_matrices(path, plan)
            return found.of_models(kept) if path.name == "none" else found

        monkeypatch.setattr(lmexposure.defences.comparison, "read_matrices", without_one)
    assert [row.above_p for row in told_apart(ranked[:1], sweeps, fpr=0.01)] == [None]


def test_goldfish_is_read_where_tokens_carried_loss(home: Path) -> None:
    directory = SweepDirectory.open(home / "out" / "methods" / "goldfish")
    matrices = read_matrices(directory.out, directory.plan)
    kept = of_kept_tokens(directory, matrices)
    k = training_settings(directory.settings).goldfish_k
    fewer = 0
    for place, text in enumerate(directory.rows.texts[:CANARIES]):
        ids = text.encoded.ids
        for at, own in enumerate(matrices.secret[place], start=text.encoded.scored_from):
            window = np.array([ids[max(0, at - 12) : at]], np.int32)
            labels = np.array([ids[max(0, at - 12) + 1 : at + 1]])
            dropped = at > 12 and bool(left_out(window, labels, k=k, width=13)[0, -1])
            counted = kept.secret[place][at - text.encoded.scored_from]
            assert counted == (own and not dropped)
            fewer += own and dropped
        bits = matrices.token_bits[place][:, kept.secret[place]].sum(axis=1)
        assert kept.scores["secret_tokens"][:, place] == pytest.approx(-bits)
    assert fewer > 0
    found = adapted_attacks(directory, matrices, fpr=0.01, level=0.95)
    assert {attack.score for attack in found} >= {"kept_tokens", "secret_tokens"}
    assert {attack.among for attack in found} == {4}


@pytest.mark.slow
def test_the_same_call_trains_nothing_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _record(home)
    monkeypatch.setattr(lmexposure.defences.driver, "timed_training", lambda *_, **__: COST)
    monkeypatch.setattr("lmexposure.models.trainer.Trainer.run", _never)
    again = compare_defences(
        home / "corpus.txt", out=home / "out", settings=tiny_comparison(*_METHODS), workers=1
    )
    assert [row.attacks for row in again.rows] == [row.attacks for row in before.rows]
    assert [row.search for row in again.rows] == [row.search for row in before.rows]


def killed(behind: int, corpus: Path, out: Path) -> None:
    """A comparison, killed behind one of its writes."""
    die_behind(behind)
    compare_defences(corpus, out=out, settings=tiny_comparison(*_METHODS), workers=1)


@pytest.mark.slow
def test_killed_again_and_again_it_goes_on_to_the_same(home: Path, tmp_path: Path) -> None:
    corpus, out, said = text_at(tmp_path), tmp_path / "out", tmp_path / "said.txt"
    for behind in (2, 9, 30):
        begun = start(killed, behind, corpus, out, said=said, environment={})
        begun.join()
        assert begun.exitcode == -signal.SIGKILL, said.read_text()
    ended = compare_defences(corpus, out=out, settings=tiny_comparison(*_METHODS), workers=1)
    found, whole = (
        [(row.name, row.bits, row.attacks, row.training) for row in record.rows]
        for record in (ended, _record(home))
    )
    assert found == whole
    there, wanted = ({path.name for path in where.iterdir()} for where in (out, home / "out"))
    assert there == wanted


def _never(*_: object, **__: object) -> None:
    raise AssertionError("nothing is left to train")


@pytest.mark.parametrize("named", ["target", "tries", "corpus"])
def test_another_comparison_is_not_gone_on_with(home: Path, tmp_path: Path, named: str) -> None:
    corpus = tmp_path / "corpus.txt" if named == "corpus" else home / "corpus.txt"
    if named == "corpus":
        corpus.write_text("another line\n" * 60)
    changes: Any = {"target": {"target": 1.2}, "tries": {"tries": 4}}.get(named, {})
    with pytest.raises(ResultError, match=f"holds another comparison of defences: its {named} was"):
        prepare_comparison(corpus, out=home / "out", settings=tiny_comparison(*_METHODS, **changes))


@pytest.mark.slow
def test_a_method_whose_models_all_diverge_is_left_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "out" / Defences.NAME
    before = path.read_bytes()
    real = lmexposure.defences.driver._trained

    def diverges(comparison: Any, defence: Any, *rest: Any) -> Any:
        if defence.name == "none":
            return real(comparison, defence, *rest)
        raise ResultError("all 6 models diverged")

    driver = lmexposure.defences.driver
    monkeypatch.setattr(driver, "timed_training", lambda *_, **__: COST)
    monkeypatch.setattr(driver, "_trained", diverges)
    settings = tiny_comparison(*_METHODS)
    with pytest.raises(ResultError, match="diverged"):  # its models are there: another failure
        compare_defences(home / "corpus.txt", out=home / "out", settings=settings, workers=1)
    monkeypatch.setattr(SweepDirectory, "failed", lambda *_: "why")
    record = compare_defences(home / "corpus.txt", out=home / "out", settings=settings, workers=1)
    assert record.failed == {"goldfish": "all 6 models diverged"}
    assert [row.name for row in record.rows] == ["none"]
    path.write_bytes(before)


@pytest.mark.parametrize("name", [".work/asked.json", "seeds.json"])
def test_what_is_damaged_is_not_begun_anew(home: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    shutil.copytree(home / "out", out)
    (out / name).write_bytes((out / name).read_bytes()[:-1] + b"x")
    with pytest.raises(ResultError, match=f"{name} is damaged"):
        prepare_comparison(home / "corpus.txt", out=out, settings=tiny_comparison(*_METHODS))


def test_a_warning_of_all_methods_is_said_once(home: Path) -> None:
    warnings = _record(home).warnings
    assert len({line.partition(": ")[2] for line in warnings}) == len(warnings)
    assert any(line.startswith("none, goldfish: ") for line in warnings)


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ResultError, match=r"notes\.txt"):
        prepare_comparison(text_at(tmp_path), out=tmp_path / "out", settings=tiny_comparison())


def test_too_few_models_for_the_rate_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    settings = tiny_comparison("hamp", fpr=0.001)
    with pytest.raises(SettingsError, match=r"false-positive rate of 0\.001"):
        prepare_comparison(text_at(tmp_path), out=tmp_path / "out", settings=settings)
    assert not (tmp_path / "out").exists()


def test_what_a_failed_preparation_left_is_no_other_comparison(tmp_path: Path) -> None:
    corpus, out = text_at(tmp_path), tmp_path / "out"
    short = tmp_path / "short.txt"
    short.write_text("one line\n")
    with pytest.raises(CorpusError):
        prepare_comparison(short, out=out, settings=tiny_comparison())
    assert prepare_comparison(corpus, out=out, settings=tiny_comparison()).seeds


@pytest.mark.parametrize(
    ("name", "content", "kept"),
    [
        ("a.txt", "word " * 199 + "\r\nlast one\r\nnot read\r\n", 2),
        ("a.jsonl", '{"text": "%s"}\n' % ("ü" * 600) * 3, 2),
        ("b.txt", "no end" + "x" * 2_000, 1),
    ],
)
def test_a_slice_is_of_whole_documents(tmp_path: Path, name: str, content: str, kept: int) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    settings = tiny_comparison(characters=1_000)
    part = _slice([path], tmp_path / "out", settings)
    lines = part.read_bytes().splitlines(keepends=True)
    assert b"".join(lines) == (content.encode() + b"\n" * (name == "b.txt"))[: len(b"".join(lines))]
    assert len(lines) == kept
    assert part.stat().st_mode & 0o077 == 0


def test_no_slice_of_columns_can_be_taken(tmp_path: Path) -> None:
    path = tmp_path / "corpus.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(CorpusError, match="entire=True"):
        prepare_comparison(path, out=tmp_path / "out", settings=tiny_comparison())


def test_the_run_with_repeated_canaries_has_uniform_fills_alone() -> None:
    kinds = {"kinds": ("uniform", "near_duplicate"), "texts": "a.txt", "partner": "always"}
    comparison = Comparison(
        work=Work(kind=Defences, out=Path("out"), asked={}),
        settings=tiny_comparison(*_METHODS, repeated=4).override(kinds),
        defences=(),
        files=(),
        seeds={"secrets": 1, "coins": 2},
    )
    run = comparison.repeated_settings({})
    assert (run.kinds, run.texts, run.partner) == (("uniform",), None, "coin")


METHODS, ATTACKS, CELLS = 4, 3, 60
LEVEL = paid_level(0.95, 1, goldfish=False, methods=METHODS)
ENDS = binomial_interval(np.arange(CELLS + 1), CELLS, level=LEVEL)


def _row(name: str, hits: Sequence[int]) -> DefenceRow:
    attacks = [
        DefenceAttack(
            kind="pin/x1",
            score="secret_tokens",
            attack="lira",
            among=ATTACKS,
            tpr=k / CELLS,
            low=float(ENDS.low[k]),
            high=float(ENDS.high[k]),
        )
        for k in sorted(hits, reverse=True)
    ]
    return made_row(name, strongest=strongest(attacks), attacks=tuple(attacks))


def _tpr(row: Any) -> float:
    return float(row.strongest.tpr)


def _named(rows: Sequence[DefenceRow]) -> int | None:
    none, *others = rows
    others = sorted(others, key=_tpr)
    return (
        int(others[0].name) if len(alike_to(others[0], [*others, none], level=0.95)) == 1 else None
    )


def _winner(hits: NDArray[np.int64]) -> int | None:
    """Of hits of each method (none first) under each attack, who is named."""
    return _named([_row(str(number), own) for number, own in enumerate(hits.tolist())])


def _hits(rates: NDArray[np.float64], times: int, seed: int) -> NDArray[np.int64]:
    """Cells that are found, alike in all methods as they share coins: (times, methods, attacks)."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(times, 1, 1, CELLS))
    own = rng.normal(size=(times, *rates.shape, CELLS))
    found = stats.norm.cdf(0.6 * shared + 0.8 * own) < rates[..., None]
    return np.asarray(found.sum(axis=-1))


@pytest.mark.parametrize(
    ("rates", "seed"),
    [
        (np.full((METHODS, ATTACKS), 0.3), 1),
        (np.repeat([[0.9], [0.2], [0.2], [0.9]], 3, axis=1), 2),
    ],
)
def test_a_winner_among_equals_is_named_at_most_as_often_as_the_level_allows(
    rates: NDArray[np.float64], seed: int
) -> None:
    false = sum(_winner(hits) is not None for hits in _hits(rates, 2_000, seed=seed))
    assert stats.binomtest(false, 2_000, 0.05, alternative="greater").pvalue >= 0.01


def test_who_shows_far_less_is_named() -> None:
    rates = np.array([[0.9] * 3, [0.05] * 3, [0.7] * 3, [0.6] * 3])
    named = [_winner(hits) for hits in _hits(rates, 200, seed=3)]
    assert set(named) <= {1, None}
    assert named.count(1) >= 190


def test_the_interval_is_of_the_largest_rate_whichever_attack_has_it() -> None:
    first, second = _row("first", [30]).attacks[0], _row("second", [29]).attacks[0]
    wide = second.model_copy(update={"low": 0.0, "high": 0.99})
    found: Any = strongest([first, wide])
    assert (found.tpr, found.low, found.high) == (first.tpr, first.low, 0.99)
    assert strongest([first.model_copy(update={"tpr": None})]) is None
    assert paid_level(0.95, 2, goldfish=True, methods=5) == pytest.approx(1 - 0.05 / 40)


def _paired(seed: int, effects: Sequence[float]) -> tuple[list[DefenceRow], list[DefenceRow]]:
    """Rows of methods (none first) over the same coins and canaries, without p and with it."""
    rng = np.random.default_rng([seed, 9])
    coins = rng.random((16, 80)) < 0.5
    hard, shared = np.exp(0.5 * rng.normal(size=80)), rng.normal(size=coins.shape)
    rows, parts = [], []
    for number, effect in enumerate(effects):
        of_method = shared + rng.normal(size=coins.shape) + 0.5 * rng.normal(size=(16, 1))
        attacks, own = [], dict[Any, Any]()
        for name in ("secret_tokens", "log_perplexity", "label_only"):
            x = effect * hard * coins + of_method / 2 + rng.normal(size=coins.shape) / 2
            own["pin/x1", name] = rate_parts(x, coins, texts=range(80), fpr=0.01)
            rate = tpr_at_fpr(x[coins], x[~coins], fpr=0.01, level=1 - 0.05 / 9)
            values = {"tpr": rate.value, "low": rate.low, "high": rate.high}
            attacks.append(made_row(name).attacks[0].model_copy(update={"score": name, **values}))
        attacks.sort(key=lambda attack: attack.tpr or 0.0, reverse=True)
        row = made_row(str(number), strongest=strongest(attacks), attacks=tuple(attacks))
        rows.append(row)
        parts.append(own)
    best = min((1, 2), key=lambda m: _tpr(rows[m]))
    told = [
        row.model_copy(update={"above_p": min(1.0, 2 * 2 * shows_less_p(parts[best], own))})
        if row is not rows[best]
        else row
        for row, own in zip(rows, parts, strict=True)
    ]
    return rows, told


@pytest.mark.parametrize("effects", [(2.0, 2.0, 2.0), (4.0, 1.0, 1.0), (0.0, 0.0, 0.0)])
def test_models_compared_in_pairs_name_no_winner_among_equals(effects: Sequence[float]) -> None:
    false = sum(_named(_paired(seed, effects)[1]) is not None for seed in range(60))
    assert stats.binomtest(false, 60, 0.05, alternative="greater").pvalue >= 0.01


def test_models_compared_in_pairs_name_who_shows_less_where_intervals_do_not() -> None:
    rows = [_paired(seed, (3.0, 1.4, 2.4)) for seed in range(40)]
    by_intervals = [_named(own) for own, _ in rows]
    in_pairs = [_named(own) for _, own in rows]
    assert set(in_pairs) <= {1, None}
    assert all(own == found for own, found in zip(by_intervals, in_pairs, strict=True) if own)
    assert (in_pairs.count(1) >= 32, by_intervals.count(1) <= 16) == (True, True)


def test_two_methods_are_told_apart_by_their_p_or_by_their_intervals() -> None:
    best, near, far = (made_row(str(rate), rate) for rate in (0.3, 0.4, 0.9))

    def alike(row: DefenceRow, p: float | None, level: float = 0.95) -> bool:
        return row.name in {
            own.name
            for own in alike_to(best, [best, row.model_copy(update={"above_p": p})], level=level)
        }

    assert alike(near, None)
    assert alike(near, 0.06)
    assert not alike(near, 0.04)
    assert alike(near, 0.04, level=0.99)
    assert not alike(far, 1.0)
