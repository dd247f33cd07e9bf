"""Whatever becomes of a study's files: the same numbers, or a refusal; never others in silence."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_looks import look
from made_results import small_result, small_run
from made_studies import MADE

import lmexposure as lx
from lmexposure.core import Study
from lmexposure.errors import LmexposureError

STATES = 300  # of all kinds together
Damage = Callable[[Path, Path, np.random.Generator], object]


def flipped(path: Path, other: Path, rng: np.random.Generator) -> None:
    """One bit of a byte anywhere."""
    whole = bytearray(path.read_bytes())
    whole[int(rng.integers(len(whole)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(bytes(whole))


def cut(path: Path, other: Path, rng: np.random.Generator) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: int(rng.integers(len(whole)))])


def swapped(path: Path, other: Path, rng: np.random.Generator) -> None:
    """The file of another study of the kind, in its place."""
    shutil.copy(other / path.name, path)


def lost(path: Path, other: Path, rng: np.random.Generator) -> None:
    path.unlink()


def linked(path: Path, other: Path, rng: np.random.Generator) -> None:
    """A link to the file of another study."""
    path.unlink()
    path.symlink_to(other / path.name)


def piped(path: Path, other: Path, rng: np.random.Generator) -> None:
    path.unlink()
    os.mkfifo(path)


def foldered(path: Path, other: Path, rng: np.random.Generator) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: tuple[Damage, ...] = (flipped, cut, swapped, lost, linked, piped, foldered)


def written(kind: str, home: Path, seed: int) -> Path:
    """A study with what lies next to it."""
    if kind == "result":
        small_run(home, memorised=((4, 40.0 / seed),), seed=seed)
        weights = small_result().model.weights_sha256
        theirs = look()
        model = theirs.model.model_copy(update={"weights_sha256": weights})
        beside(theirs.model_copy(update={"model": model}), home / "verbatim")
    else:
        beside(MADE[kind](seed), home)
    return home


def beside(made: Study, home: Path) -> None:
    """Written, with stand-ins of the files that it names by their hashes."""
    made.save(home)
    for name, sha256 in made.beside_it.items():
        (home / name).write_text(json.dumps({"schema": "x", "content_sha256": sha256}))


def numbers(home: Path) -> tuple[Any, ...]:
    """What a study says: its verdict, its numbers and its main table."""
    study = lx.open(home)
    return lx.check(home).to_dict(), list(study.numbers()), study.document().main.values


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", sorted(MADE))
def test_damaged_files_give_the_same_numbers_or_a_refusal(kind: str, tmp_path: Path) -> None:
    whole, other = (written(kind, tmp_path / f"of_{seed}", seed) for seed in (1, 2))
    known, strange = numbers(whole), numbers(other)
    assert known != strange
    names = [path.relative_to(whole) for path in whole.rglob("[!.]*") if path.is_file()]
    rng, refused = np.random.default_rng(0), 0
    pairs = itertools.cycle(itertools.product(names, DAMAGES))
    for state, (name, damage) in zip(range(-(-STATES // len(MADE))), pairs, strict=False):
        home = tmp_path / f"{state}"
        shutil.copytree(whole, home)
        damage(home / name, other / name.parent, rng)
        try:
            seen = numbers(home)
        except LmexposureError:
            refused += 1
        else:
            # A record that nothing lies next to is the other study, whole.
            replaced = name.name == f"{kind}.json" and damage in (swapped, linked)
            assert seen == (strange if replaced else known), (name, damage.__name__)
        shutil.rmtree(home)
    assert refused
