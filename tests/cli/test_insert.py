"""`lmexposure insert`: what it says next and warns of; its transcripts are in the golden run."""

import os
import shlex
from glob import glob
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import FEW, Call
from corpora import write_corpus
from manifest_files import judged

from lmexposure.canaries import Manifest

COINS = ("--format", "pin", "--repetitions", "1,3", "--controls", "2", "--canaries", "9")
TOSSED = "inclusion_probability = 0.5\ncanaries = 6\ninclusion_seed = 3"


@pytest.mark.parametrize(
    ("file", "flags", "planned"),
    [
        ("canaries = 5", ("--canaries", "1"), {"canaries": 1, "repetitions": (2,)}),
        ("inclusion_probability = 0.5", ("--canaries", "6"), {"canaries": 6}),
        (TOSSED, ("--canaries", "4"), {"inclusion_probability": 0.5, "canaries": 4}),
        (TOSSED, ("--inclusion-probability", "0.25"), {"inclusion_probability": 0.25}),
        ("canaries = 4", ("--inclusion-probability", "0.5"), {"canaries": 4}),
    ],
)
def test_flags_win_over_the_settings_file_and_go_with_it(
    call: Call, corpus: Path, file: str, flags: tuple[str], planned: dict[str, Any]
) -> None:
    path = Path("s.toml")
    path.write_text(f'formats = ["pin"]\nrepetitions = [2]\n{file}\nepochs = 2\n')
    call.done("insert", corpus, "--out", "o", "--settings", path, *flags)
    plan = Manifest.read("o/manifest.json").plan
    assert {name: getattr(plan, name) for name in planned} == planned


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (("my a.txt",), "my o/corpus/my a.txt"),
        (("a.v1.txt", "b.v2.txt"), "my o/corpus/*.txt"),
        (("a.log", "b.txt"), "my o/corpus/*"),
        (("a", "b"), "my o/corpus/*"),
    ],
)
def test_it_names_the_files_to_train_on_and_no_sidecar(
    call: Call, names: tuple[str], pattern: str
) -> None:
    for name in names:
        write_corpus(Path(name), 60)
    outcome = call.done("insert", *names, "--out", "my o", *FEW)
    *_, train, measure = map(shlex.split, outcome.out.splitlines())
    command = train[train.index("lmexposure") :]
    assert command == [
        *("lmexposure", "train", pattern),
        *("--manifest", "my o/manifest.json", "--out", "my o/trained"),
    ]
    assert {Path(path).name for path in glob(pattern)} == set(names)
    assert measure[:3] == ["then", "lmexposure", "measure"]
    assert measure[4:] == ["my o/manifest.json", "--out", "my o/measured"]


def test_too_many_canaries_are_said_with_what_to_change(call: Call) -> None:
    corpus = write_corpus(Path("corpus.txt"), 501)
    flags = ("--format", "pin", "--out", "o", "--dry-run")
    seen = call("insert", corpus, *flags, "--format", "ssn")  # the defaults
    assert "14 % of its documents (at most 5 %): " in seen.err  # (20 + 62) / 583
    assert " would; take more text, or leave the witnesses out (--no-witness), whi" in seen.err
    seen = call("insert", corpus, *flags, "--format", "ssn", "--repetitions", "1,4,16")
    assert "49 % of its documents (at most 5 %): " in seen.err  # (420 + 62) / 983
    assert " lower repetitions (now 1,4,16), or take more text, or leave the wi" in seen.err
    few = (*flags, "--canaries", 60, "--repetitions", 1, "--no-witness")
    seen = call("insert", corpus, *few)
    assert "11 % of its documents" in seen.err
    assert "; plan 14 canaries (now 60), or take more text" in seen.err
    long = Path("long.txt")
    long.write_text("".join(f"{number} {'of many words ' * 200}\n" for number in range(501)))
    seen = call("insert", long, *few)
    assert "leave the witnesses out" not in seen.err
    assert "warning: the canaries are 11 % of the corpus' documents (at most 5 %)" in seen.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_is_refused(call: Call, corpus: Path) -> None:
    Path("o").mkdir(mode=0o500)
    call("insert", corpus, "--out", "o", *FEW).refused("choose a")


def test_coins_that_insert_nothing_say_so(call: Call, corpus: Path) -> None:
    nothing = ("--inclusion-probability", "1e-12", "--no-witness")
    outcome = call.done("insert", corpus, "--out", "o", *COINS, *nothing)
    assert "0 of 18 candidates inserted: nothing to find in a model" in outcome.out
    assert Path("o/corpus/corpus.txt").read_bytes() == corpus.read_bytes()


def manifest_of(out: Path) -> Manifest:
    return Manifest.read(out / "manifest.json")


def test_a_coin_seed_decides_the_coins(call: Call, corpus: Path) -> None:
    coins = (*COINS, "--inclusion-probability", "0.5", "--seed", "0")
    for name in ("a", "b"):
        call.done("insert", corpus, "--out", Path(name), *coins)
    fresh, other = manifest_of(Path("a")), manifest_of(Path("b"))
    assert fresh.plan.inclusion_seed != other.plan.inclusion_seed
    seed = ("--set", f"inclusion_seed={fresh.plan.inclusion_seed}")
    call.done("insert", corpus, "--out", "c", *coins, *seed)
    for name in ("manifest.json", "corpus/corpus.txt"):
        assert (Path("a") / name).read_bytes() == (Path("c") / name).read_bytes()
    # The same command resumes, with the coins that were tossed.
    again = call("insert", corpus, "--out", "a", *coins)
    assert (again.code, manifest_of(Path("a"))) == (0, fresh)
    call("insert", corpus, "--out", "b", *coins, *seed).refused("manifest of another plan")


def test_a_claim_that_can_be_tested_is_no_warning(call: Call, corpus: Path) -> None:
    settings = Path("s.toml")
    settings.write_text("claimed_epsilon = 1.0\ndelta = 1e-5\n")
    coins = (*COINS, "--canaries", 40, "--inclusion-probability", 0.5, "--settings", settings)
    seen = call("insert", corpus, "--out", "o", *coins, "--dry-run")
    assert ("a perfect attack" in seen.out, "cannot be tested" in seen.err) == (True, False)


@pytest.fixture
def worded() -> Path:
    path = Path("worded.txt")
    lines = (f"line {n} has the words alpha{n // 2} and omega{n % 90}" for n in range(900))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


CHOSEN = ("--kind", "new_token", "--kind", "near_duplicate", "--canaries", 50, "--repetitions", 1)


def test_kinds_go_in_and_come_out(call: Call, worded: Path) -> None:
    out = Path("o")
    flags = (*CHOSEN, "--kind", "uniform", "--format", "pin", "--inclusion-probability", 0.5)
    outcome = call.done("insert", worded, "--out", out, *flags)
    assert "warning: no canaries" not in outcome.err
    assert "of 200 candidates inserted" in outcome.out
    written = (out / "manifest.json").read_bytes()
    call.done("insert", worded, "--out", out, *flags)
    assert (out / "manifest.json").read_bytes() == written
    call("insert", worded, "--out", out, *flags[2:]).refused("holds a manifest of another plan")
    names = {entry.format for entry in judged(Manifest.read(out / "manifest.json"))}
    assert names == {"pin", "new_token", "near_duplicate", "near_duplicate_partner"}
    copy = out / "corpus" / "worded.txt"
    call.done("verify", copy, out / "manifest.json")
    call.done("remove", copy, out / "manifest.json", "--out", "back")
    assert Path("back/worded.txt").read_bytes() == worded.read_bytes()


def test_kinds_alone_warn_of_what_cannot_be_said(call: Call, worded: Path) -> None:
    outcome = call.done("insert", worded, "--out", "o", *CHOSEN, "--format", "pin")
    said = " ".join(outcome.err.split())
    assert "no canaries of the kind uniform go in, whatever the formats: lmexposure measure" in said
    assert (
        "new_token, near_duplicate: chosen texts have no ranks and are judged by coins alone"
        in said
    )
    assert len(Manifest.read("o/manifest.json").canaries) == 150


def test_partners_that_are_always_in_are_no_candidates(call: Call, worded: Path) -> None:
    flags = ("--kind", "near_duplicate", "--set", "partner=always", "--canaries", 20)
    coins = ("--repetitions", 1, "--inclusion-probability", 0.5)
    call("insert", worded, "--out", "o", *flags, *coins).done(out="of 20 candidates inserted")


def test_a_dry_run_of_kinds(call: Call, worded: Path) -> None:
    outcome = call.done("insert", worded, "--out", "o", *CHOSEN, "--dry-run")
    assert "would insert         246 documents" in outcome.out
    assert "for references" not in outcome.out


def test_too_small_a_corpus_for_a_kind(call: Call, corpus: Path) -> None:
    flags = ("--kind", "near_duplicate", "--canaries", 5000, "--repetitions", 1)
    outcome = call("insert", corpus, "--out", "o", *flags)
    outcome.refused("different words, each once, and the corpus has")
