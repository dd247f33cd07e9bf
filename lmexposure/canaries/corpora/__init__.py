"""Corpora in files, packed or not, one or many: canaries in, read back, counted, out again."""

__all__: list[str] = []
