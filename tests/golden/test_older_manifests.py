"""Manifests that older versions wrote: read, resumed, verified, and used for the way back."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpora import write_corpus
from golden_transcript import Transcript, transcript_in

from lmexposure.canaries import Manifest, insert_files
from lmexposure.canaries.corpora.files import SIDECARS

DATA = Path(__file__).parents[1] / "data"
RUNS = {"coins": 1500, "formats": 1500, "stopped_inserted": 300}
RESUMED = (
    *("--format", "pin", "--format", "random_number", "--canaries", 2, "--repetitions", "1,8"),
    *("--controls", 3, "--seed", 3),
)


@pytest.fixture
def said(tmp_path: Path) -> Iterator[Transcript]:
    with transcript_in(tmp_path) as said:
        yield said


def older(source: str, name: str) -> Path:
    """A copy of what an older version left, its modes kept, its sidecars where they are now."""
    copy = Path(shutil.copytree(DATA / source, name))
    for note in list(copy.rglob("*.canaries.json")):
        place = note.parent / SIDECARS
        place.mkdir(exist_ok=True)
        note.rename(place / note.name)
    for path in copy.rglob("*"):
        private = path.name == "manifest.json" or path.name.endswith(".canaries.json")
        path.chmod(0o700 if path.is_dir() else 0o600 if private else 0o640)
    return copy


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("inserted_1/manifests/*")))
def test_all_that_a_manifest_says(said: Transcript, name: str) -> None:
    manifest = Manifest.read(DATA / "inserted_1" / "manifests" / f"{name}.json")
    facts(said, manifest)
    manifest.write(Path("manifest.json"))
    again = Manifest.read("manifest.json")
    said.say(f"written and read it is {'the same' if again == manifest else 'another'}")
    said.agree(f"older/{name}")


def facts(said: Transcript, manifest: Manifest) -> None:
    """All of it, in words and values that do not hang on how the record keeps them."""
    plan, corpus = manifest.plan, manifest.corpus
    said.values("formats", [found.to_dict() for found in plan.formats])
    said.values(
        "canaries a class, repetitions, controls", [plan.canaries, plan.repetitions, plan.controls]
    )
    said.values(
        "seed, coins, their seed",
        [plan.seed, plan.inclusion_probability or "fixed", plan.inclusion_seed],
    )
    said.values("left out, set aside", [plan.left_out, dict(manifest.set_aside)])
    said.values("documents, name, layout", [corpus.documents, corpus.name, corpus.layout])
    said.values("text field, constant fields", [corpus.text_field, corpus.constant_fields])
    said.values("separator, verified", [corpus.separator, corpus.verified])
    said.values("sha256, with canaries", [corpus.sha256, corpus.sha256_inserted])
    said.values(
        "canaries", [[c.id, c.role, c.text, c.repetitions, c.positions] for c in manifest.entries]
    )
    for name in manifest.formats:
        left, first = manifest.references_left(name), manifest.references(name, 3)
        said.values(f"references of {name}: left, first", [left, first])


@pytest.mark.parametrize("name", RUNS)
def test_a_corpus_of_an_older_run(said: Transcript, name: str) -> None:
    """Inserted anew with its plan, it is the same; its old manifest verifies it and leads back."""
    run = older(f"result_1/{name}", "run")
    manifest, corpus = Manifest.read(run / "manifest.json"), Path("small.txt")
    if name == "stopped_inserted":
        corpus = Path("tiny.txt")
    write_corpus(corpus, RUNS[name])
    again = insert_files(corpus, "made", manifest.plan)
    Path("again").mkdir()
    written = (Path("made/corpus") / corpus.name).rename(Path("again") / corpus.name)
    digest = hashlib.sha256(written.read_bytes()).hexdigest()
    said.say(f"inserted anew the manifest is {'the same' if again == manifest else 'another'}")
    said.say(f"the corpus is as it was: {digest == manifest.corpus.sha256_inserted}")
    if name == "stopped_inserted":
        said.type("insert", corpus, "--out", "run", *RESUMED)
        said.returned(run / "corpus" / corpus.name, written)
    said.type("verify", written, run / "manifest.json")
    said.type("remove", written, run / "manifest.json", "--out", "back")
    said.returned("back" / corpus, corpus)
    said.agree(f"older/run_{name}")


def test_the_manifest_of_an_older_demo(said: Transcript) -> None:
    """Its corpus is that of one version of Python."""
    facts(said, Manifest.read(DATA / "result_1" / "demo" / "manifest.json"))
    said.agree("older/run_demo")


def test_older_shards(said: Transcript) -> None:
    """Their sidecars name the manifest by its hash of then."""
    older("inserted_1/shards", "out")
    first, second = (Path(f"out/corpus/part-{n}.jsonl") for n in range(2))
    for some in ([first], [second], [first, second]):
        said.type("verify", *some, "out/manifest.json")
    said.type("remove", second, "out/manifest.json", "--out", "back")
    said.type("remove", first, second, "out/manifest.json", "--out", "all")
    said.files("back", "all")
    said.agree("older/shards")


def test_an_older_packed_corpus_with_coins(said: Transcript) -> None:
    older("inserted_1/coins", "out")
    written = Path("out/corpus/corpus.txt.gz")
    facts(said, Manifest.read("out/manifest.json"))
    said.type("verify", written, "out/manifest.json")
    said.type("remove", written, "out/manifest.json", "--out", "back")
    said.files("back")
    said.agree("older/coins")
