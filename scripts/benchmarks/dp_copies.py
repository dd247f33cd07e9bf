"""The parts of scripts/benchmark_dp_copies that are not commands of lmexposure."""

import json
import math
import sys
from collections import Counter
from pathlib import Path

from lmexposure.canaries import Manifest
from lmexposure.cli.console import print_table
from lmexposure.records import Result

_SHORTEST = 15  # characters of a document


def lines(text: str, size: str) -> None:
    """Records of the first bytes of a text, a long enough line each."""
    for line in Path(text).read_bytes()[: int(size)].decode("utf-8", "ignore").splitlines():
        if len(line.strip()) > _SHORTEST:
            print(json.dumps({"text": line.strip()}))


def users(inserted: str) -> None:
    """The same records, and whose they are: of each canary one user, of the rest nobody's."""
    texts = [canary.text for canary in Manifest.read(Path(inserted) / "manifest.json").canaries]
    numbers = {text: number for number, text in enumerate(texts)}
    with (Path(inserted) / "corpus" / "lines.jsonl").open(encoding="utf-8") as stream:
        for line in stream:
            record = json.loads(line)
            if record["text"] in numbers:
                record["user"] = f"user {numbers[record['text']]}"
            print(json.dumps(record))


def table(*trainings: str) -> None:
    """Exposure of the canaries, and what the models are good for."""
    records = map(json.loads, Path("users.jsonl").read_bytes().splitlines())
    counts = Counter("".join(f"\n{record['text']}" for record in records))
    total = counts.total()
    unigram = -sum(n / total * math.log2(n / total) for n in counts.values())
    rows = []
    for name in trainings:
        training = json.loads((Path(name) / "training.json").read_bytes())["result"]
        result = Result.read(Path(name) / "measured" / "result.json")
        canaries = next(row for row in result.summary if row.repetitions == 10)
        claim = training["claim"]
        rows.append(
            [
                name,
                "n/a" if claim is None else f"{claim['epsilon']:.3f}",
                f"{training['validation_bits']:.3f}",
                f"{canaries.median.value:.2f}",
                f"{canaries.median.low:.2f} .. {canaries.median.high:.2f}",
            ]
        )
    head = ["unit", "claim", "validation bits a character", "median exposure", "interval"]
    print_table(head, rows)
    print(f"a unigram model of the corpus: {unigram:.3f} bits a character")


if __name__ == "__main__":
    {"lines": lines, "users": users, "table": table}[sys.argv[1]](*sys.argv[2:])
