"""A hash that is worked out beside the reading, on another core."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

__all__ = ["BackgroundHash", "background_hash"]


class BackgroundHash:
    """SHA-256 of bytes that come in order; each piece is hashed while the next one is made."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._digest, self._pool = hashlib.sha256(), pool
        self._waiting: Future[None] | None = None

    def update(self, data: bytes) -> None:
        """Hash this too, after what came before it."""
        self._finish()
        self._waiting = self._pool.submit(self._digest.update, data)

    def hexdigest(self) -> str:
        """The hash of all of it, in hexadecimal."""
        self._finish()
        return self._digest.hexdigest()

    def _finish(self) -> None:
        # One piece under way at most, so that memory stays constant.
        if self._waiting is not None:
            self._waiting.result()


@contextmanager
def background_hash() -> Iterator[BackgroundHash]:
    """A hash with a thread of its own."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield BackgroundHash(pool)
