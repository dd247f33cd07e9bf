"""What a document is and what holds it, by name; the modules that know it are not imported here."""

from typing import NamedTuple


class Adapter(NamedTuple):
    """A kind of file: the module of `corpora` that knows it, and the suffixes that it goes by."""

    module: str
    suffixes: tuple[str, ...] = ()


ADAPTERS = {
    "lines": Adapter("text"),
    "paragraphs": Adapter("text"),
    "jsonl": Adapter("text", (".jsonl", ".ndjson")),
    "parquet": Adapter("parquet", (".parquet",)),
    "arrow": Adapter("arrow_file", (".arrow", ".feather")),
}
IN_MEMORY = ("dataset", "texts", "chat")
