"""A home that cannot be written to is no reason to print what matplotlib thinks of it."""

import os
import subprocess
import sys
from pathlib import Path


def test_nothing_is_said_of_a_home_that_cannot_be_written_to(tmp_path: Path) -> None:
    none = str(tmp_path / "file" / "none")
    (tmp_path / "file").write_text("")
    homes = {"HOME": none, "XDG_CACHE_HOME": none, "XDG_CONFIG_HOME": none}
    kept = {name: value for name, value in os.environ.items() if name != "MPLCONFIGDIR"}
    done = subprocess.run(
        [sys.executable, "-c", "import lmexposure.reporting.charts"],
        env=kept | homes | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"", b"")
