"""One hash for a whole directory, to compare what two runs left."""

import hashlib
from pathlib import Path

from lmexposure._files import sha256_file


def sha256_tree(directory: Path) -> str:
    """SHA-256 over the names and contents of a directory's files, in sorted order."""
    digest = hashlib.sha256()
    for path in sorted(p for p in Path(directory).rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(directory).as_posix()}\0{sha256_file(path)}\n".encode())
    return digest.hexdigest()
