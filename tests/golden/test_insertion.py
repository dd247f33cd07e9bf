"""Every file and pipe with canaries in it, its manifest, verified, and the way back."""

import gzip
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import sentences
from golden_transcript import Transcript

from lmexposure.audit import RunSettings, insert_corpus
from lmexposure.canaries import (
    Format,
    Manifest,
    Plan,
    Reading,
    guess_layout,
    insert_files,
    insert_through,
    layout_named,
    load_format,
    preview_insertion,
    read_documents,
)
from lmexposure.canaries.corpora.files import sidecar_path
from lmexposure.canaries.verification import count_files
from lmexposure.errors import CorpusError

PLAN = ("--format", "pin", "--canaries", 2, "--repetitions", "1,3", "--controls", 1, "--seed", 0)
TOSSED = ("--inclusion-probability", 0.5, "--set", "inclusion_seed=5", "--seed", 0)
COINS = ("--format", "pin", "--canaries", 4, *TOSSED, "--repetitions", "1,2", "--controls", 1)
MANY = ("--format", "pin", "--format", "api_key", "--format", "own.toml", "--seed", 2**62)
FORMATS = (*MANY, "--canaries", 1, "--repetitions", "2,5", "--controls", 2)
OWN = """name = "parcel"
template = "{choice:greeting} in {choice:town}, your parcel {digits:6}{luhn} is here"
description = "A note of a carrier"
[lists]
greeting = ["Hello", "Dear customer"]
town = ["Łódź", "Oxford", "Ulm", "Bergen"]
"""
MANIFEST = Path("out/manifest.json")


def lines(count: int = 26) -> list[str]:
    """Sentences, some of them blank, two of them with letters of other alphabets."""
    found = sentences(count)
    found[3], found[8] = "Größe, naïveté — Ω and 漢字 of \u2028 one line.", "\ttabs and  spaces\f "
    return found


def text(end: str = "\n", *, given: Sequence[str] = (), last: str | None = None) -> bytes:
    found = list(given) or lines()
    return (end.join(found) + (end if last is None else last)).encode()


def paragraphs(end: str) -> bytes:
    pairs = zip(*[iter(sentences(22))] * 2, strict=True)
    found = [f"{first}{end}{second}{end}" for first, second in pairs]
    return ("  " + end).join(["", *found, end]).encode()


def records(field: str = "text", *, end: str = "\n") -> bytes:
    rows = [
        {"id": number, field: line, "meta": {"from": ["ä", number / 4, None]}}
        for number, line in enumerate(sentences(12))
    ]
    kept = [json.dumps(row, ensure_ascii=bool(number % 2)) for number, row in enumerate(rows)]
    return end.join([*kept[:7], "", *kept[7:]]).encode()


def write(name: str, content: bytes) -> Path:
    """A file, packed as its name says."""
    path = Path(name)
    if name.endswith(".gz"):
        content = gzip.compress(content)
    if name.endswith(".zst"):
        content = pa.compress(content, codec="zstd", asbytes=True)
    path.write_bytes(content)
    path.chmod(0o640)
    return path


def write_rows(name: str, first: int = 0, count: int = 12) -> Path:
    """A Parquet file of three row groups, with columns of several types."""
    numbers = range(first, first + count)
    table = pa.table(
        {
            "id": pa.array(numbers, pa.int16()),
            "text": pa.array(sentences(first + count)[first:], pa.large_string()),
            "tags": pa.array([[str(n)] if n % 3 else None for n in numbers]),
            "score": pa.array([n / 8 for n in numbers], pa.float32()),
        }
    )
    pq.write_table(table, name, row_group_size=5, compression="zstd")
    Path(name).chmod(0o640)
    return Path(name)


class Case(NamedTuple):
    file: str
    content: bytes
    flags: tuple[object, ...] = PLAN


HELD = text(given=[*lines(), "My PIN is 0042", "My PIN is 0042, or My PIN is 7777?"])
CASES = {
    "mixed_line_ends": Case("corpus.txt", text("\r\n") + text("\n\r") + text("\n", last="\r")),
    "paragraphs": Case("corpus.txt", paragraphs("\n"), (*PLAN, "--layout", "paragraphs")),
    "jsonl_crlf": Case(
        "corpus.ndjson", records("body", end="\r\n"), (*PLAN, "--text-field", "body")
    ),
    "jsonl_as_lines": Case("corpus.jsonl", records(), (*PLAN, "--layout", "lines")),
    "zstd_paragraphs": Case("corpus.zst", paragraphs("\n"), (*PLAN, "--layout", "paragraphs")),
    "coins": Case("corpus.txt", text(), COINS),
    "several_formats": Case("corpus.txt", text(), FORMATS),
    "set_aside_coins": Case("corpus.txt.gz", HELD, (*COINS, "--set", "existing=set_aside")),
    "not_verified": Case("corpus.txt", text(), (*PLAN, "--no-verify")),
}


@pytest.mark.parametrize("name", CASES)
def test_there_and_back(said: Transcript, name: str) -> None:
    case = CASES[name]
    Path("own.toml").write_text(OWN, encoding="utf-8")
    there_and_back(said, name, [write(case.file, case.content)], *case.flags)


def test_parquet_there_and_back(said: Transcript) -> None:
    there_and_back(said, "parquet", [write_rows("corpus.parquet")], *PLAN)


def there_and_back(
    said: Transcript, name: str, corpus: Sequence[Path], *flags: object, pattern: str = ""
) -> None:
    """Insert, look at everything that was written, verify, remove."""
    said.type("insert", *([pattern] if pattern else corpus), "--out", "out", *flags)
    said.files("out")
    written = [Path("out/corpus") / (pattern or corpus[0].name)]
    said.type("verify", *written, MANIFEST)
    if not pattern:
        documents(said, written[0])
    said.type("remove", *written, MANIFEST, "--out", "back")
    for path in corpus:
        said.returned("back" / path, path)
    said.agree(name, MANIFEST)


def documents(said: Transcript, written: Path) -> None:
    """What training reads of a file, as a hash."""
    corpus = Manifest.read(MANIFEST).corpus
    field = corpus.text_field or "text"
    found = json.dumps(list(read_documents(written, layout=corpus.layout, text_field=field)))
    digest = hashlib.sha256(found.encode()).hexdigest()
    said.say(f"guessed layout {guess_layout(written)}; documents as JSON have the sha256 {digest}")


SHARDS = {
    "shards": {
        "a.txt": text("\r\n", given=lines()[:11]),
        "b.txt": text(given=lines()[11:13]),
        "c.txt": text(given=lines()[13:], last=""),
    },
    "shards_gzip_jsonl": {f"part-{n}.jsonl.gz": records() for n in range(2)},
}


@pytest.mark.parametrize("name", SHARDS)
def test_shards_there_and_back(said: Transcript, name: str) -> None:
    files = [write(file, content) for file, content in SHARDS[name].items()]
    there_and_back(said, name, files, *PLAN, pattern=f"*{files[0].suffix}")


def test_parquet_shards_there_and_back(said: Transcript) -> None:
    files = [write_rows(f"{n}.parquet", first=12 * n) for n in range(2)]
    there_and_back(said, "shards_parquet", files, *COINS, pattern="*.parquet")


def test_one_shard_alone(said: Transcript) -> None:
    """Its sidecar says what it should hold, and what it was."""
    for file, content in SHARDS["shards"].items():
        write(file, content)
    said.type("insert", "c.txt", "a.txt", "b.txt", "--out", "out", *PLAN)
    a, b, c = (Path("out/corpus") / f"{name}.txt" for name in "abc")
    for some in ([a], [c], [a, c], [c, a, b]):
        said.type("verify", *some, MANIFEST)
    said.type("remove", c, MANIFEST, "--out", "back")
    said.returned(Path("back/c.txt"), Path("c.txt"))
    said.type("remove", a, c, MANIFEST, "--out", "two")
    sidecar_path(c).unlink()
    said.type("verify", a, b, c, MANIFEST)
    for path in (a, b):
        sidecar_path(path).unlink()
    said.type("verify", a, b, c, MANIFEST)
    said.type("verify", a, MANIFEST)
    said.type("remove", a, b, c, MANIFEST, "--out", "all")
    for file in SHARDS["shards"]:
        said.returned("all" / Path(file), Path(file))
    said.type("remove", a, MANIFEST, "--out", "first")
    said.agree("one_shard_alone")


PIPES: dict[str, Case] = {
    "pipe_jsonl": Case("corpus.jsonl", records(), (*COINS, "--layout", "jsonl")),
    "pipe_set_aside": Case("corpus.txt", HELD, (*PLAN, "--set", "existing=set_aside")),
    "pipe_not_verified": Case("corpus.txt", text(), (*PLAN, "--no-verify")),
}


@pytest.mark.parametrize("name", PIPES)
def test_pipes(said: Transcript, name: str) -> None:
    case = PIPES[name]
    corpus, written = write(case.file, case.content), Path(f"with_{case.file}")
    said.type(
        *("insert", "-", "--out", "out", *case.flags),
        standard_input=corpus,
        standard_output=str(written),
    )
    said.files("out", str(written))
    said.type("verify", written, MANIFEST)
    said.type("remove", written, MANIFEST, "--file", "back.txt")
    said.returned(Path("back.txt"), corpus)
    said.agree(name, MANIFEST)


def test_corpora_that_are_refused(said: Transcript) -> None:
    Path("folder").mkdir()
    write("held.txt", HELD)
    write("short.txt", b"one line\n")
    write("nested.jsonl", b'{"doc": {"text": "a"}}\n' * 9)
    write("broken.jsonl", b'{"text": "a"}\n[1]\n')
    write_rows("rows.parquet")
    calls: list[tuple[object, ...]] = [
        ("held.txt",),
        ("short.txt",),
        ("folder",),
        ("nested.jsonl", "--text-field", "doc.text"),
        ("broken.jsonl",),
        ("rows.parquet", "--text-field", "score"),
        ("*.gz",),
        ("held.txt", "rows.parquet"),
        ("held.txt", "--documents", 27, "--set", "existing=set_aside"),
    ]
    for call in calls:
        said.type("insert", *call, "--out", "out", *PLAN)
    piped = Path("held.txt")
    for flags in (("--documents", 28), ("--documents", 27, "--set", "existing=set_aside"), ()):
        words = ("insert", "-", "--out", "out", *PLAN, *flags)
        said.type(*words, standard_input=piped, standard_output="written.txt")
        said.files("written.txt")
    said.agree("refused")


def test_the_defaults(said: Transcript) -> None:
    there_and_back(
        said, "defaults", [write("corpus.txt", text(given=sentences(5000)))], "--seed", 0
    )


def test_dry_runs(said: Transcript) -> None:
    Path("own.toml").write_text(OWN, encoding="utf-8")
    Path("settings.toml").write_text(
        'formats = ["pin"]\ninclusion_probability = 0.5\ncanaries = 40\nrepetitions = [2]\n'
        "seed = 1\nclaimed_epsilon = 4.0\ndelta = 1e-5\n"
    )
    write("corpus.txt", HELD)
    write("shard.jsonl.gz", records())
    write_rows("rows.parquet")
    aside = ("--set", "existing=set_aside")
    calls: list[tuple[object, ...]] = [
        ("corpus.txt", *FORMATS, *aside),
        ("corpus.txt", *COINS, *aside),
        ("corpus.txt", "--settings", "settings.toml", *aside),
        ("corpus.txt", "--settings", "settings.toml", "--set", "inclusion_seed=3", *aside),
        ("shard.jsonl.gz", *PLAN),
        ("rows.parquet", *PLAN),
        ("corpus.txt", *PLAN),
    ]
    for call in calls:
        said.type("insert", *call, "--out", "out", "--dry-run")
    said.say(f"out is {'there' if Path('out').exists() else 'not there'}")
    said.agree("dry_runs")


def test_the_same_command_again(said: Transcript) -> None:
    """One text goes on where it was; what another command left is not written over."""
    corpus = write("corpus.txt", text())
    packed = write("corpus.txt.gz", text())
    insert = ("insert", corpus, "--out", "out", *PLAN)
    written = Path("out/corpus/corpus.txt")
    said.type(*insert)
    made = written.read_bytes()
    for change in (made, made[:-1], None):
        written.unlink()
        if change is not None:
            written.write_bytes(change)
        said.type(*insert)
        said.say(f"the same bytes: {written.read_bytes() == made}")
    said.type(*insert, "--controls", 2)
    said.type(*insert, "--layout", "paragraphs")
    said.type("insert", packed, "--out", "out", *PLAN)
    corpus.write_bytes(text("\r\n"))
    said.type(*insert)
    said.type("insert", packed, "--out", "packed", *PLAN)
    said.type("insert", packed, "--out", "packed", *PLAN)
    said.agree("again", MANIFEST)


def test_a_corpus_that_was_changed(said: Transcript) -> None:
    corpus = write("corpus.txt", text())
    said.type("insert", corpus, "--out", "out", *COINS)
    written = Path("out/corpus/corpus.txt")
    rows = written.read_text().split("\n")
    known = json.loads(MANIFEST.read_bytes())["entries"]
    never = [
        next(c["text"] for c in known if c["role"] == role) for role in ("held_out", "control")
    ]
    changes: dict[str, list[str]] = {
        "deduplicated": sorted(set(rows)),
        "doubled": [*rows, *rows],
        "with_strangers": [*rows, *never, "My PIN is 0000, My PIN is 9999", "My PIN is 0000"],
        "without": lines(),
        "shuffled": rows[20:] + rows[:20],
    }
    for name, changed in changes.items():
        path = Path(f"{name}.txt")
        path.write_text("\n".join(changed))
        said.type("verify", path, MANIFEST)
        said.type("remove", path, MANIFEST, "--out", f"back_{name}")
    Path("rows.jsonl").write_text("".join(json.dumps({"body": row}) + "\n" for row in rows))
    said.type("verify", "rows.jsonl", MANIFEST, "--text-field", "body")
    said.type("verify", "rows.jsonl", MANIFEST, "--layout", "lines")
    said.type("verify", "rows.jsonl", MANIFEST)
    said.type("verify", written, "corpus.txt")
    said.agree("changed")


PIN = Format(name="pin", template="My PIN is {digits:4}")
FIXED = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=0)
FALLEN = Plan(
    formats=(PIN, load_format("ssn")),
    canaries=3,
    repetitions=(2,),
    controls=1,
    seed=0,
    inclusion_probability=0.25,
    inclusion_seed=7,
)


def test_canaries_left_out(said: Transcript) -> None:
    """Nothing else moves; the command line leaves none out, and reads what did."""
    corpus, written = write("corpus.txt", text()), Path("written.txt")
    plan = FALLEN.without("ssn/x2/0001")
    manifest = insert_files(corpus, "out", plan)
    Path("out/corpus/corpus.txt").rename(written)
    assert count_files([written], manifest, layout=layout_named("lines")).as_inserted
    said.files("written.txt")
    said.type("verify", written, MANIFEST)
    said.type("remove", written, MANIFEST, "--file", "back.txt")
    said.returned(Path("back.txt"), corpus)
    said.values(
        "references left, and the first",
        [[manifest.references_left("pin"), manifest.references("pin", 5)]],
    )
    said.agree("left_out_coins", MANIFEST)


@pytest.mark.parametrize("name", ["run.jsonl.gz", "run.parquet", "run.zst"])
def test_packed_files_of_a_run(said: Transcript, name: str) -> None:
    """`run` takes one file of any kind and goes on with it; it writes no sidecar."""
    corpus = write_rows(name) if name.endswith(".parquet") else write(name, records())
    layout = "lines" if name == "run.zst" else None  # of JSON without a suffix it must be said
    settings = RunSettings(
        formats=("pin",), canaries=1, repetitions=(2,), controls=1, seed=0, layout=layout
    )
    for _ in range(2):
        written, manifest = insert_corpus(corpus, out="out", settings=settings)
    said.files("out")
    said.say(f"{written.as_posix()}, as in the file: {manifest == Manifest.read(MANIFEST)}")
    said.type("verify", written, MANIFEST)
    said.type("remove", written, MANIFEST, "--out", "back")
    said.returned("back" / corpus, corpus)
    said.agree(name.replace(".", "_"), MANIFEST)


@pytest.mark.parametrize("layout", ["jsonl", "parquet"])
def test_constants_in_inserted_records(said: Transcript, layout: str) -> None:
    corpus = write("a.jsonl", records()) if layout == "jsonl" else write_rows("a.parquet")
    known = layout_named(layout, fields={"id": -1})
    manifest = insert_files([corpus], "out", FIXED, fields={"id": -1})
    written = Path("out/corpus") / corpus.name
    said.files("out")
    again = insert_files(corpus, "again", FIXED, layout=layout, fields={"id": -1})
    alone = (Path("again/corpus") / corpus.name).rename(f"alone{corpus.suffix}")
    said.say(f"as one file the manifest is {'the same' if again == manifest else 'another'}")
    said.returned(alone, written)
    said.values("preview", [preview_insertion([corpus], FIXED, layout=known).to_dict()])
    said.values("count", [count_files([written], manifest, layout=known).to_dict()])
    said.type("verify", written, MANIFEST)
    said.type("remove", written, MANIFEST, "--out", "back")
    said.returned("back" / corpus, corpus)
    for fields in ({"text": "x"}, {"none": 1}, {"id": "a word"}):
        try:
            insert_files(corpus, f"out/{next(iter(fields))}", FIXED, fields=fields)
            said.say(f"{fields}: taken")
        except CorpusError as failure:
            said.refusal(f"{fields}", failure)
    said.agree(f"constants_{layout}", MANIFEST)


def test_a_pipe_between_functions(said: Transcript) -> None:
    """Constants and canaries left out go through it too."""
    corpus, plan = write("a.jsonl", records()), FIXED.without("pin/x3/0000")
    constants = {"meta": {"from": "lmexposure"}}
    for documents in (None, 12):
        reading = Reading(layout="jsonl", fields=constants, total=documents)
        MANIFEST.unlink(missing_ok=True)
        with corpus.open("rb") as source, open("piped.jsonl", "wb") as target:
            insert_through(source, target, MANIFEST.parent, lambda before: plan, reading)
        said.files("piped.jsonl")
        said.type("verify", "piped.jsonl", MANIFEST)
    said.type("remove", "piped.jsonl", MANIFEST, "--file", "back.jsonl")
    said.returned(Path("back.jsonl"), corpus)
    said.agree("pipe_of_functions", MANIFEST)
