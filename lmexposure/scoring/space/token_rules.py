"""The rules by which the fills of a format become paths of tokens, the cheapest proof first."""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmexposure.scoring.space.byte_language import ByteLanguage
from lmexposure.scoring.space.ground import Ground
from lmexposure.scoring.space.merges import Merges, Spines
from lmexposure.scoring.space.pair_graph import PairGraph, Places
from lmexposure.scoring.space.pieces import CutsDepend, Pieces, Texts
from lmexposure.scoring.space.token_graph import ListedGraph, TokenGraph
from lmexposure.scoring.space.vocabulary import FALLBACK, ByteNode

_MOST_TOKENS = 20_000  # the rule takes a few bytes for each pair of them
_MOST_CELLS = 1 << 25  # places x classes x limbs
_MOST_ENCODINGS = 100_000
_MOST_COMPLETIONS = 12


class NotApplicable(Exception):  # noqa: N818  it ends an attempt, not the program
    """A rule does not hold for this tokenizer and format; the message says why."""


class TooMuch(NotApplicable):
    """A rule takes too long here, and so does every larger one of its kind."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """What a rule gives.

    Attributes:
        rule: its name.
        graph: the paths behind `beginning`.
        beginning: tokens that all of them share.
        examples: fills to look up, besides random ones: they try what was taken for granted.
    """

    rule: str
    graph: TokenGraph
    beginning: list[int]
    examples: list[str]


def by_merges(ground: Ground) -> Built:
    """Neighbours by the merges of a BPE tokenizer, exactly.

    Raises:
        NotApplicable: the tokenizer is no such one.
    """
    merges = Merges.of(ground.tokenizer)
    if merges is None:
        raise NotApplicable("it does not merge pairs of tokens")
    if ground.lead is None:
        raise NotApplicable("it does not keep the text as it is")
    try:
        pieces = Pieces.of(_texts(ground, ground.lead))
    except CutsDepend as reason:
        raise NotApplicable(str(reason)) from None
    return Built(
        rule="merges",
        graph=_pair_graph(ground, merges, pieces),
        beginning=ground.ids,
        examples=pieces.examples,
    )


def by_enumeration(ground: Ground) -> Built:
    """All encodings, one by one; where two fills have one, it counts as one."""
    moves: list[dict[int, int]] = [{}]
    complete = [False]
    for row in ground.encode([ground.format.text(i) for i in range(ground.format.size)]):
        state = 0
        for token in row[ground.before :]:
            if token not in moves[state]:
                moves[state][token] = len(moves)
                moves.append({})
                complete.append(False)
            state = moves[state][token]
        complete[state] = True
    graph = ListedGraph(moves, complete, 0)
    return Built(
        rule="enumerated", graph=graph, beginning=ground.rows[0][: ground.before], examples=[]
    )


def by_windows(ground: Ground, memory: int) -> Built:
    """What may follow the last `memory` tokens, asked of the tokenizer in whole texts.

    Raises:
        NotApplicable: the tokenizer changes the text, or there is too much to ask.
    """
    if ground.lead is None:
        raise NotApplicable("it does not keep the text as it is")
    graph = _Windows(ground, ground.lead, memory).graph()
    return Built(rule="windows", graph=graph, beginning=ground.ids, examples=[])


def _texts(ground: Ground, lead: str) -> Texts:
    backend = ground.tokenizer.backend_tokenizer
    real, surface = ground.real_lead, ground.vocabulary.surfaces
    unknown: frozenset[str] = frozenset()
    if ground.vocabulary.fallback:
        characters = sorted(set(ground.format.characters) | set(lead))
        rows = [backend.encode(c, add_special_tokens=False).ids for c in characters]
        unknown = frozenset(
            character
            for character, row in zip(characters, rows, strict=True)
            if not ground.vocabulary.fallback.isdisjoint(row)
        )

    def cuts(fill: str) -> frozenset[int]:
        encoding = backend.encode(real + fill, add_special_tokens=False)
        found, text, last = [], b"", None
        for token, word in zip(encoding.ids, encoding.word_ids, strict=True):
            if word != last:
                found.append(len(text))
            spelled, last = surface[token], word
            if spelled is None:
                raise CutsDepend("it has no token for some character")
            text += spelled
        if text != (lead + fill).encode():
            raise CutsDepend("it does not keep the text as it is")
        return frozenset(found)

    return Texts(format=ground.format, lead=lead, begun=ground.begun, unknown=unknown, cuts=cuts)


def _fitting(root: ByteNode, pieces: Pieces) -> NDArray[np.int64]:
    """Every token at every place where no cut tears it.

    Returns:
        rows (N, 4): the place, the token, the place behind it, whether a piece begins with it.
    """
    n = len(pieces.moves)
    behind = np.full((2 * FALLBACK, n), -1, dtype=np.int64)  # by symbol and place
    cut = np.zeros((2 * FALLBACK, n), dtype=np.bool_)
    for place, moves in enumerate(pieces.moves):
        for symbol, (there, begins) in moves.items():
            behind[symbol, place], cut[symbol, place] = there, begins
    rows = []
    places = np.arange(n)
    todo = [(child, symbol, places, places, None) for symbol, child in root.children.items()]
    while todo:
        node, symbol, starts, heres, free = todo.pop()
        there = behind[symbol, heres]
        kept = (there >= 0) & ((free is None) | ~cut[symbol, heres])
        if not kept.any():
            continue
        starts, there = starts[kept], there[kept]
        free = cut[symbol, heres[kept]] if free is None else free[kept]
        rows += [np.stack([starts, np.full(len(starts), t), there, free]) for t in node.tokens]
        todo += [(child, s, starts, there, free) for s, child in node.children.items()]
    return np.concatenate(rows, axis=1).T if rows else np.empty((0, 4), dtype=np.int64)


def _pair_graph(ground: Ground, merges: Merges, pieces: Pieces) -> PairGraph:
    fitting = _fitting(ground.vocabulary.trie, pieces)
    last = ground.ids[-1] if len(ground.ids) > ground.before else -1
    spines = _spines(ground, merges, set(fitting[:, 1].tolist()), last)
    if last not in spines:  # nobody knows what may follow it but behind a cut
        fitting = fitting[(fitting[:, 0] != pieces.start) | (fitting[:, 3] == 1)]
    ids = np.array(sorted(spines), dtype=np.int64)
    neighbours = merges.neighbours([spines[token] for token in ids.tolist()])
    bits = ground.format.size.bit_length()
    if len(pieces.moves) * len(neighbours.follows) * (bits // 30 + 2) > _MOST_CELLS:
        raise NotApplicable("its space has too many states to count")
    fitting = fitting[np.isin(fitting[:, 1], ids)]
    fitting[:, 1] = np.searchsorted(ids, fitting[:, 1])
    fitting = fitting[np.lexsort((fitting[:, 1], fitting[:, 0]))]
    ends = np.searchsorted(fitting[:, 0], np.arange(len(pieces.moves) + 1))
    places: Places = [
        (fitting[a:b, 1], fitting[a:b, 2], fitting[a:b, 3].astype(np.bool_))
        for a, b in itertools.pairwise(ends.tolist())
    ]
    start = (pieces.start, int(np.searchsorted(ids, last)) if last in spines else 0)
    return PairGraph(places, pieces.complete, ids, neighbours, start, bits)


def _spines(ground: Ground, merges: Merges, tokens: set[int], last: int) -> dict[int, Spines]:
    """How each token is merged; tokens that no merge makes are left out."""
    found: dict[int, Spines] = {}
    for token in tokens | {last}:
        spines = merges.spines(token, whole=token in ground.vocabulary.fallback)
        if spines is not None:
            found[token] = spines
        elif token != last and merges.whole_words:
            raise NotApplicable("it has tokens for whole words that no merge makes")
    if len(found) > _MOST_TOKENS:
        raise NotApplicable(f"more than {_MOST_TOKENS} of its tokens fit the format")
    return found


class _Windows:
    """Asks the tokenizer what may follow a path, for one path to each state."""

    def __init__(self, ground: Ground, lead: str, memory: int) -> None:
        self._ground, self._memory = ground, memory
        self._skip = len(lead.encode())
        self._texts = ByteLanguage(ground.format.language, known=lead.encode())
        self._asked = 0

    def graph(self) -> ListedGraph:
        ground = self._ground
        begun = ground.vocabulary.spelled(ground.ids[ground.before :]) or b""
        start = self._texts.read(self._texts.start, begun)
        assert start is not None, "the shared tokens begin a fill"
        memory = tuple(ground.ids[ground.before :][-self._memory :])
        numbers = {(start, memory): 0}
        nodes: list[tuple[int, list[int], bytes]] = [(start, ground.ids, begun)]
        moves: list[dict[int, int]] = []
        for state, path, text in nodes:  # grows while it is read
            moves.append({})
            for token, there in self._follow(state, path, text):
                key = (there, (*path[ground.before :], token)[-self._memory :])
                if key not in numbers:
                    numbers[key] = len(nodes)
                    spelled = text + ground.vocabulary.surface(token)
                    nodes.append((there, [*path, token], spelled))
                moves[-1][token] = numbers[key]
        complete = [self._texts.complete(state) for state, _, _ in nodes]
        return ListedGraph(moves, complete, 0)

    def _follow(self, state: int, path: list[int], text: bytes) -> list[tuple[int, int]]:
        """The tokens that follow a path in the encoding of some fill."""
        options = self._ground.vocabulary.continuations(state, self._texts.advance)
        fills: dict[str, None] = {}
        for token, there in options:
            spelled = text + self._ground.vocabulary.surface(token)
            for rest in self._completions(there):
                fills[(spelled + rest)[self._skip :].decode()] = None
        self._asked += len(fills)
        if self._asked > _MOST_ENCODINGS:
            raise TooMuch("there are too many texts to ask it about")
        rows = self._ground.encode(list(fills))
        seen = {r[len(path)] for r in rows if r[: len(path)] == path and len(r) > len(path)}
        return [(token, there) for token, there in options if token in seen]

    def _completions(self, state: int) -> list[bytes]:
        """Some ends of fills, one for each byte that may come next."""
        found = [b""] if self._texts.complete(state) else []
        first = sorted(self._texts.moves(state).items())
        for byte, there in first[:: max(1, -(-len(first) // _MOST_COMPLETIONS))]:
            rest = bytearray([byte])
            while not self._texts.complete(there):
                byte, there = min(self._texts.moves(there).items())
                rest.append(byte)
            found.append(bytes(rest))
        return found
