"""What people type: a table of commands, each a thin skin over one library call."""

__all__: list[str] = []
