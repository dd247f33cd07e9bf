"""Progress as a notebook shows it: a bar for each part of long work, in one place below the cell.

IPython is found, not imported: elsewhere than in a notebook nothing of it is there.
"""

import sys
import time
from importlib import import_module
from typing import Any

from lmexposure._style import html, visible

_EVERY = 0.2  # seconds between two pictures of one part


class NotebookBars:
    """Called with how far a part is; one cell's output shows all parts."""

    def __init__(self) -> None:
        self._parts: dict[str, str] = {}
        self._drawn = dict[str, float]()
        self._shown: Any = None  # what can be drawn anew

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Draw it, unless it was drawn a moment ago; its end in any case."""
        now = time.monotonic()
        if done < total and now - self._drawn.get(what, -_EVERY) < _EVERY:
            return
        self._drawn[what] = now
        said = html(
            " ".join(filter(None, [visible(what), f"{done:,} of {total:,}", visible(note)]))
        )
        self._parts[what] = f'<progress value="{done}" max="{max(1, total)}"></progress> {said}'
        drawn = import_module("IPython.display")
        picture = drawn.HTML("<br>".join(self._parts.values()))
        if self._shown is None:
            self._shown = drawn.display(picture, display_id=True)
        else:
            self._shown.update(picture)


def notebook_bars() -> NotebookBars | None:
    """Bars where this runs in the kernel of a notebook; None elsewhere, in a terminal too."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return NotebookBars() if shell is not None and "IPKernelApp" in shell.config else None
