"""The room's face, and how light it is."""

import subprocess
import sys

from lmexposure import canaries


def test_every_public_name_exists_and_is_documented() -> None:
    assert canaries.__all__ == sorted(set(canaries.__all__))
    for name in canaries.__all__:
        value = getattr(canaries, name)
        assert name.isupper() or value.__doc__


def test_importing_loads_nothing_heavy() -> None:
    code = (
        "import sys, lmexposure.canaries as room; room.shipped_formats();"
        "print(sorted({'torch', 'datasets', 'transformers', 'scipy'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
