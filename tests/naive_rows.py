"""Insertion into texts the naive way, which that into anything else is held against."""

from collections.abc import Sequence

from lmexposure.canaries import (
    Manifest,
)


def with_canaries(texts: Sequence[str], manifest: Manifest) -> list[str]:
    """Before each text, which is a document, all canaries that go there, by their ids."""
    canaries = sorted((c for c in manifest.entries if c.inserted), key=lambda canary: canary.id)
    inserted: list[str] = []
    for number, text in enumerate(texts):
        inserted += [*(c.text for c in canaries if number in c.positions), text]
    return inserted
