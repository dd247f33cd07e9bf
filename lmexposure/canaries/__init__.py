"""What is hidden, and where: formats, secrets, plans, insertion, the manifest.

A `CanaryFormat` numbers all the ways to fill a text's holes. A `Plan` says how many of them to
hide and how often; one of the `insert_into_...` functions does it and gives a `Manifest`, which
holds all that is needed to score the canaries later. Standard library only; `datasets` is loaded
when a data set is given.

>>> plan = Plan(formats=[load_format("pin")], canaries=2, repetitions=[1, 2], controls=1, seed=7)
>>> texts, manifest = insert_into_texts(["one", "two", "three"], plan)
>>> len(texts), [canary.id for canary in manifest.canaries][:3]
(9, ['pin/x1/0000', 'pin/x1/0001', 'pin/x2/0000'])
"""

from lmexposure.canaries.dataset import dataset_texts, insert_into_dataset
from lmexposure.canaries.files import Preview, insert_into_file, preview_insertion
from lmexposure.canaries.format import CanaryFormat
from lmexposure.canaries.insertion import insert_into_texts
from lmexposure.canaries.language import Language
from lmexposure.canaries.layouts import LAYOUTS, guess_layout, read_documents, separator_of
from lmexposure.canaries.library import (
    FormatCheck,
    check_format_file,
    load_format,
    shipped_formats,
)
from lmexposure.canaries.manifest import DEFAULT_REFERENCES, CorpusRecord, Manifest
from lmexposure.canaries.plan import Canary, Plan
from lmexposure.canaries.randomness import derive_seed
from lmexposure.canaries.search import Fill, find_fills
from lmexposure.canaries.verify import verify_file, verify_texts

__all__ = [
    "DEFAULT_REFERENCES",
    "LAYOUTS",
    "Canary",
    "CanaryFormat",
    "CorpusRecord",
    "Fill",
    "FormatCheck",
    "Language",
    "Manifest",
    "Plan",
    "Preview",
    "check_format_file",
    "dataset_texts",
    "derive_seed",
    "find_fills",
    "guess_layout",
    "insert_into_dataset",
    "insert_into_file",
    "insert_into_texts",
    "load_format",
    "preview_insertion",
    "read_documents",
    "separator_of",
    "shipped_formats",
    "verify_file",
    "verify_texts",
]
