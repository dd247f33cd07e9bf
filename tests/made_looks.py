"""Records of looks at memorised text that nobody took."""

from typing import Any

import numpy as np

from lmexposure._files import content_hash
from lmexposure.studies import (
    ExtractableShare,
    FoundPassage,
    FreeExtraction,
    GroupTest,
    NearWindow,
    Passage,
    RunTest,
    SeenFrom,
    VerbatimDocument,
    VerbatimModel,
    VerbatimPassages,
    VerbatimRecord,
    VerbatimRun,
    VerbatimSettings,
    VerbatimWindows,
)

SECRET = "The lighthouse keeper counts seven gulls"


def group(windows: int = 100, among: int = 100, **changes: Any) -> VerbatimWindows:
    """Of ten documents; three windows come out within 1,000 tries."""
    curve = tuple(
        ExtractableShare(tries=tries, windows=found, share=found / 100, low=low, high=high)
        for tries, found, low, high in (
            (1, 0, 0.0, 0.0 if windows == among else 0.04),
            (1_000, 3, 0.03, 0.03) if windows == among else (1_000, 3, 0.006, 0.085),
        )
    )
    values: dict[str, Any] = {
        "windows": windows,
        "among": among,
        "documents": 10,
        "greedy": 2,
        "curve": curve,
        "bits_per_character": 1.25,
        "longest_run": 120,
    }
    return VerbatimWindows(**values | changes)


def document(number: int = 4, verdict: str = "memorised", **changes: Any) -> VerbatimDocument:
    run = VerbatimRun(
        characters=120, tokens=40, start=30, prompt=50, whole=True, reference=None, copies=3
    )
    values: dict[str, Any] = {
        "number": number,
        "copies": 3,
        "characters": 400,
        "windows": 5,
        "greedy": 2,
        "extractable": 3,
        "least_tries": 38.0,
        "run": run,
        "verdict": verdict,
        "why": "its run is longer than those of held-out documents",
        "unheld": 118,
        "p": 0.0005,
        "false_share": 0.005,
    }
    return VerbatimDocument(**values | changes)


def runs(p: float | None = 0.001, **changes: Any) -> RunTest:
    """Ten documents against ten; from 6 of them on the test rejects at half of 1 %."""
    values: dict[str, Any] = {
        "p": p,
        "p_rank_sum": p,
        "p_tail": p,
        "p_mean": p,
        "documents": 10,
        "held_out": 10,
        "units": 10,
        "near_copies": 0,
        "seen": (SeenFrom(documents=1, p=0.9), SeenFrom(documents=6, p=0.004)),
        "named_at": 0.01,
    }
    return RunTest(**values | changes)


def look(*rows: VerbatimDocument, **changes: Any) -> VerbatimRecord:
    """One document of ten is memorised, against held-out ones."""
    values: dict[str, Any] = {
        "model": VerbatimModel(name="my-model", weights_sha256="ab" * 32, parameters=1234),
        "reference": None,
        "corpus_sha256": "cd" * 32,
        "passages_sha256": content_hash(texts().to_dict()),
        "documents": 12,
        "distinct": 10,
        "too_short": 0,
        "characters": 4000,
        "settings": VerbatimSettings().resolved(),
        "corpus": group(),
        "of_reference": None,
        "held_out": group(greedy=0, longest_run=12),
        "rows": rows or (document(),),
        "near": (
            NearWindow(
                document=4, start=30, exact=0.02, low=0.03, high=0.07, open_mass=0.5, draws=200
            ),
        ),
        "free": FreeExtraction(
            samples=50,
            tokens=200,
            characters=9_000,
            least_match=50,
            with_match=4,
            longest=90,
            passages=(
                FoundPassage(samples=3, characters=90, document=4, start=10, copies=3),
                FoundPassage(samples=1, characters=60, document=7, start=0, copies=1),
            ),
            unseen=0.5,
            unseen_low=0.1,
            unseen_high=4.0,
            next_new=0.02,
            assumes="samples are independent",
        ),
        "runs": runs(),
        "worse_than_guessing": False,
        "group": GroupTest(
            p=0.001,
            members=10,
            held_out=10,
            bits_members=1.2,
            bits_held_out=1.9,
            difference=-0.7,
            low=-0.9,
            high=-0.5,
            beside_reference=False,
            assumes="the documents were split at random before the training",
            blind_auc=None,
            blind_p=None,
        ),
        "inputs_sha256": "ef" * 32,
        "measured": "2026-11-23T18:00:00Z",
        "lmexposure": "0.1.0",
        "warnings": (),
    }
    return VerbatimRecord(**values | changes)


def verbatim(seed: int = 0) -> VerbatimRecord:
    """Some documents of each verdict, beside controls or none, sampled or not."""
    rng = np.random.default_rng(seed)
    has_base, has_others, split, sampled, near, whole = (bool(x) for x in rng.random(6) < 0.6)
    names = ("my|model", "models/<b>", "=1+1")
    model = VerbatimModel(
        name=str(rng.choice(names)),
        weights_sha256=f"{seed % 7:064x}",
        parameters=int(rng.integers(10**4, 10**9)),
    )
    known = look()
    assert known.held_out is not None
    windows = 100 if whole else int(rng.integers(10, 100))
    verdicts = ["memorised", "reproduced", "explained", "no"][0 if has_base or has_others else 1 :]
    rows = tuple(
        _document(rng, number, str(rng.choice(verdicts)), has_others=has_others)
        for number in range(1, 2 + int(rng.integers(70)))
    )
    p = None if rng.random() < 0.2 else float(rng.random() ** 4)
    changes: dict[str, Any] = {
        "model": model,
        "reference": model.model_copy(update={"name": "base"}) if has_base else None,
        "distinct": 90,
        "too_short": int(rng.choice([0, 1, 60])),
        "corpus": _group(rng, windows, len(rows)),
        "of_reference": _group(rng, windows, len(rows)) if has_base else None,
        "held_out": _group(rng, 100, 10) if has_others else None,
        "near": known.near if near else (),
        "runs": None if not (has_others and split) else runs(p, documents=int(rng.integers(3, 20))),
        "group": known.group if has_others else None,
        "worse_than_guessing": bool(rng.random() < 0.2),
        "inputs_sha256": f"{seed:064x}",
        "warnings": ("a <b>warning</b>",) if rng.random() < 0.5 else (),
    }
    if known.free is not None:
        none = known.free.model_copy(
            update={"passages": (), "with_match": 0, "unseen_low": None, "unseen_high": None}
        )
        changes["free"] = (known.free if rng.random() < 0.7 else none) if sampled else None
    return look(*rows, **changes)


def _group(rng: np.random.Generator, windows: int, documents: int) -> VerbatimWindows:
    found = [int(n) for n in np.sort(rng.integers(0, windows + 1, 2))]
    room = 0.0 if windows == 100 else 0.05
    curve = tuple(
        ExtractableShare(
            tries=tries,
            windows=n,
            share=n / windows,
            low=max(0.0, n / windows - room),
            high=min(1.0, n / windows + room),
        )
        for tries, n in zip((1, 1_000), found, strict=True)
    )
    return group(
        windows=windows,
        documents=documents,
        greedy=found[0],
        curve=curve,
        bits_per_character=None if rng.random() < 0.1 else float(rng.exponential(2)),
        longest_run=int(rng.integers(0, 300)),
    )


def _document(
    rng: np.random.Generator, number: int, verdict: str, *, has_others: bool
) -> VerbatimDocument:
    length = int(rng.integers(1, 300))
    run = VerbatimRun(
        characters=length,
        tokens=1 + length // 4,
        start=int(rng.integers(0, 99)),
        prompt=int(rng.integers(0, 50)),
        whole=bool(rng.random() < 0.8),
        reference=None if rng.random() < 0.5 else int(rng.integers(0, 300)),
        copies=None if rng.random() < 0.5 else int(rng.integers(1, 9)),
    )
    return document(
        number,
        verdict,
        copies=int(rng.integers(1, 9)),
        least_tries=None if rng.random() < 0.3 else float(rng.exponential(1e4)),
        run=None if rng.random() < 0.1 else run,
        unheld=length if has_others else None,
        p=float(rng.random()) if has_others else None,
        false_share=float(rng.random()) if has_others else None,
    )


def texts() -> VerbatimPassages:
    passage = Passage(
        document=4,
        prompt="It is said: ",
        output=f"{SECRET} & more",
        original=f"{SECRET} <b>again",
        matching=len(SECRET) + 1,
    )
    return VerbatimPassages(passages=(passage,), found=(SECRET, "another"))
