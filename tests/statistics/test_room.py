import re
import subprocess
import sys
from pathlib import Path

import lmexposure.statistics as room

# A finder at the front of sys.meta_path that refuses the libraries above this room.
_WITHOUT_TORCH = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers", "datasets", "tokenizers", "accelerate"}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
try:
    import torch
except ImportError:
    import lmexposure.statistics as room
    print(room.sampled_exposure(3.5, range(1, 17)).value.tolist())
"""


def test_the_room_works_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCH], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "[2.0]"


def test_a_reader_of_a_bound_opens_its_file_and_what_bounds_share() -> None:
    for name in ("clopper_pearson", "from_exposure", "one_run"):
        text = (Path(room.__file__).parent / "bounds" / f"{name}.py").read_text(encoding="utf-8")
        shared = set(re.findall(r"from lmexposure\.statistics\.(\S+) import", text))
        assert shared <= {"bounds.bound", "results"}
