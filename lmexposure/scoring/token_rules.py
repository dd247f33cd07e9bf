"""The rules by which the fills of a format become paths of tokens, without any look at merges.

A rule takes an `EncodedSample`, what the fills share as their encodings show it, and gives a graph
of states and tokens without cycles, in which each fill is one path from the root. The two rules
here ask the tokenizer itself: about all encodings, or about the last few tokens. The third one,
for BPE tokenizers, is in `bpe_merges`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lmexposure.canaries import Format
from lmexposure.models import AnyContext, encode_documents, encode_in_context
from lmexposure.scoring.beginnings import Surroundings, literal_tokens, shared_tokens, surroundings
from lmexposure.scoring.runtime import Bools, Floats, Ints
from lmexposure.scoring.spelling import ByteLanguage, Vocabulary, children_first

if TYPE_CHECKING:
    from lmexposure.scoring.bpe_merges import PairGraph

# Tokens of the shared prefix that are read again, for fills that begin otherwise than all sampled.
_STEPS_BACK = 4
# Tokens ascending (K,), the states behind them (K,), their shares of the fills (K,), whether a fill
# ends there (K,), and whether it ends there and none goes on (K,).
Edges = tuple[Ints, Ints, Floats, Bools, Bools]
_MOST_ENCODINGS = 100_000
_MOST_COMPLETIONS = 12


@dataclass(frozen=True, kw_only=True)
class EncodedSample:
    """A format under a tokenizer, and a sample of its fills."""

    # tokenizer, vocabulary, format, context: as given to `token_space`
    tokenizer: Any
    vocabulary: Vocabulary
    format: Format
    context: AnyContext
    rows: list[list[int]]  # encodings of sampled fills, the first and the last among them
    scored_from: int  # from which token on all of them are scored
    around: Surroundings  # what is around the fills in their rows
    # where the space is read from: a few tokens before the end of what all `rows` share
    ids: list[int]
    begun: int  # characters of lead and fill that `ids` spell

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The fills' encodings in context, each up to the fill's last character."""
        return encode_documents(self.tokenizer, texts, context=self.context)

    def index(self, row: Sequence[int]) -> int:
        """The fill that a whole encoding spells."""
        lead = self.around.lead
        if lead is None:
            return self._indices[tuple(row)]
        spelled = self.vocabulary.spelled(row[self.around.before :]) or b""
        if not self.around.trail:
            return self.format.index(spelled.decode()[len(lead) :])
        if self.format.may_nest:  # "Ann" and what follows it may be how "Anna" begins
            return self._indices[tuple(row)]
        # The last token may end inside a character of what follows the fill.
        found = self.format.longest_at(spelled.decode(errors="ignore"), len(lead))
        assert found is not None, "a whole path spells a text"
        return found[1]

    @cached_property
    def _indices(self) -> dict[tuple[int, ...], int]:
        """Fills by their encodings, where these do not spell them: only small spaces come here."""
        rows = self.encode([self.format.text(index) for index in range(self.format.size)])
        return {tuple(row): index for index, row in enumerate(rows)}


def sample_encodings(
    tokenizer: Any,
    vocabulary: Vocabulary,
    format: Format,
    *,
    context: AnyContext,
    fills: int,
    seed: int,
) -> EncodedSample:
    """Encode a sample of the fills and see what they share."""
    drawn = format.sample(min(fills, format.size), seed=seed)
    indices = sorted({0, format.size - 1, *drawn})
    texts = [format.text(index) for index in indices]
    encoded = encode_in_context(tokenizer, texts, context=context)
    rows = [text.ids for text in encoded]
    around = surroundings(tokenizer, vocabulary, texts, rows, context=context)
    literal = literal_tokens(tokenizer, format.prefix, rows[0], around, context=context)
    shared = shared_tokens([*rows, [*literal, -1]])
    end, begun = len(shared), 0
    if around.lead is not None:
        end, begun = _back(vocabulary, shared, around.before, whole=around.lead + texts[0])
    return EncodedSample(
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        format=format,
        context=context,
        rows=rows,
        scored_from=max(text.scored_from for text in encoded),
        around=around,
        ids=shared[:end],
        begun=begun,
    )


def _back(vocabulary: Vocabulary, shared: list[int], before: int, *, whole: str) -> tuple[int, int]:
    """A few tokens back to the end of a character: how many tokens, and characters, remain."""
    end = max(min(before, len(shared)), len(shared) - _STEPS_BACK)
    while True:
        spelled = vocabulary.spelled(shared[before:end]) or b""
        for begun in range(len(whole) + 1):
            size = len(whole[:begun].encode())
            if size == len(spelled):
                return end, begun
            if size > len(spelled):
                break
        end -= 1


class ListedGraph:
    """A graph from an explicit list, without its dead ends and with equal states merged."""

    def __init__(self, moves: Sequence[Mapping[int, int]], complete: Sequence[bool]) -> None:
        self._edges: list[dict[int, int]] = []
        self._ends: list[bool] = []
        self._counts: list[int] = []
        self._longest: list[int] = []
        self.root = self._merge(moves, complete)

    def count(self, state: int) -> int:
        """The number of fills at or below a state."""
        return self._counts[state]

    def longest(self, state: int) -> int:
        """Most tokens from a state to the end of a fill."""
        return self._longest[state]

    def complete(self, state: int) -> bool:
        """Whether a fill ends here."""
        return self._ends[state]

    def edges(self, state: int) -> Edges:
        """See `Edges`."""
        after = sorted(self._edges[state].items())
        states = [there for _, there in after]
        return (
            np.array([token for token, _ in after], dtype=np.int64),
            np.array(states, dtype=np.int64),
            np.array([self._counts[s] / self._counts[state] for s in states], dtype=np.float64),
            np.array([self._ends[s] for s in states], dtype=np.bool_),
            np.array([not self._edges[s] for s in states], dtype=np.bool_),
        )

    def step(self, state: int, token: int) -> int | None:
        """The state behind one token, or None where no fill goes on so."""
        return self._edges[state].get(token)

    def _merge(self, moves: Sequence[Mapping[int, int]], complete: Sequence[bool]) -> int:
        numbers: dict[int, int] = {}  # raw state -> state; -1 for a dead end
        known: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
        for raw in children_first(lambda raw: moves[raw].values()):
            after = {t: numbers[s] for t, s in moves[raw].items() if numbers[s] >= 0}
            key = (complete[raw], tuple(sorted(after.items())))
            if not after and not complete[raw]:
                numbers[raw] = -1
            else:
                numbers[raw] = known.setdefault(key, len(known))
            if numbers[raw] == len(self._edges):
                self._add(after, complete[raw])
        if numbers[0] < 0:
            self._add({}, False)
            return 0
        return numbers[0]

    def _add(self, after: dict[int, int], ends: bool) -> None:
        self._edges.append(after)
        self._ends.append(ends)
        self._counts.append(ends + sum(self._counts[s] for s in after.values()))
        self._longest.append(max((1 + self._longest[s] for s in after.values()), default=0))


class NotApplicable(Exception):  # noqa: N818  it ends an attempt, not the program
    """A rule does not hold for this tokenizer and format; the message says why."""


class TooCostly(NotApplicable):
    """A rule takes too long here, and so does every larger one of its kind."""


@dataclass(frozen=True, kw_only=True)
class RuleGraph:
    """What a rule gives."""

    rule: str  # its name
    # the paths behind `beginning`; every state leads to at least one fill
    graph: "ListedGraph | PairGraph"
    beginning: list[int]  # tokens that all of them share
    # fills to look up, as well as random ones: they try what was taken for granted
    examples: list[str]


def by_enumeration(sample: EncodedSample) -> RuleGraph:
    """All encodings, one by one; where two fills have one, it counts as one."""
    moves: list[dict[int, int]] = [{}]
    complete = [False]
    for row in sample.encode([sample.format.text(i) for i in range(sample.format.size)]):
        state = 0
        for token in row[sample.around.before :]:
            if token not in moves[state]:
                moves[state][token] = len(moves)
                moves.append({})
                complete.append(False)
            state = moves[state][token]
        complete[state] = True
    graph = ListedGraph(moves, complete)
    return RuleGraph(
        rule="enumerated",
        graph=graph,
        beginning=sample.rows[0][: sample.around.before],
        examples=[],
    )


def lead_of(sample: EncodedSample) -> str:
    """The text in front of each fill, for rules that read the fills from the left."""
    if sample.around.lead is None:
        raise NotApplicable("it does not keep the text as it is")
    if sample.around.trail and sample.format.may_nest:
        raise NotApplicable("one secret may begin another, and text follows them")
    return sample.around.lead


def by_windows(sample: EncodedSample, memory: int) -> RuleGraph:
    """What may follow the last `memory` tokens, asked of the tokenizer in whole texts."""
    graph = _Windows(sample, lead_of(sample), memory).graph()
    return RuleGraph(rule="windows", graph=graph, beginning=sample.ids, examples=[])


class _Windows:
    """Asks the tokenizer what may follow a path, for one path to each state."""

    def __init__(self, sample: EncodedSample, lead: str, memory: int) -> None:
        self._sample, self._memory = sample, memory
        self._skip = len(lead.encode())
        self._trail = sample.around.trail.encode()
        self._texts = ByteLanguage(sample.format.language, known=lead.encode(), trail=self._trail)
        self._asked = 0

    def graph(self) -> ListedGraph:
        sample = self._sample
        begun = sample.vocabulary.spelled(sample.ids[sample.around.before :]) or b""
        start = self._texts.read(self._texts.start, begun)
        assert start is not None, "the shared tokens begin a text"
        memory = tuple(sample.ids[sample.around.before :][-self._memory :])
        numbers = {(start, memory): 0}
        nodes: list[tuple[int, list[int], bytes]] = [(start, sample.ids, begun)]
        moves: list[dict[int, int]] = []
        for state, path, text in nodes:  # grows while it is read
            moves.append({})
            for token, there in self._follow(state, path, text):
                key = (there, (*path[sample.around.before :], token)[-self._memory :])
                if key not in numbers:
                    numbers[key] = len(nodes)
                    spelled = text + sample.vocabulary.surface(token)
                    nodes.append((there, [*path, token], spelled))
                moves[-1][token] = numbers[key]
        complete = [self._texts.complete(state) for state, _, _ in nodes]
        return ListedGraph(moves, complete)

    def _follow(self, state: int, path: list[int], text: bytes) -> list[tuple[int, int]]:
        """The tokens that follow a path in the encoding of some fill."""
        if self._over(state):
            return []
        options = self._sample.vocabulary.continuations(state, self._texts.advance)
        fills: dict[str, None] = {}
        for token, there in options:
            spelled = text + self._sample.vocabulary.surface(token)
            spelled = spelled[: len(spelled) - self._texts.beyond(there)]
            for rest in self._completions(there):
                fills[(spelled + rest)[self._skip :].decode()] = None
        self._asked += len(fills)
        if self._asked > _MOST_ENCODINGS:
            raise TooCostly("there are too many texts to ask it about")
        rows = self._sample.encode(list(fills))
        seen = {r[len(path)] for r in rows if r[: len(path)] == path and len(r) > len(path)}
        return [(token, there) for token, there in options if token in seen]

    def _over(self, state: int) -> bool:
        """Whether a fill has ended and only what follows it is left."""
        return bool(self._trail) and self._texts.complete(state)

    def _completions(self, state: int) -> list[bytes]:
        """Some ends of fills, one for each byte that may come next."""
        found = [b""] if self._texts.complete(state) else []
        first = [] if self._over(state) else sorted(self._texts.moves(state).items())
        for byte, there in first[:: max(1, -(-len(first) // _MOST_COMPLETIONS))]:
            rest = bytearray([byte])
            while not self._texts.complete(there):
                byte, there = min(self._texts.moves(there).items())
                rest.append(byte)
            found.append(bytes(rest))
        return found
