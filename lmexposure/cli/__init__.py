"""What people type: one file per command, each a thin skin over one library call."""

__all__: list[str] = []
