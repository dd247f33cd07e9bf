"""Searching all fills: exact ranks, weighted draws, the likeliest fills, extraction."""
