"""What is left of the canaries after something was done to their corpus."""

from pathlib import Path

import pytest

from lmexposure.canaries import CorpusCount, Format, Manifest, Plan, insert_files, layout_named
from lmexposure.canaries.sidecars import sidecar_path
from lmexposure.canaries.verification import count_files

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4, witness=False)
LINES = layout_named("lines")


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[Path, Manifest]:
    source, out = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_bytes(b"".join(b"line %d\n" % n for n in range(30)))
    manifest = insert_files(source, tmp_path / "out", PLAN)
    return (tmp_path / "out" / "corpus" / "a.txt").rename(out), manifest


def count(path: Path, manifest: Manifest) -> CorpusCount:
    return count_files([path], manifest, layout=LINES)


def test_deduplication_filtering_and_strangers(corpus: tuple[Path, Manifest]) -> None:
    path, manifest = corpus
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(sorted(set(lines))))
    counted = count(path, manifest)
    assert [(c.found, c.lost, c.changed) for c in counted.classes] == [(3, 0, 0), (3, 0, 3)]
    assert not counted.as_inserted
    path.write_bytes(b"".join(sorted(set(lines)) * 2))
    for wanted, one in zip(("2 0", "0 2"), [*count(path, manifest).classes][::-1], strict=True):
        assert one.found == one.expected - one.missing + one.surplus
        assert one.canaries == one.complete + one.fewer + one.lost + one.more
        assert f"{one.complete} {one.more}" == wanted.replace("2", "3")
    gone = manifest.entries[0].text.encode()
    stranger = PIN.text(manifest.references("pin", 1)[0]).encode()
    control = manifest.entries[-1].text.encode()
    path.write_bytes(b"".join(x for x in lines if gone not in x) + stranger + b"\n" + control)
    counted = count(path, manifest)
    assert counted.changed == {"pin/x1/0000": (1, 0)}
    assert counted.classes[0].lost == 1
    assert counted.uninvited == {manifest.entries[-1].id: 1}
    assert counted.strange == {"pin": 1}
    assert counted.strange_places == {"pin": "1 times (line or row 39)"}
    shown = str(counted.to_dict())
    assert not any(text.decode()[-4:] in shown for text in (gone, stranger, control))


def test_a_file_alone_is_held_against_its_sidecar(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.txt").write_bytes(b"".join(b"%d %d\n" % (n, m) for m in range(20)))
    made, expected = tmp_path / "o" / "corpus", 0
    manifest = insert_files([tmp_path / "*.txt"], tmp_path / "o", PLAN)
    for n in range(3):
        path = made / f"{n}.txt"
        counted = count_files([path], manifest, layout=LINES)
        assert counted.as_inserted
        assert counted.shard == (n + 1, 3)
        expected += sum(one.expected for one in counted.classes)
        held = [one for one in manifest.entries if one.text in path.read_text()]
        lost = sum(one.repetitions == 2 for one in held)
        path.write_bytes((tmp_path / f"{n}.txt").read_bytes())
        counted = count_files([path], manifest, layout=LINES)
        assert set(counted.changed) == {one.id for one in held}
        assert [one.lost for one in counted.classes] == [len(held) - lost, lost]
    assert expected == sum(one.inserted for one in manifest.entries)
    sidecar_path(path.with_name("2.txt")).unlink()
    assert count_files([path], manifest, layout=LINES).shard is None
