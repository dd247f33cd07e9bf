"""Corpora in files, packed or not, one or many: what a document is and what holds it, by name.

The modules that know it are not imported here. A new kind of file is a module here and a line in
`ADAPTERS`. The module has `layout_of`, which gives a `FileLayout` (in `files.py`, with what each of
its methods is for); where documents are rows, it is best a `TableLayout` (in `tables.py`), which
needs only a reader and a writer.
"""

from typing import NamedTuple


class Adapter(NamedTuple):
    """A kind of file."""

    module: str  # of this package, which knows it
    suffixes: tuple[str, ...] = ()  # that it goes by
    hint: str = ""  # what a document of it is, where its name does not say it


ADAPTERS = {
    "lines": Adapter("text", hint="each of them"),
    "paragraphs": Adapter("text", hint="blank lines between"),
    "jsonl": Adapter("text", (".jsonl", ".ndjson")),
    "parquet": Adapter("tables", (".parquet",)),
    "arrow": Adapter("tables", (".arrow", ".feather")),
}
IN_MEMORY = ("dataset", "texts")


def layouts_listed(*, hints: bool = False) -> str:
    """All layouts of files, for a help."""
    *others, last = (
        f"{name} ({adapter.hint})" if hints and adapter.hint else name
        for name, adapter in ADAPTERS.items()
    )
    return f"{', '.join(others)} or {last}"
