"""What is hidden, and where: formats, secrets, plans, insertion, the manifest.

A `Format` numbers all the ways to fill a text's holes. A `Plan` says how many of them to
hide and how often. `lmexposure.insert` does that among documents in memory, `insert_files` in files
and an `InsertionStep` in rows that an engine holds; each gives a `Manifest`, which holds all that
is needed to score the canaries later. Standard library and numpy only; pyarrow is loaded when a
Parquet file is given.

>>> from lmexposure.canaries import InsertionStep, Plan
>>> plan = Plan(formats=["pin"], canaries=2, repetitions=[1, 2], controls=1, seed=7)
>>> step = InsertionStep.of(plan, total=3)
>>> len(step({"text": ["one", "two", "three"]}, [0, 1, 2])["text"])
9
>>> [canary.id for canary in step.manifest.canaries][:3]
['pin/x1/0000', 'pin/x1/0001', 'pin/x2/0000']
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.canaries.copies import (
        Files,
        Preview,
        Reading,
        copies_of,
        insert_copies,
        insert_files,
        listed_files,
        preview_insertion,
    )
    from lmexposure.canaries.corpora import ADAPTERS, layouts_listed
    from lmexposure.canaries.corpora.files import (
        LAYOUTS,
        OF_RECORDS,
        FileCorpus,
        Sidecar,
        corpus_files,
        guess_layout,
        in_insertion_order,
        layout_for,
        layout_named,
        layout_of,
        open_content,
        packing,
        read_documents,
        read_records,
        read_sidecars,
    )
    from lmexposure.canaries.documents import (
        SPOOL,
        Inserted,
        insert,
        insert_through,
        is_stream,
        kept_input,
        refuse_inserted,
        spooled,
    )
    from lmexposure.canaries.fills import Fill, Found, find_fills
    from lmexposure.canaries.format import (
        ALWAYS,
        PARTNER,
        PARTNERS,
        UNIFORM,
        Format,
        FormatCheck,
        check_format_file,
        load_format,
        shipped_formats,
    )
    from lmexposure.canaries.identifiers import Identifier, Identifiers, find_identifiers
    from lmexposure.canaries.insertion import Placement
    from lmexposure.canaries.kinds import KINDS, Kind, Material
    from lmexposure.canaries.language import Language
    from lmexposure.canaries.manifest import CorpusRecord, Manifest
    from lmexposure.canaries.plan import (
        DEFAULT_REFERENCES,
        WITNESS,
        Canary,
        Plan,
        derive_seed,
        fresh_seed,
        permutation,
        witness_copies,
    )
    from lmexposure.canaries.recognition import recognise, wrapping_among
    from lmexposure.canaries.rows import InsertionStep
    from lmexposure.canaries.verification import (
        ClassCount,
        CorpusCount,
        Removal,
        corpus_count,
        count_of,
        file_names,
        remove,
    )
    from lmexposure.canaries.wrapping import FORMS, Wrapping
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)
