"""Searching all fills: exact ranks, weighted draws, the likeliest fills, extraction."""

__all__: list[str] = []
