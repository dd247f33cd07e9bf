"""What the unit of a promise hides: exposure of canaries of ten copies, by document and by user.

A plain training, a private one whose unit is the document, and one whose unit is the user who wrote
all ten copies of a canary.
"""

import json
import tempfile
from pathlib import Path

from harness import Claims, Namespace, spent

from lmexposure.canaries import Manifest
from lmexposure.cli.console import print_table
from lmexposure.studies import Result

ARGUMENTS = {"text": Path, "bytes": 200_000, "epochs": 20}
_SHORTEST, _COPIES = 15, 10  # characters of a document, repetitions of a canary
_PRIVATE = "--method dp-sgd --epsilon 5 --delta 1e-4 --clip 0.3 --expected-batch 512"
_TRAININGS = {
    "plain": "",
    "document": f"{_PRIVATE} --learning-rate 0.01",
    "user": f"{_PRIVATE} --learning-rate 0.01 --unit-field user",
}


def copies(given: Namespace) -> Claims:
    """Inserted once, trained three times, measured."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        lines = given.text.read_bytes()[: given.bytes].decode("utf-8", "ignore").splitlines()
        rows = (json.dumps({"text": line}) for line in lines if len(line.strip()) > _SHORTEST)
        (home / "lines.jsonl").write_text("\n".join([*rows, ""]), encoding="utf-8")
        _command(
            home, f"insert lines.jsonl --canaries 20 --repetitions {_COPIES} --seed 7 --out in"
        )
        users(home)
        size = f"--manifest in/manifest.json --layers 1 --units 128 --epochs {given.epochs}"
        rows, exposures = [], []
        for unit, flags in _TRAININGS.items():
            _command(home, f"train users.jsonl {size} {flags} --out {unit}")
            _command(home, f"measure {unit}/model in/manifest.json --out {unit}/measured")
            training = json.loads((home / unit / "training.json").read_bytes())["result"]
            result = Result.read(home / unit / "measured" / "result.json")
            median = next(row for row in result.summary if row.repetitions == _COPIES).median
            exposures.append(median.value)
            ends = f"{median.low:.2f} .. {median.high:.2f}"
            rows.append([unit, f"{training['validation_bits']:.3f}", f"{median.value:.2f}", ends])
    print_table(["unit", "validation bits a character", "median exposure", "interval"], rows)
    plain, document, user = exposures
    yield plain > document > user, "exposure falls from plain to document to user"


def users(home: Path) -> None:
    """The same records, and whose they are: of each canary one user, of the rest nobody's."""
    texts = [canary.text for canary in Manifest.read(home / "in" / "manifest.json").canaries]
    numbers = {text: number for number, text in enumerate(texts)}
    records = map(json.loads, (home / "in" / "corpus" / "lines.jsonl").read_bytes().splitlines())
    owned = (
        record | ({"user": f"user {numbers[record['text']]}"} if record["text"] in numbers else {})
        for record in records
    )
    rows = "".join(json.dumps(record) + "\n" for record in owned)
    (home / "users.jsonl").write_text(rows, encoding="utf-8")


def _command(home: Path, words: str) -> None:
    spent("-m", "lmexposure", *words.split(), directory=home)


PARTS = {"copies": copies}
