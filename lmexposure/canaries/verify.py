"""Texts or a file held against the manifest: is everything there as it was inserted?"""

from collections.abc import Iterable
from pathlib import Path

from lmexposure.canaries.checking import check_inserted
from lmexposure.canaries.corpora.shapes import scans_lines, shape_named, shape_texts
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.search import count_fills

__all__ = ["check_inserted", "verify_file", "verify_texts"]


def verify_texts(texts: Iterable[str], manifest: Manifest) -> None:
    """Check texts, one a document, against a manifest.

    Raises:
        CorpusError: see `check_inserted`.
    """
    fills = count_fills(manifest.plan.formats, enumerate(texts, 1), whole_lines=False)
    check_inserted(manifest.entries, fills, manifest.set_aside)


def verify_file(path: str | Path, manifest: Manifest) -> None:
    """Check a file, in the manifest's layout, against a manifest.

    Raises:
        CorpusError: see `check_inserted`; or the file cannot be read.
    """
    shape = shape_named(manifest.layout, text_field=manifest.corpus.text_field or "text")
    fills = count_fills(
        manifest.plan.formats,
        shape_texts(Path(path), shape, manifest.plan.formats),
        whole_lines=scans_lines(shape),
    )
    check_inserted(manifest.entries, fills, manifest.set_aside)
