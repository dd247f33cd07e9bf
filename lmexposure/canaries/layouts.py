"""What a document is and what holds it, by name; the modules that know it are not imported here."""

# Layout of files: the module of `corpora` that knows it, and the suffixes that it goes by.
ADAPTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "lines": ("text", ()),
    "paragraphs": ("text", ()),
    "jsonl": ("text", (".jsonl", ".ndjson")),
    "parquet": ("parquet", (".parquet",)),
    "arrow": ("arrow_file", (".arrow", ".feather")),
}
IN_MEMORY = ("dataset", "texts", "chat")
