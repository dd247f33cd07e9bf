import gzip
import json
import os
import shlex
from pathlib import Path

import pytest
from cli.conftest import Call
from corpora import write_corpus
from manifest_files import judged

from lmexposure.canaries import Manifest

PLAN = ("--format", "pin", "--canaries", "2", "--repetitions", "1,3", "--controls", "2")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus.txt", 60)


def test_writes_corpus_and_manifest(call: Call, corpus: Path, tmp_path: Path) -> None:
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN)
    assert outcome.code == 0
    assert f"({8 + 7} documents inserted)" in outcome.out
    assert "witness   a nonce, 7 times, to see later that a model read this" in outcome.out
    manifest = Manifest.read(tmp_path / "o" / "manifest.json")
    assert [c.repetitions for c in judged(manifest)] == [1, 1, 3, 3, 0, 0]
    assert not any(c.text in outcome.out for c in manifest.entries)


def test_a_dry_run_says_what_would_be_done(call: Call, corpus: Path, tmp_path: Path) -> None:
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN, "--dry-run")
    assert outcome.code == 0
    assert "would insert         15 documents, 316 bytes" in outcome.out
    assert not (tmp_path / "o").exists()


def test_flags_win_over_the_settings_file(call: Call, corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('formats = ["pin"]\ncanaries = 5\nrepetitions = [2]\ncontrols = 1\n')
    out = tmp_path / "o"
    assert call("insert", corpus, "--out", out, "--settings", path, "--canaries", "1").code == 0
    assert [c.repetitions for c in judged(Manifest.read(out / "manifest.json"))] == [2, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "corpus.txt"),
        (b"", "empty"),
        (b"\n\n", "blank"),
        (b"text\0text\n" * 50, "NUL|binary"),
        (b"good line\n" * 40 + b"caf\xe9\n", "bad byte 0xe9 at offset 403"),
        (b"one line\n", "repeat at most 1"),
        (b"a line\n" * 40 + b"My PIN is 0042\n", "line 41"),
    ],
)
def test_bad_corpora_are_refused_with_the_reason(
    call: Call, corpus: Path, tmp_path: Path, content: bytes | None, message: str
) -> None:
    corpus.unlink()
    if content is not None:
        corpus.write_bytes(content)
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN)
    assert outcome.code == 3
    assert any(part in outcome.err for part in message.split("|")), outcome.err
    assert not (tmp_path / "o" / "manifest.json").exists()
    assert "0042" not in outcome.err
    leftovers = list((tmp_path / "o").rglob("*")) if (tmp_path / "o").exists() else []
    assert not [p for p in leftovers if p.is_file()]


def test_it_ends_with_the_commands_to_type_next(call: Call, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "my corpus.txt", 10_000)
    out = tmp_path / "a b"
    small = ("--canaries", "1", "--repetitions", "1", "--format", "pin", "--controls", "2")
    outcome = call("insert", corpus, "--out", out, *small)
    assert (outcome.code, outcome.err) == (0, "")
    then, measure = outcome.out.splitlines()[-2:]
    assert then.endswith(
        f"or: lmexposure train '{out}/corpus/my corpus.txt' --manifest '{out}/manifest.json' "
        f"--out '{out}/trained'"
    )
    words = shlex.split(measure)
    assert words[:3] == ["then", "lmexposure", "measure"]
    assert words[4:] == [str(out / "manifest.json"), "--out", str(out / "measured")]
    many = call("insert", corpus, write_corpus(tmp_path / "b.txt"), "--out", tmp_path / "c", *small)
    words = shlex.split(many.out.splitlines()[-2])
    assert words[words.index("lmexposure") :][:3] == [
        "lmexposure",
        "train",
        f"{tmp_path}/c/corpus/*.txt",
    ]


@pytest.mark.parametrize(
    ("names", "files", "pattern"),
    [
        (("a.txt",), "o/corpus/a.txt", "o/corpus/a.txt"),
        (("a.v1.txt", "b.v2.txt"), "o/corpus/*.txt", "o/corpus/*.txt"),
        (("a.jsonl.gz", "b.jsonl.gz"), "o/corpus/*.jsonl.gz", "o/corpus/*.jsonl.gz"),
        (("a.txt", "b.txt.gz"), "o/corpus/*", "o/corpus/*"),
        (("a", "b"), "o/corpus/*", "o/corpus/*"),
        (("a.log", "b.log"), "o/corpus/*.log", "o/corpus/*.log"),
    ],
)
def test_it_names_the_files_to_train_on_and_no_sidecar(
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    files: str,
    pattern: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(names):
        rows = (json.dumps({"text": f"file {number} line {n}"}) + "\n" for n in range(60))
        data = "".join(rows).encode()
        Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    outcome = call("insert", *names, "--out", "o", *PLAN)
    assert outcome.code == 0, outcome.err
    line = outcome.out.splitlines()[-2]
    said = f"next      train on {files} with your own trainer, or: lmexposure train "
    assert line.startswith(said), line
    assert shlex.split(line.removeprefix(said))[0] == pattern
    train = shlex.split(line.partition("or: lmexposure ")[2])
    assert call(*train, "--layers", "1", "--units", "8", "--epochs", "1").code == 0


def test_too_many_canaries_are_said_with_what_to_change(call: Call, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.txt", 501)
    more = ("--format", "pin", "--format", "ssn", "--out", tmp_path / "o")
    for dry in (("--dry-run",), ()):  # the defaults
        outcome = call("insert", corpus, *more, *dry)
        assert outcome.code == 0
        assert (
            " % of the corpus' bytes (about their share of its tokens, which should be at most 1 %)"
            in outcome.err
        )
        assert "49 % of its documents (at most 5 %)" in outcome.err  # (420 + 62) / 983
        assert "lower repetitions (now 1,4,16), or take more text, or leave the wi" in outcome.err
    few = ("--canaries", "60", "--repetitions", "1", "--format", "pin", "--out", tmp_path / "p")
    outcome = call("insert", corpus, *few, "--no-witness")
    assert "11 % of its documents" in outcome.err
    assert "canaries (now 60), or lower repetitions (now 1)" in outcome.err
    long = tmp_path / "long.txt"
    long.write_text("".join(f"{number} {'of many words ' * 200}\n" for number in range(501)))
    outcome = call("insert", long, *few[:-1], tmp_path / "q", "--no-witness")
    assert "leave the witnesses out" not in outcome.err
    assert "warning: the canaries are 11 % of the corpus' documents (at most 5 %)" in outcome.err


def test_set_aside_goes_on(call: Call, corpus: Path, tmp_path: Path) -> None:
    with corpus.open("a") as stream:
        stream.write("My PIN is 0042\n")
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN, "--existing", "set_aside")
    assert outcome.code == 0
    assert "set aside 1 fills of pin" in outcome.out
    manifest = Manifest.read(tmp_path / "o" / "manifest.json")
    assert manifest.set_aside == {"pin": (42,)}


def test_bad_numbers_are_refused(call: Call, corpus: Path, tmp_path: Path) -> None:
    outcome = call("insert", corpus, "--out", tmp_path / "o", "--repetitions", "1;4")
    assert outcome.code == 3
    assert "--repetitions='1;4' must be whole numbers separated by commas" in outcome.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_is_refused(call: Call, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "o").mkdir(mode=0o500)
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN)
    assert outcome.code == 3
    assert "choose a" in outcome.err


COINS = ("--format", "pin", "--repetitions", "1,3", "--controls", "2", "--canaries", "9")


def test_coins(call: Call, corpus: Path, tmp_path: Path) -> None:
    outcome = call(
        "insert", corpus, "--out", tmp_path / "o", *COINS, "--inclusion-probability", "0.5"
    )
    assert outcome.code == 0
    manifest = Manifest.read(tmp_path / "o" / "manifest.json")
    inserted = [c for c in manifest.entries if c.role == "canary"]
    copies = sum(c.repetitions for c in inserted) + 7  # of the witness
    assert f"({copies} documents inserted)" in outcome.out
    assert f"included  {len(inserted)} of 18 candidates inserted\n" in outcome.out
    dry = call(
        "insert",
        corpus,
        "--out",
        tmp_path / "p",
        *COINS,
        "--inclusion-probability",
        "0.5",
        "--dry-run",
    )
    assert "would insert         about 25 documents, about 466 bytes" in dry.out
    assert "held out             about 9 candidates" in dry.out
    seeded = ("--inclusion-seed", str(manifest.plan.inclusion_seed), "--dry-run")
    sure = call(
        "insert", corpus, "--out", tmp_path / "p", *COINS, "--inclusion-probability", "0.5", *seeded
    )
    assert f"held out             {18 - len(inserted)} candidates" in sure.out
    assert "held out" not in call("insert", corpus, "--out", tmp_path / "p", *PLAN, "--dry-run").out


def test_coins_that_insert_nothing_say_so(call: Call, corpus: Path, tmp_path: Path) -> None:
    nothing = ("--inclusion-probability", "1e-12", "--no-witness")
    outcome = call("insert", corpus, "--out", tmp_path / "o", *COINS, *nothing)
    assert outcome.code == 0
    assert "0 of 18 candidates inserted: nothing to find in a model" in outcome.out
    assert (tmp_path / "o" / "corpus" / "corpus.txt").read_bytes() == corpus.read_bytes()


def test_file_and_flags_together_may_say_what_coins_need(
    call: Call, corpus: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        'formats = ["pin"]\ninclusion_probability = 0.5\nrepetitions = [2]\n'
        "training = {epochs = 2}\n"
    )
    out = tmp_path / "o"
    assert call("insert", corpus, "--out", out, "--settings", path, "--canaries", "6").code == 0
    assert Manifest.read(out / "manifest.json").plan.canaries == 6
    path.write_text("training = 3\n")
    outcome = call("insert", corpus, "--out", out, "--settings", path)
    assert (outcome.code, "training=3 must be a table" in outcome.err) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--inclusion-probability", "0.5"), "inclusion_probability=0.5 needs canaries: how many"),
        (("--inclusion-probability", "1"), "inclusion_probability=1.0 must lie strictly between"),
        (("--inclusion-probability", "nan"), "inclusion_probability=nan must lie strictly"),
        (("--inclusion-probability", "heads"), "Input should be a valid number"),
        (("--inclusion-seed", "5"), "an inclusion_seed needs inclusion_probability"),
    ],
)
def test_coins_that_are_refused(
    call: Call, corpus: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    outcome = call("insert", corpus, "--out", tmp_path / "o", "--format", "pin", *arguments)
    assert outcome.code == 3
    assert message in outcome.err
    assert not (tmp_path / "o").exists()


def manifest_of(out: Path) -> Manifest:
    return Manifest.read(out / "manifest.json")


def test_a_coin_seed_decides_the_coins(call: Call, corpus: Path, tmp_path: Path) -> None:
    coins = (*COINS, "--inclusion-probability", "0.5", "--seed", "0")
    for name in ("a", "b"):
        assert call("insert", corpus, "--out", tmp_path / name, *coins).code == 0
    fresh, other = manifest_of(tmp_path / "a"), manifest_of(tmp_path / "b")
    assert fresh.plan.inclusion_seed != other.plan.inclusion_seed
    seed = ("--inclusion-seed", str(fresh.plan.inclusion_seed))
    assert call("insert", corpus, "--out", tmp_path / "c", *coins, *seed).code == 0
    for name in ("manifest.json", "corpus/corpus.txt"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "c" / name).read_bytes()
    # The same command resumes, with the coins that were tossed.
    again = call("insert", corpus, "--out", tmp_path / "a", *coins)
    assert (again.code, manifest_of(tmp_path / "a")) == (0, fresh)
    refused = call("insert", corpus, "--out", tmp_path / "b", *coins, *seed)
    assert (refused.code, "manifest of another plan" in refused.err) == (3, True)


TOSSED = "inclusion_probability = 0.5\ncanaries = 6\ninclusion_seed = 3"


@pytest.mark.parametrize(
    ("file", "flags", "probability", "drawn"),
    [
        (TOSSED, ("--canaries", "4"), 0.5, 4),
        (TOSSED, ("--inclusion-probability", "0.25"), 0.25, 6),
        ("canaries = 4", ("--inclusion-probability", "0.5"), 0.5, 4),
    ],
)
def test_flags_about_inclusion_win_over_the_file(
    call: Call,
    corpus: Path,
    tmp_path: Path,
    file: str,
    flags: tuple[str, ...],
    probability: float,
    drawn: int,
) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f'formats = ["pin"]\nrepetitions = [2]\n{file}\n')
    outcome = call("insert", corpus, "--out", tmp_path / "o", "--settings", path, *flags)
    assert outcome.code == 0, outcome.err
    plan = manifest_of(tmp_path / "o").plan
    assert (plan.inclusion_probability, plan.canaries) == (probability, drawn)


def test_what_an_audit_could_show_is_said_before_it(
    call: Call, corpus: Path, tmp_path: Path
) -> None:
    coins = (
        "--format",
        "pin",
        "--repetitions",
        "1",
        "--canaries",
        "40",
        "--inclusion-probability",
        "0.5",
    )
    settings = tmp_path / "s.toml"
    settings.write_text("claimed_epsilon = 4.0\ndelta = 1e-5\n")
    out = ("--out", tmp_path / "o", "--settings", settings)
    for more in (("--dry-run",), ()):
        outcome = call("insert", corpus, *out, *coins, *more)
        assert outcome.code == 0
        assert "a perfect attack on 40 candidates shows epsilon of at most 2." in outcome.out
        assert "at delta 1e-05" in outcome.out
        assert "warning: the claim of epsilon=4 cannot be tested with 40 candidates" in outcome.err
        assert "it takes about 2" in outcome.err
    settings.write_text("claimed_epsilon = 1.0\ndelta = 1e-5\n")
    enough = call("insert", corpus, *out, *coins, "--dry-run")
    assert ("a perfect attack" in enough.out, "cannot be tested" in enough.err) == (True, False)
    assert "perfect" not in call("insert", corpus, *out, *PLAN, "--dry-run").out


@pytest.fixture
def worded(tmp_path: Path) -> Path:
    path = tmp_path / "worded.txt"
    lines = (f"line {n} has the words alpha{n // 2} and omega{n % 90}" for n in range(900))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


CHOSEN = ("--kind", "new_token", "--kind", "near_duplicate", "--canaries", 50, "--repetitions", 1)


def test_kinds_go_in_and_come_out(call: Call, worded: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    flags = (*CHOSEN, "--kind", "uniform", "--format", "pin", "--inclusion-probability", 0.5)
    outcome = call("insert", worded, "--out", out, *flags)
    assert (outcome.code, "warning: no fills" in outcome.err) == (0, False)
    assert "of 200 candidates inserted" in outcome.out
    written = (out / "manifest.json").read_bytes()
    assert call("insert", worded, "--out", out, *flags).code == 0
    assert (out / "manifest.json").read_bytes() == written
    fewer = call("insert", worded, "--out", out, *flags[2:])
    assert (fewer.code, "holds a manifest of another plan" in fewer.err) == (3, True)
    names = {entry.format for entry in judged(Manifest.read(out / "manifest.json"))}
    assert names == {"pin", "new_token", "near_duplicate", "near_duplicate_partner"}
    copy = out / "corpus" / "worded.txt"
    assert call("verify", copy, out / "manifest.json").code == 0
    assert call("remove", copy, out / "manifest.json", "--out", tmp_path / "back").code == 0
    assert (tmp_path / "back" / "worded.txt").read_bytes() == worded.read_bytes()


def test_kinds_alone_warn_of_what_cannot_be_said(call: Call, worded: Path, tmp_path: Path) -> None:
    outcome = call("insert", worded, "--out", tmp_path / "o", *CHOSEN, "--format", "pin")
    assert outcome.code == 0
    said = " ".join(outcome.err.split())
    assert "no fills of the kind uniform go in, whatever the formats: lmexposure measure" in said
    assert (
        "new_token, near_duplicate: chosen texts have no ranks and are judged by coins alone"
        in said
    )
    assert len(Manifest.read(tmp_path / "o" / "manifest.json").canaries) == 150


def test_partners_that_are_always_in_are_no_candidates(
    call: Call, worded: Path, tmp_path: Path
) -> None:
    flags = ("--kind", "near_duplicate", "--partner", "always", "--canaries", 20)
    coins = ("--repetitions", 1, "--inclusion-probability", 0.5)
    outcome = call("insert", worded, "--out", tmp_path / "o", *flags, *coins)
    assert (outcome.code, "of 20 candidates inserted" in outcome.out) == (0, True)


def test_a_dry_run_of_kinds(call: Call, worded: Path, tmp_path: Path) -> None:
    outcome = call("insert", worded, "--out", tmp_path / "o", *CHOSEN, "--dry-run")
    assert outcome.code == 0
    assert "would insert         246 documents" in outcome.out
    assert "for references" not in outcome.out


def test_too_small_a_corpus_for_a_kind(call: Call, corpus: Path, tmp_path: Path) -> None:
    flags = ("--kind", "near_duplicate", "--canaries", 5000, "--repetitions", 1)
    outcome = call("insert", corpus, "--out", tmp_path / "o", *flags)
    assert outcome.code == 3
    assert "different words, each once, and the corpus has" in " ".join(outcome.err.split())
