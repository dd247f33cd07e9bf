"""Writes the beginning of the demo's text: whole lines of Python's own language reference.

demo_text.py OUT [--characters 100000]
"""

import argparse
import tempfile
from pathlib import Path

from lmexposure.audit import demo_corpus


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--characters", type=int, default=100_000, help="at most")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        text = demo_corpus(Path(passing) / "topics.txt").read_text(encoding="utf-8")
    part = text[: text.rindex("\n", 0, arguments.characters) + 1]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    if not arguments.out.exists() or arguments.out.read_text(encoding="utf-8") != part:
        arguments.out.write_text(part, encoding="utf-8")


if __name__ == "__main__":
    main()
