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
    from lmexposure.canaries.corpora.counting import ClassCount, CorpusCount, count_files, count_of
    from lmexposure.canaries.corpora.files import insert_into_file
    from lmexposure.canaries.corpora.layouts import LAYOUTS, separator_of
    from lmexposure.canaries.corpora.preview import Preview, preview_insertion
    from lmexposure.canaries.corpora.removal import Removal, remove_from_files
    from lmexposure.canaries.corpora.shapes import (
        SHAPES,
        Shape,
        corpus_sha256,
        guess_layout,
        read_documents,
        shape_named,
    )
    from lmexposure.canaries.corpora.sharded import insert_into_files
    from lmexposure.canaries.corpora.shards import Sidecar, corpus_files
    from lmexposure.canaries.corpora.streams import insert_into_pipe
    from lmexposure.canaries.dataset import dataset_texts, insert_into_dataset
    from lmexposure.canaries.engine_tables import insert_into_pandas
    from lmexposure.canaries.format import Format
    from lmexposure.canaries.insertion import insert_into_texts
    from lmexposure.canaries.language import Language
    from lmexposure.canaries.library import (
        FormatCheck,
        check_format_file,
        load_format,
        shipped_formats,
    )
    from lmexposure.canaries.manifest import CorpusRecord, Manifest
    from lmexposure.canaries.numbered_rows import InsertionStep, manifest_of_rows
    from lmexposure.canaries.plan import (
        DEFAULT_REFERENCES,
        Canary,
        Plan,
        derive_seed,
        fresh_seed,
        permutation,
    )
    from lmexposure.canaries.search import Fill, find_fills
    from lmexposure.canaries.verify import verify_file, verify_texts
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(
        __name__,
        {
            "corpora.counting": ["ClassCount", "CorpusCount", "count_files", "count_of"],
            "corpora.files": ["insert_into_file"],
            "corpora.layouts": ["LAYOUTS", "separator_of"],
            "corpora.preview": ["Preview", "preview_insertion"],
            "corpora.removal": ["Removal", "remove_from_files"],
            "corpora.shapes": [
                "SHAPES",
                "Shape",
                "corpus_sha256",
                "guess_layout",
                "read_documents",
                "shape_named",
            ],
            "corpora.sharded": ["insert_into_files"],
            "corpora.shards": ["Sidecar", "corpus_files"],
            "corpora.streams": ["insert_into_pipe"],
            "dataset": ["dataset_texts", "insert_into_dataset"],
            "engine_tables": ["insert_into_pandas"],
            "format": ["Format"],
            "insertion": ["insert_into_texts"],
            "language": ["Language"],
            "library": ["FormatCheck", "check_format_file", "load_format", "shipped_formats"],
            "manifest": ["CorpusRecord", "Manifest"],
            "numbered_rows": ["InsertionStep", "manifest_of_rows"],
            "plan": [
                "DEFAULT_REFERENCES",
                "Canary",
                "Plan",
                "derive_seed",
                "fresh_seed",
                "permutation",
            ],
            "search": ["Fill", "find_fills"],
            "verify": ["verify_file", "verify_texts"],
        },
    )

__all__ = [
    "DEFAULT_REFERENCES",
    "LAYOUTS",
    "SHAPES",
    "Canary",
    "ClassCount",
    "CorpusCount",
    "CorpusRecord",
    "Fill",
    "Format",
    "FormatCheck",
    "InsertionStep",
    "Language",
    "Manifest",
    "Plan",
    "Preview",
    "Removal",
    "Shape",
    "Sidecar",
    "check_format_file",
    "corpus_files",
    "corpus_sha256",
    "count_files",
    "count_of",
    "dataset_texts",
    "derive_seed",
    "find_fills",
    "fresh_seed",
    "guess_layout",
    "insert_into_dataset",
    "insert_into_file",
    "insert_into_files",
    "insert_into_pandas",
    "insert_into_pipe",
    "insert_into_texts",
    "load_format",
    "manifest_of_rows",
    "permutation",
    "preview_insertion",
    "read_documents",
    "remove_from_files",
    "separator_of",
    "shape_named",
    "shipped_formats",
    "verify_file",
    "verify_texts",
]
