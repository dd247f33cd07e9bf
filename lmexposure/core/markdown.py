"""Markdown of values from anywhere: every character plain, but for what is ours."""

import re
from collections.abc import Iterable, Sequence

# What CommonMark and GitHub's tables, autolinks, formulas and mentions give a meaning to.
_SPECIAL = re.compile(r"([\\`*\[\]<>|~&$@#]|(?<![^\W_])_|_(?![^\W_]))")
_AUTOLINK = re.compile(r"://|www\.", re.IGNORECASE)
_AT_THE_START = re.compile(r"^(\d+)([.)])|^([-+=:])")
_BLANK = re.compile(r"\s+")


def inline(text: str) -> str:
    r"""Text of one line, every character of it plain.

    >>> inline("a|b <i>*c*</i>")
    'a\\|b \\<i\\>\\*c\\*\\</i\\>'
    """
    line = _BLANK.sub(" ", text).strip()
    line = _SPECIAL.sub(r"\\\1", line)
    line = _AUTOLINK.sub(lambda found: found[0].replace(":", r"\:").replace(".", r"\."), line)
    return _AT_THE_START.sub(
        lambda found: f"{found[1]}\\{found[2]}" if found[1] else f"\\{found[3]}", line
    )


def code(text: str) -> str:
    r"""A name as code: between more backticks than it holds, fit for a table's cell.

    >>> code("x|`y`")
    '`` x\\|`y` ``'
    """
    line = _BLANK.sub(" ", text).strip().replace("|", r"\|")
    marks = "`" * (1 + _longest_run(line))
    pad = " " if "`" in line or not line else ""
    return f"{marks}{pad}{line}{pad}{marks}"


def fence(command: str) -> str:
    """A command line as a block of code, between more backticks than any of its lines holds."""
    marks = "`" * max(3, 1 + _longest_run(command))
    return f"{marks}sh\n{command.strip()}\n{marks}"


def bullets(lines: Sequence[str]) -> str:
    """A list, every line of it plain."""
    return "\n".join(f"- {inline(line)}" for line in lines)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A table whose cells are Markdown already; all columns but the first `left` hold numbers."""
    rule = ["---" if number < left else "---:" for number in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
