"""Many files in, the same files with canaries out."""

import json
import os
import resource
import stat
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from lmexposure.canaries import (
    Format,
    Manifest,
    Plan,
    Sidecar,
    corpus_files,
    insert_into_file,
    insert_into_files,
    shape_named,
)
from lmexposure.canaries.corpora.copying import Copied, CorpusCopy
from lmexposure.canaries.corpora.removal import remove_from_files
from lmexposure.canaries.corpora.shards import sidecar_path
from lmexposure.canaries.insertion import schedule
from lmexposure.errors import CorpusError, FileError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4)
LINES = [b"line %d\r\n" % n if n % 7 else b"l%d\n" % n for n in range(48)]


def parts(here: Path, count: int) -> list[Path]:
    here.mkdir()
    size = len(LINES) // count
    for n in range(count):
        (here / f"{n}.txt").write_bytes(b"".join(LINES[n * size : (n + 1) * size]))
    return corpus_files([here / "*.txt"])


@pytest.mark.parametrize("verify", [True, False])
def test_the_same_however_the_corpus_is_cut(tmp_path: Path, verify: bool) -> None:
    outcomes = []
    for count in (1, 3, 8):
        sources, out = parts(tmp_path / f"in{count}", count), tmp_path / f"out{count}"
        manifest = insert_into_files(sources, PLAN, out, shape=shape_named("lines"), verify=verify)
        data = b"".join((out / path.name).read_bytes() for path in sources)
        record = manifest.corpus.model_copy(update={"name": ""})
        outcomes.append((data, replace(manifest, corpus=record)))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert outcomes[0][1].corpus.verified is verify
    assert bool(outcomes[0][1].corpus.sha256) is verify


def test_as_one_file_without_sidecars(tmp_path: Path) -> None:
    (source,) = parts(tmp_path / "in", 1)
    manifest = insert_into_files([source], PLAN, tmp_path / "out", shape=shape_named("lines"))
    assert manifest == insert_into_file(source, PLAN, tmp_path / "alone", layout="lines")
    assert (tmp_path / "alone").read_bytes() == (tmp_path / "out" / "0.txt").read_bytes()


def test_a_sidecar_tells_places_and_no_secrets(tmp_path: Path) -> None:
    sources = parts(tmp_path / "in", 3)
    manifest = insert_into_files(sources, PLAN, tmp_path / "out", shape=shape_named("lines"))
    texts, told = {one.id: one.text for one in manifest.entries}, []
    for path in corpus_files([tmp_path / "out" / "*"]):
        note, data = Sidecar.read(path), path.read_bytes()
        for one in note.copied.occurrences:
            there = data[one.offset : one.offset + one.length]
            assert there.decode().rstrip("\r\n") == texts[one.id]
            told.append((one.document, one.id))
        assert not any(text[-4:] in sidecar_path(path).read_text() for text in texts.values())
    assert told == [(place, canary.id) for place, canary in schedule(manifest.entries)]


def test_a_manifest_that_was_not_verified_is_read_back(tmp_path: Path) -> None:
    manifest = insert_into_files(
        parts(tmp_path / "in", 1), PLAN, tmp_path / "o", shape=shape_named("lines"), verify=False
    )
    manifest.write(tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["corpus"]["verified"] is False
    assert Manifest.read(tmp_path / "m.json") == manifest


def test_refusals(tmp_path: Path) -> None:
    sources, shape = parts(tmp_path / "in", 3), shape_named("lines")
    with pytest.raises(CorpusError, match=r"documents=47, but the corpus has 48 in 3 files; is a"):
        insert_into_files(sources, PLAN, tmp_path / "o", shape=shape, documents=47)
    with pytest.raises(CorpusError, match="holds something already; choose a new or an empty"):
        insert_into_files(sources, PLAN, tmp_path / "in", shape=shape)
    with pytest.raises(CorpusError, match=r"no file matches '.*none\*'; give a file"):
        insert_into_files([tmp_path / "none*"], PLAN, tmp_path / "o", shape=shape)
    with pytest.raises(CorpusError, match=r"0.txt is given twice; give it once"):
        insert_into_files([*sources, sources[0]], PLAN, tmp_path / "o", shape=shape)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "0.txt").write_text("x\n")
    with pytest.raises(CorpusError, match=r"would get one name in .*; rename one of them"):
        insert_into_files(
            [*sources, tmp_path / "more" / "0.txt"], PLAN, tmp_path / "o", shape=shape
        )
    with pytest.raises(CorpusError, match=r"cannot read the corpus .*missing.txt"):
        insert_into_files([*sources, tmp_path / "missing.txt"], PLAN, tmp_path / "o", shape=shape)
    sources[1].write_bytes(b"fine\n{\n")
    with pytest.raises(CorpusError, match=r"in/0.txt: line 1 is not JSON"):
        insert_into_files(sources, PLAN, tmp_path / "o", shape=shape_named("jsonl"))
    sources[1].write_bytes(b"fine\nMy PIN is 0001\n")
    with pytest.raises(CorpusError, match=r"line, counted over all files, 18\)"):
        insert_into_files(sources, PLAN, tmp_path / "o", shape=shape)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "more"]


def test_a_damaged_sidecar(tmp_path: Path) -> None:
    for text in ("{", "{}", '{"schema": "lmexposure.shard/2"}'):
        sidecar_path(tmp_path / "a").write_text(text)
        with pytest.raises(CorpusError, match="is not what insertion wrote"):
            Sidecar.read(tmp_path / "a")


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    sources = parts(tmp_path / "in", 3)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(FileError, match=r"cannot write .*File too large"):
            insert_into_files(sources, PLAN, tmp_path / "o", shape=shape_named("lines"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def modes(directory: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


@pytest.mark.parametrize(("bits", "copied"), [(0o644, 0o644), (0o640, 0o640), (0o600, 0o600)])
def test_copies_are_as_private_as_the_most_private_source(
    tmp_path: Path, bits: int, copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all files of a corpus; their sidecars, which let short secrets be tried, always are."""
    seen: list[int] = []
    real = CorpusCopy.file

    def watched(self: CorpusCopy, source: Path, stream: IO[bytes]) -> Copied:
        seen.append(stat.S_IMODE(os.fstat(stream.fileno()).st_mode))
        return real(self, source, stream)

    monkeypatch.setattr(CorpusCopy, "file", watched)
    sources = parts(tmp_path / "in", 3)
    sources[1].chmod(bits)
    shape = shape_named("lines")
    manifest = insert_into_files(sources, PLAN, tmp_path / "out", shape=shape)
    notes = {f"{n}.txt.canaries.json": 0o600 for n in range(3)}
    assert modes(tmp_path / "out") == {f"{n}.txt": copied for n in range(3)} | notes
    insert_into_file(sources[1], PLAN, tmp_path / "alone", layout="lines")
    assert seen == [copied] * 4  # before the first byte
    written = [tmp_path / "out" / path.name for path in sources]
    remove_from_files(written, manifest, tmp_path / "without")
    assert set(modes(tmp_path / "without").values()) == {copied}
    remove_from_files(written[:1], manifest, tmp_path / "one")
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == copied
