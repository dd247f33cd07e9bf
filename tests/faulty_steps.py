"""Steps around right steps, which go wrong on purpose or are watched."""

import weakref
from typing import Any

import numpy as np


class Around:
    """Steps around other steps, which change nothing yet."""

    def __init__(self, steps: Any) -> None:
        self.steps = steps
        self.evaluated = 0  # whoever counts asks the steps within

    def start(self, ids: Any, columns: Any) -> Any:
        return self.steps.start(ids, columns)

    def advance(self, state: Any, parents: Any, tokens: Any, rows: Any, columns: Any) -> Any:
        return self.steps.advance(state, parents, tokens, rows, columns)


class Cramped(Around):
    """Out of memory above so many rows."""

    def __init__(self, steps: Any, most: int, message: str = "CUDA out of memory.") -> None:
        super().__init__(steps)
        self.most, self.message, self.refused = most, message, 0

    def advance(self, state: Any, parents: Any, *rest: Any) -> Any:
        if len(parents) > self.most:
            self.refused += 1
            raise RuntimeError(self.message)
        return super().advance(state, parents, *rest)


class Interrupted(Around):
    """Ctrl-C in the n-th step."""

    def __init__(self, steps: Any, after: int) -> None:
        super().__init__(steps)
        self.left = after

    def advance(self, *arguments: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return super().advance(*arguments)


class NanBehind(Around):
    """NaN behind one token, numbers behind all others."""

    def __init__(self, steps: Any, token: int) -> None:
        super().__init__(steps)
        self.token = token

    def advance(self, state: Any, parents: Any, tokens: Any, rows: Any, columns: Any) -> Any:
        new, bits = super().advance(state, parents, tokens, rows, columns)
        return new, np.where(tokens[rows] == self.token, np.nan, bits)


class Off(Around):
    """Costs that come out so much larger behind one token; right while `quiet`."""

    def __init__(self, steps: Any, by: float, token: int, *, quiet: bool = False) -> None:
        super().__init__(steps)
        self.by, self.token, self.quiet = by, token, quiet

    def advance(self, state: Any, parents: Any, tokens: Any, rows: Any, columns: Any) -> Any:
        new, bits = super().advance(state, parents, tokens, rows, columns)
        return new, bits if self.quiet else bits + self.by * (tokens[rows] == self.token)


class Watched(Around):
    """Counts the rows of all states that anyone still holds; `most` is the largest number."""

    def __init__(self, steps: Any) -> None:
        super().__init__(steps)
        self.most, self._alive = 0, list[Any]()

    def start(self, *arguments: Any) -> Any:
        return self._noted(super().start(*arguments))

    def advance(self, *arguments: Any) -> Any:
        return self._noted(super().advance(*arguments))

    def _noted(self, given: Any) -> Any:
        self._alive = [one for one in self._alive if one() is not None]
        self._alive.append(weakref.ref(given[0]))
        self.most = max(self.most, sum(one().rows for one in self._alive))
        return given
