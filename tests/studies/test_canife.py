"""From files to canife.json, its page and its verdict; and what is refused."""

import csv
import io
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Call, call
from corpora import sentences
from forks import start

import lmexposure as lx
from lmexposure.cli.entry import _run
from lmexposure.core import as_markdown, write_report
from lmexposure.errors import CorpusError, ResultError, SettingsError
from lmexposure.federated import canife_audit
from lmexposure.models import load_model
from lmexposure.statistics import sampled_epsilon
from lmexposure.studies import (
    Canife,
    CanifeRound,
    CanifeSettings,
    CanifeStudySettings,
    FederatedSettings,
)

__all__ = ["call"]  # a fixture of the tests of commands

SETTINGS = FederatedSettings(rounds=2, client_rate=0.5, noise_multiplier=0.5)
ATTACKS = CanifeSettings(design_clients=4, length=10, iterations=5, mock_rounds=40)
TINY: dict[str, Any] = {"units": 8, "layers": 1}
GIVEN: dict[str, Any] = {"user_field": "user", "attacks": ATTACKS, **TINY}
SET = [word for name in ("length=8", "units=8", "layers=1") for word in ("--set", name)]
WORDS = ["--user-field", "user", "--mock-rounds", "20", *SET, "--set", "design_clients=3"]


def canife(
    corpus: Any,
    out: Path,
    settings: FederatedSettings | None = None,
    attacks: CanifeSettings | None = None,
    progress: Any = None,
    **given: Any,
) -> Canife:
    """An audit of these settings of the training and of its attacks."""
    training, attacked = settings or FederatedSettings(), attacks or CanifeSettings()
    chosen = CanifeStudySettings(training=training, attacks=attacked, **given)
    return canife_audit(corpus, out=out, settings=chosen, progress=progress)


@pytest.fixture(scope="module")
def posts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("posts") / "posts.jsonl"
    texts = enumerate(sentences(60))
    rows: list[dict[str, Any]] = [{"user": f"u{n % 12}", "text": text} for n, text in texts]
    rows += [{"user": None, "text": "of no user"}, {"user": "u1", "text": 7}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def audited(posts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("audited") / "out"
    canife(posts, out=out, settings=SETTINGS, **GIVEN)
    return out


def test_users_are_clients(audited: Path) -> None:
    record: Any = Canife.read(audited)
    assert (record.clients, record.aside) == (12 - 8, 8)
    assert [row.round for row in record.attacked] == [1, 2]
    assert len(record.attacked[0].scores) == 40
    assert record.largest <= record.claimed
    loaded = load_model(audited / "model")
    assert sum(weight.numel() for weight in loaded.model.parameters()) == record.weights


def test_the_same_again_gives_the_same_and_another_is_refused(
    posts: Path, audited: Path, tmp_path: Path
) -> None:
    again = canife(posts, out=tmp_path / "again", settings=SETTINGS, **GIVEN)
    first = Canife.read(audited)
    assert again.attacked == first.attacked
    assert again.inputs_sha256 == first.inputs_sha256
    with pytest.raises(ResultError, match=r"its clip was 1.0, now 2.0 is asked for"):
        canife(posts, out=audited, settings=replace(SETTINGS, clip=2.0), **GIVEN)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "result.json").write_text("{}")
    with pytest.raises(ResultError, match=r"holds a run \(result.json\), whose files"):
        canife(posts, out=tmp_path / "run", settings=SETTINGS, **GIVEN)


def same_training(home: Path) -> None:
    """What is in "o" is what is in "whole", weights too."""
    ended, whole = (Canife.read(home / name) for name in ("o", "whole"))
    assert ended.model_copy(update={"measured": whole.measured}) == whole
    weights = [(home / d / "model" / "model.safetensors").read_bytes() for d in ("o", "whole")]
    assert weights[0] == weights[1]


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [True, False])
def test_ended_anywhere_it_goes_on_to_the_same(posts: Path, tmp_path: Path, frozen: bool) -> None:
    settings = replace(SETTINGS, rounds=5)
    attacks = replace(ATTACKS, every=2, mock_rounds=8, iterations=2, frozen=frozen)
    given = GIVEN | {"attacks": attacks}

    def at(last: int) -> Any:
        def told(what: str, number: int, total: int, note: str) -> None:
            if number == last:
                raise KeyboardInterrupt

        return told

    canife(posts, out=tmp_path / "whole", settings=settings, **given)
    for last in (1, 3, 3, 5):
        with pytest.raises(KeyboardInterrupt):
            canife(posts, out=tmp_path / "o", settings=settings, progress=at(last), **given)
        assert not (tmp_path / "o" / "canife.json").exists()
    other = "holds another federated training: its clip was 1.0, now 2.0 is asked"
    with pytest.raises(ResultError, match=other):
        canife(posts, out=tmp_path / "o", settings=replace(settings, clip=2.0), **given)
    with pytest.raises(ResultError, match="its seed was another"):
        canife(posts, out=tmp_path / "o", settings=replace(settings, seed=5), **given)
    (kept,) = (tmp_path / "o" / ".work").glob("training-*")
    kept.write_bytes(kept.read_bytes()[:-9])  # torn: from the beginning then
    ended = canife(posts, out=tmp_path / "o", settings=settings, **given)
    assert ended == Canife.read(tmp_path / "o")
    same_training(tmp_path)
    assert not list((tmp_path / "o" / ".work").glob("training-*"))
    assert canife(posts, out=tmp_path / "o", settings=settings, **given) == ended  # as it is


def begin(arguments: list[str]) -> None:
    sys.argv = ["lmexposure", *arguments]
    sys.exit(_run())


@pytest.mark.slow
def test_killed_it_goes_on_to_the_same(posts: Path, tmp_path: Path, call: Call) -> None:
    command = ["canife", str(posts), *WORDS, "--rounds", "4", "--iterations", "15", "--out"]
    for wait in (0.0, 0.3):
        said = tmp_path / "said.txt"
        begun = start(begin, [*command, str(tmp_path / "o")], said=said, environment={})
        while begun.is_alive() and not list(tmp_path.glob("o/.work/training-*")):
            time.sleep(0.002)
        assert begun.is_alive(), said.read_text()
        time.sleep(wait)
        begun.kill()
        begun.join()
    for name in ("o", "whole"):
        assert call(*command, tmp_path / name).code == 0
    same_training(tmp_path)


def test_a_text_is_cut_into_clients(tmp_path: Path) -> None:
    text = tmp_path / "novel.txt"
    text.write_text("\n".join(sentences(80)), encoding="utf-8")
    few = replace(ATTACKS, design_clients=2, mock_rounds=10)
    once = replace(SETTINGS, rounds=1)
    record = canife(text, out=tmp_path / "o", clients=9, settings=once, attacks=few, **TINY)
    assert record.clients == 5
    with pytest.raises(SettingsError, match="clients=1 must be"):
        canife(text, out=tmp_path / "p", clients=1)
    text.write_text("short", encoding="utf-8")
    with pytest.raises(CorpusError, match="5 characters"):
        canife(text, out=tmp_path / "p")


def test_records_without_users_or_texts_are_refused(posts: Path, tmp_path: Path) -> None:
    for user_field, text_field in (("author", "text"), ("user", "body")):
        with pytest.raises(CorpusError, match="name other fields"):
            canife(posts, out=tmp_path / "o", user_field=user_field, text_field=text_field)
    nested = tmp_path / "nested.jsonl"
    nested.write_text('{"user": {"id": 1}, "text": "a"}\n')
    with pytest.raises(CorpusError, match="no text and no number"):
        canife(nested, out=tmp_path / "o", user_field="user")


def sound(audited: Path, first: dict[str, Any] | None = None, **changes: Any) -> Canife:
    """All canaries healthy but for what the first round has, and a training that learned."""
    record = Canife.read(audited)
    rows = [row.model_copy(update={"health": 0.95}) for row in record.attacked]
    rows[0] = rows[0].model_copy(update=first or {})
    fallen = {"attacked": tuple(rows), "losses": (3.0, 2.9, 2.8)}
    return record.model_copy(update=fallen | changes)


def test_the_gate_holds_bounds_against_claim_and_threshold(audited: Path) -> None:
    assert lx.check(sound(audited)).outcome == "pass"
    assert lx.check(sound(audited, {"health": 0.2})).outcome == "inconclusive"
    wrong = sound(audited, {"noise_at_most": 0.25})
    assert wrong.refuted
    verdict = lx.check(wrong)
    assert verdict.outcome == "leak"
    assert "round 1 had a noise multiplier of at most 0.25, and 0.5" in verdict.sentence
    assert "the claim is refuted: round 1" in wrong.finding
    more = sound(audited, {"epsilon_so_far": 99.0})
    assert more.refuted
    assert more.finding.startswith("the claim is refuted: canaries show")
    limited = sound(audited, attainable=50.0)
    assert lx.check(limited, lx.Thresholds(max_epsilon=limited.largest)).outcome == "pass"
    assert lx.check(limited, lx.Thresholds(max_epsilon=limited.largest / 2)).outcome == "leak"
    with pytest.raises(SettingsError, match="does not apply to a federated training"):
        lx.check(limited, lx.Thresholds(max_guesses=3))


@pytest.mark.parametrize("losses", [(4.644, 5.0, 6.172), (3.0, 2.0, 3.0)])
def test_a_training_that_got_worse_is_no_pass(audited: Path, losses: tuple[float, ...]) -> None:
    assert lx.check(sound(audited)).outcome == "pass"
    verdict = lx.check(sound(audited, losses=losses))
    assert verdict.outcome == "inconclusive"
    assert f"{losses[0]:.3f} to {losses[-1]:.3f} nats a token" in verdict.sentence
    text = as_markdown(sound(audited, losses=losses).document())
    assert "the model did not learn" in text


def test_what_a_perfect_canary_could_not_have_shown_is_no_pass(audited: Path) -> None:
    """As the gate of a run has it, of the threshold and of the claim."""
    record = sound(audited, attainable=8.0)
    for most, outcome in ((7.9, "pass"), (8.0, "inconclusive"), (40.0, "inconclusive")):
        verdict = lx.check(record, lx.Thresholds(max_epsilon=most))
        assert verdict.outcome == outcome
    assert "max attainable with these mock rounds is 8.000" in verdict.sentence
    assert "(--mock-rounds)" in verdict.sentence
    told = "of which canaries can show 8.000 at most"
    assert record.claimed is not None
    assert told in lx.check(record).sentence
    assert "at most" not in lx.check(sound(audited, attainable=record.claimed + 1)).sentence
    rows = tuple(row.model_copy(update={"attainable_round": 3.6}) for row in record.attacked)
    few = record.model_copy(update={"attacked": rows})
    assert not few.could_refute
    assert lx.check(few).outcome == "inconclusive"
    assert few.finding.startswith("the claim is not tested: max attainable")


def no_noise(audited: Path) -> Canife:
    bare = {"claimed_round": None, "claimed_so_far": None}
    record = sound(audited, training=replace(SETTINGS, noise_multiplier=0.0))
    return record.model_copy(
        update={"attacked": tuple(row.model_copy(update=bare) for row in record.attacked)}
    )


def test_without_noise_there_is_no_pass(audited: Path) -> None:
    """Whatever canaries show of it, and whether or not an epsilon is allowed."""
    bare = no_noise(audited)
    assert bare.claimed is None
    verdict = lx.check(bare)
    assert verdict.outcome == "inconclusive"
    assert "(--max-epsilon)" in verdict.sentence
    assert "a claim: the training had no noise" in verdict.untested
    assert "no epsilon holds for it" in bare.finding
    for most in (8.0, 1e6):
        verdict = lx.check(bare, lx.Thresholds(max_epsilon=most))
        assert verdict.outcome == "leak"
        assert "the training added no noise" in verdict.sentence


@pytest.mark.slow
def test_a_training_without_noise_leaks_by_what_is_seen_of_it(posts: Path, tmp_path: Path) -> None:
    """A reader's case: the accountant had no number, and the gate said "at least 0.000"."""
    settings = replace(SETTINGS, noise_multiplier=0.0, rounds=60, client_rate=0.5)
    attacks = replace(ATTACKS, every=60, mock_rounds=100, iterations=60, compared=False)
    given = GIVEN | {"attacks": attacks}
    record = canife(posts, out=tmp_path / "none", settings=settings, **given)
    (row,) = record.attacked
    assert record.largest >= sampled_epsilon(mu=row.mu, rate=0.5, delta=1e-5) > 0
    assert record.largest <= record.attainable
    assert lx.check(record, lx.Thresholds(max_epsilon=8)).outcome == "leak"
    assert lx.check(record).outcome in ("inconclusive", "leak")


def test_the_report_has_a_row_a_round_and_what_it_means(audited: Path, tmp_path: Path) -> None:
    record = Canife.read(audited)
    written = write_report(record, tmp_path, formats=("html", "md", "csv"))
    page, markdown, table = (path.read_text() for path in written)
    for text in (page, markdown):
        assert "Epsilon, round by round" in text
        assert "is not refuted" in text
    assert "Scores of round" in page
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["round"] for row in rows] == ["1", "2"]
    assert float(rows[0]["mu"]) == record.attacked[0].mu
    assert len(record.to_frame()) == 2


@pytest.mark.slow
def test_the_command_trains_judges_and_reports(posts: Path, tmp_path: Path, call: Call) -> None:
    words = (*WORDS, "--rounds", "1", "--iterations", "3")
    done = call("canife", posts, "--out", tmp_path / "o", "--full", *words)
    assert done.code == 0, done.err
    assert "Epsilon, round by round" in done.out
    assert (tmp_path / "o" / "report.html").exists()
    assert call("check", tmp_path / "o", "--json", tmp_path / "v.json").code in (0, 2)
    assert "inputs_sha256" in json.loads((tmp_path / "v.json").read_text())
    refused = call("report", tmp_path / "o", "--show-secrets")
    assert (refused.code, "holds no secrets" in refused.err) == (3, True)
    assert call("report", tmp_path / "o", "--charts", "--format", "json").code == 0
    drawn = {path.suffix for path in (tmp_path / "o" / "charts").iterdir()}
    assert drawn == {".svg", ".png", ".pdf"}
    assert call("canife", "-", "--out", tmp_path / "p").code == 3


def test_what_is_read_is_what_was_written(audited: Path) -> None:
    opened = lx.open(audited)
    assert opened == Canife.read(audited / "canife.json")
    row = dict(opened.attacked[0])
    with pytest.raises(ValueError, match="39 coins"):
        CanifeRound(**{**row, "coins": row["coins"][1:]})
    with pytest.raises(ValueError, match="epsilon_so_far"):
        CanifeRound(**{**row, "epsilon_so_far": None})
    (audited / "torn.json").write_text('{"schema": "lmexposure.canife/1"')
    with pytest.raises(ResultError):
        lx.check(audited / "torn.json")
