"""What holds for every test of this room."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of small files are written; that they outlive a power cut is not asked here."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
