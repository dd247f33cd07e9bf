"""Inserted means inserted: every canary as often as planned, and no other fill at all."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from lmexposure.canaries.layouts import layout_named
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Canary
from lmexposure.canaries.search import Found, count_fills
from lmexposure.canaries.textfile import text_blocks
from lmexposure.errors import CorpusError

__all__ = ["check_inserted", "verify_file", "verify_texts"]


def check_inserted(
    canaries: Sequence[Canary],
    fills: Mapping[str, Found],
    set_aside: Mapping[str, Collection[int]],
) -> None:
    """Compare what stands in a corpus with what should.

    Raises:
        CorpusError: a canary stands too rarely or too often (its id), a control or an excluded
            candidate stands there, or a fill that nobody planned (its places).
    """
    for canary in canaries:
        count = fills[canary.format].counts[canary.index]
        if count != canary.inserted:
            raise CorpusError(
                f"{canary.id} stands {count} times in the corpus instead of {canary.inserted}; "
                "insert again into the original corpus"
            )
    for name, found in fills.items():
        planned = {one.index for one in canaries if one.format == name}
        strange = found.counts.keys() - planned - set(set_aside.get(name, ()))
        if strange:
            raise CorpusError(
                f"fills of format {name!r} that are not of the manifest stand in the corpus "
                f"{found.named(strange, 'line or record')}; insert again into the original corpus"
            )


def verify_texts(texts: Iterable[str], manifest: Manifest) -> None:
    """Check texts, one a document, against a manifest.

    Raises:
        CorpusError: see `check_inserted`.
    """
    fills = count_fills(manifest.plan.formats, enumerate(texts, 1), whole_lines=False)
    check_inserted(manifest.canaries, fills, manifest.set_aside)


def verify_file(path: str | Path, manifest: Manifest) -> None:
    """Check a file, in the manifest's layout, against a manifest.

    Raises:
        CorpusError: see `check_inserted`; or the file cannot be read.
    """
    layout = layout_named(manifest.layout, text_field=manifest.corpus.text_field or "text")
    texts = (pair for block in text_blocks(Path(path)) for pair in layout.texts(block))
    fills = count_fills(manifest.plan.formats, texts, whole_lines=layout.scans_lines)
    check_inserted(manifest.canaries, fills, manifest.set_aside)
