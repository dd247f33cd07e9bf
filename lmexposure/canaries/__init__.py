"""What is hidden, and where: formats, secrets, plans, insertion, the manifest.

A `Format` numbers all the ways to fill a text's holes. A `Plan` says how many of them to
hide and how often; one of the `insert_into_...` functions does it and gives a `Manifest`, which
holds all that is needed to score the canaries later. Standard library and numpy only; `datasets`
and pyarrow are loaded when a data set or a Parquet file is given.

>>> from lmexposure.canaries import Plan, insert_into_texts, load_format
>>> plan = Plan(formats=[load_format("pin")], canaries=2, repetitions=[1, 2], controls=1, seed=7)
>>> texts, manifest = insert_into_texts(["one", "two", "three"], plan)
>>> len(texts), [canary.id for canary in manifest.canaries][:3]
(9, ['pin/x1/0000', 'pin/x1/0001', 'pin/x2/0000'])
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.canaries.corpora.copies import Sidecar, insert_files
    from lmexposure.canaries.corpora.counting import ClassCount, CorpusCount, count_files, count_of
    from lmexposure.canaries.corpora.files import (
        LAYOUTS,
        corpus_files,
        guess_layout,
        layout_named,
        read_documents,
    )
    from lmexposure.canaries.corpora.preview import Preview, preview_insertion
    from lmexposure.canaries.corpora.removal import Removal, remove_from_files
    from lmexposure.canaries.format import Fill, Format, find_fills
    from lmexposure.canaries.language import Language
    from lmexposure.canaries.library import (
        FormatCheck,
        check_format_file,
        load_format,
        shipped_formats,
    )
    from lmexposure.canaries.manifest import CorpusRecord, Manifest
    from lmexposure.canaries.plan import (
        DEFAULT_REFERENCES,
        Canary,
        Plan,
        derive_seed,
        fresh_seed,
        permutation,
    )
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(
        __name__,
        {
            "corpora.copies": ["Sidecar", "insert_files"],
            "corpora.counting": ["ClassCount", "CorpusCount", "count_files", "count_of"],
            "corpora.files": [
                "LAYOUTS",
                "corpus_files",
                "guess_layout",
                "layout_named",
                "read_documents",
            ],
            "corpora.preview": ["Preview", "preview_insertion"],
            "corpora.removal": ["Removal", "remove_from_files"],
            "format": ["Fill", "Format", "find_fills"],
            "language": ["Language"],
            "library": ["FormatCheck", "check_format_file", "load_format", "shipped_formats"],
            "manifest": ["CorpusRecord", "Manifest"],
            "plan": [
                "DEFAULT_REFERENCES",
                "Canary",
                "Plan",
                "derive_seed",
                "fresh_seed",
                "permutation",
            ],
        },
    )

__all__ = [
    "DEFAULT_REFERENCES",
    "LAYOUTS",
    "Canary",
    "ClassCount",
    "CorpusCount",
    "CorpusRecord",
    "Fill",
    "Format",
    "FormatCheck",
    "Language",
    "Manifest",
    "Plan",
    "Preview",
    "Removal",
    "Sidecar",
    "check_format_file",
    "corpus_files",
    "count_files",
    "count_of",
    "derive_seed",
    "find_fills",
    "fresh_seed",
    "guess_layout",
    "insert_files",
    "layout_named",
    "load_format",
    "permutation",
    "preview_insertion",
    "read_documents",
    "remove_from_files",
    "shipped_formats",
]
