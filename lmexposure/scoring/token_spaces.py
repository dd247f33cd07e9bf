"""All fills of a format as paths of tokens, each fill once, under its own encoding in context.

The paths are never listed: states are expanded when they are asked for, and the fills below each
are counted in exact integers. That each fill has exactly one path is proven for the tokenizer and
format at hand: the paths are as many as the fills, and random fills are found under their own
encoding.

Special tokens, and others that were added to a vocabulary, are found before anything is encoded, so
that no token reaches over them. What is between two of them is a segment: a fill, the text in front
of it (lead) and the text behind it (trail), which may share tokens with it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lmexposure.canaries import Format
from lmexposure.core import Encoded
from lmexposure.errors import InputError, ModelError
from lmexposure.models import AnyContext, Context, encode_documents, encode_rows
from lmexposure.scoring.bpe_merges import Merges, by_merges
from lmexposure.scoring.runtime import Bools, Floats, Ints
from lmexposure.scoring.spelling import Vocabulary
from lmexposure.scoring.token_rules import (
    EncodedSample,
    NotApplicable,
    RuleGraph,
    TooCostly,
    by_enumeration,
    by_windows,
    sample_encodings,
)
from lmexposure.studies import TokenProof


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The segment of each fill."""

    # front, behind: the text that is encoded together with each fill, of whole rows
    front: str
    behind: str = ""
    start: int  # how many tokens are in front of all that is encoded
    before: int  # how many tokens are before the segment, `start` among them
    # the text of the segment in front of each fill as the tokens spell it; None where they do not
    # spell the fills as they are
    lead: str | None
    trail: str = ""  # the text of the segment behind each fill, likewise
    # the tokens that end a segment; none are known of plain contexts
    barriers: frozenset[int] = frozenset()


def surroundings(
    tokenizer: Any,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    rows: Sequence[list[int]],
    *,
    context: AnyContext,
) -> Surroundings:
    """What is around some fills."""
    if isinstance(context, Context):
        return _in_rows(tokenizer, vocabulary, texts, context)
    front = context if context and _plain(tokenizer, context) else ""
    before = len(encode_documents(tokenizer, [""], context=context)[0]) - len(
        _plain(tokenizer, front)
    )
    leads = {
        _front_of(vocabulary.spelled(row[before:]), text)
        for row, text in zip(rows, texts, strict=True)
    }
    lead = leads.pop() if len(leads) == 1 else None
    return Surroundings(front=front, start=before, before=before, lead=lead)


def _in_rows(
    tokenizer: Any, vocabulary: Vocabulary, texts: Sequence[str], context: Context
) -> Surroundings:
    rows = encode_rows(tokenizer, texts, context)
    backend = tokenizer.backend_tokenizer
    barriers = frozenset(backend.get_added_tokens_decoder())
    whole = context.before + texts[0] + context.behind
    offsets = backend.encode(whole, add_special_tokens=False).offsets
    start = len(rows[0].ids) - len(offsets)
    befores, leads, trail = set(), set(), context.behind
    for number, (row, text) in enumerate(zip(rows, texts, strict=True)):
        inside = (i for i in range(row.first - 1, start - 1, -1) if row.ids[i] in barriers)
        before = next(inside, start - 1) + 1
        end = next((i for i in range(row.stop, len(row.ids)) if row.ids[i] in barriers), None)
        if number == 0 and end is not None:
            trail = context.behind[: offsets[end - start][0] - len(context.before + text)]
        befores.add(before)
        leads.add(_front_of(vocabulary.spelled(row.ids[before:end]), text + trail))
    alike = len(befores) == len(leads) == 1
    return Surroundings(
        front=context.before,
        behind=context.behind,
        start=start,
        before=min(befores),
        lead=leads.pop() if alike else None,
        trail=trail,
        barriers=barriers,
    )


def _plain(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _front_of(spelled: bytes | None, text: str) -> str | None:
    """What a spelled row holds before its text."""
    if spelled is None or not spelled.endswith(text.encode()):
        return None
    try:
        return spelled[: len(spelled) - len(text.encode())].decode()
    except UnicodeDecodeError:
        return None


def literal_tokens(
    tokenizer: Any, literal: str, row: Sequence[int], around: Surroundings, *, context: AnyContext
) -> list[int]:
    """The format's text before its first hole in context, with nothing behind it."""
    if not isinstance(context, Context):
        return encode_documents(tokenizer, [literal], context=context)[0]
    encoding = tokenizer.backend_tokenizer.encode(around.front + literal, add_special_tokens=False)
    return [*row[: around.start], *encoding.ids]


def shared_tokens(rows: Sequence[list[int]]) -> list[int]:
    """The longest prefix that all rows share and that leaves each of them at least one token."""
    # Whatever the least and the greatest row share, all rows between them share as well.
    least, greatest = min(rows), max(rows)
    most = min(len(row) for row in rows) - 1
    same = (i for i in range(most) if least[i] != greatest[i])
    return least[: next(same, most)]


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """What all fills of a format begin with."""

    # the longest token prefix that these fills share and that lies before the secret; the context's
    # tokens and the start token belong to it
    ids: list[int]
    # how many characters of `lead` and text it spells; None where the tokens do not spell the texts
    # as they are (a tokenizer that lower-cases, for one), so that two fills may share one token
    # path
    characters: int | None
    scored: bool  # every token behind it is scored, so that nothing of the secret is left out
    # the text in front of each fill: the context; of a row, what is behind its last special token
    # before the fill, as the tokens spell it
    lead: str = ""
    trail: str = ""  # the text behind each fill in its row, up to the next special token


def find_beginning(
    tokenizer: Any,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    encoded: Sequence[Encoded],
    *,
    context: AnyContext,
    literal: str,
) -> Beginning:
    """Find where the secrets of one format begin."""
    rows = [text.ids for text in encoded]
    if isinstance(context, Context):
        around = surroundings(tokenizer, vocabulary, texts, rows, context=context)
        alone = literal_tokens(tokenizer, literal, rows[0], around, context=context)
        ids, characters = _spelled_from(vocabulary, shared_tokens([*rows, [*alone, -1]]), around)
        lead, trail = around.lead or "", around.trail
    else:
        alone = encode_documents(tokenizer, [literal], context=context)[0]
        lead, trail = context or "", ""
        wholes = [(lead + text).encode() for text in texts]
        shared = shared_tokens([*rows, [*alone, -1]])
        ids, characters = _spelled_behind(vocabulary, shared, wholes, rows)
    return Beginning(
        ids=ids,
        characters=characters,
        scored=all(text.scored_from <= max(1, len(ids)) for text in encoded) and len(ids) > 0,
        lead=lead,
        trail=trail,
    )


def refuse_no_beginning(format: Format, ids: Sequence[int]) -> None:
    """Refuse secrets with no token in front of them: nothing predicts their first one."""
    if not ids:
        raise ModelError(
            f"format {format.name!r} begins with its secret and no token is in front of it "
            "in its row, so the model has nothing to begin from; put text before the first hole"
        )


def _spelled_from(
    vocabulary: Vocabulary, ids: list[int], around: Surroundings
) -> tuple[list[int], int | None]:
    """The shared tokens up to the end of a character, and how many they spell of the segment."""
    if around.lead is None or len(ids) < around.before:
        return ids, None
    while True:
        characters = _characters(vocabulary.spelled(ids[around.before :]) or b"")
        if characters is not None:
            return ids, characters
        ids = ids[:-1]  # it ends inside a character


def _spelled_behind(
    vocabulary: Vocabulary, ids: list[int], wholes: Sequence[bytes], rows: Sequence[list[int]]
) -> tuple[list[int], int | None]:
    """The same where only what is behind the shared tokens is known to be spelled as it is."""
    while True:
        offsets = {
            _spelled_before(vocabulary, whole, row[len(ids) :])
            for whole, row in zip(wholes, rows, strict=True)
        }
        offset = offsets.pop() if len(offsets) == 1 else None
        characters = None if offset is None else _characters(wholes[0][:offset])
        if offset is None or characters is not None:
            return ids, characters
        ids = ids[:-1]  # it ends inside a character


def _spelled_before(vocabulary: Vocabulary, whole: bytes, rest: list[int]) -> int | None:
    """How many bytes of `whole` come before its last tokens `rest`."""
    text = vocabulary.spelled(rest)
    return len(whole) - len(text) if text and whole.endswith(text) else None


def _characters(text: bytes) -> int | None:
    """How many characters these bytes are; None where they end inside one."""
    try:
        return len(text.decode())
    except UnicodeDecodeError:
        return None


_SAMPLE = 256
_MOST_ENUMERATED = 1 << 16
_LONGEST_MEMORY = 3
_MOST_EXAMPLES = 4096
_MOST_CACHED = 1 << 21  # tokens in cached continuations


@dataclass(frozen=True, kw_only=True)
class Continuations:
    """The K tokens from which a fill can be completed, behind one state."""

    tokens: Ints  # (K,) ids, ascending
    states: Ints  # (K,) the states behind them
    # (K,) the part of the state's fills that goes on so, in (0, 1]; where a fill ends in the state
    # itself they sum to less than 1
    shares: Floats
    ends: Bools  # (K,) whether a fill ends with the token
    leaf: Bools  # (K,) whether one ends with it and none goes on


class TokenSpace:
    """The fills of one format as tokens; made by `token_space`."""

    def __init__(self, sample: EncodedSample, built: RuleGraph) -> None:
        self._sample, self._graph = sample, built.graph
        # size: how many fills it has
        self.format, self.size = sample.format, sample.format.size  # the canary format
        self._cache: dict[int, Continuations] = {}
        self._cached = 0
        counted = self._graph.count(self._graph.root)
        if counted != self.size:
            raise NotApplicable(f"it gives {counted} paths for {self.size} fills")
        # root: the state behind them
        # beginning: the tokens that all paths share: start token, context, text before the first
        # difference; at least one
        self.beginning, self.root = list(built.beginning), self._graph.root
        self._descend()
        self.longest = self._graph.longest(self.root)  # most tokens of a path behind `beginning`
        rows = sample.rows + sample.encode(built.examples[:_MOST_EXAMPLES])
        if not all(map(self._holds, rows)):
            raise NotApplicable("it does not give some fills the tokens of their encoding")
        # how it is known that the paths are right
        self.proof = TokenProof(rule=built.rule, counted=counted, looked_up=len(rows))

    def count(self, state: int) -> int:
        """How many fills there are at or below a state."""
        return self._graph.count(state)

    def complete(self, state: int) -> bool:
        """Whether a fill ends here; a longer one may still go on."""
        return self._graph.complete(state)

    def continuations(self, state: int) -> Continuations:
        """The tokens from which a fill can be completed."""
        found = self._cache.get(state)
        if found is None:
            tokens, states, shares, ends, leaf = self._graph.edges(state)
            found = Continuations(tokens=tokens, states=states, shares=shares, ends=ends, leaf=leaf)
            self._cached += len(tokens)
            if self._cached > _MOST_CACHED:
                self._cache, self._cached = {}, len(tokens)
            self._cache[state] = found
        return found

    def path(self, index: int) -> list[int]:
        """The tokens behind `beginning` of the fill with this index: its encoding."""
        return self._sample.encode([self.format.text(index)])[0][len(self.beginning) :]

    def states(self, ids: Sequence[int]) -> list[int]:
        """The states along a path from the root, one behind each token."""
        states, state = [], self.root
        for place, token in enumerate(ids):
            behind = self._graph.step(state, token)
            if behind is None:
                raise InputError(
                    f"token {place} of {len(ids)} leads out of the fills of format "
                    f"{self.format.name!r}; give a beginning of some `path`"
                )
            state = behind
            states.append(state)
        return states

    def index(self, ids: Sequence[int]) -> int:
        """The fill that a whole path spells."""
        end = [self.root, *self.states(ids)][-1]
        if not self.complete(end):
            raise InputError(
                f"the {len(ids)} tokens are no whole fill of format {self.format.name!r}; go on "
                "along `continuations` to a state that is complete"
            )
        return self._sample.index([*self.beginning, *ids])

    def _descend(self) -> None:
        """Go on with what all fills share; the last token of a fill is never shared."""
        while not self.complete(self.root):
            after = self._graph.edges(self.root)
            if len(after[0]) != 1 or after[3][0]:
                return
            self.beginning.append(int(after[0][0]))
            self.root = int(after[1][0])

    def _holds(self, row: list[int]) -> bool:
        """Whether an encoding is a whole path."""
        skip = len(self.beginning)
        if row[:skip] != self.beginning:
            return False
        try:
            return self.complete([self.root, *self.states(row[skip:])][-1])
        except InputError:
            return False


def token_space(
    tokenizer: Any,
    format: Format,
    *,
    context: AnyContext,
    vocabulary: Vocabulary | None = None,
    seed: int = 0,
) -> TokenSpace:
    """The token space of a format under a tokenizer, by the first rule that is proven for them.

    Args:
        tokenizer: the model's tokenizer.
        format: the canary format.
        context: left context or row, as for `log_perplexity`. A path ends with the token that
            holds the fill's last character, even where it holds some of what follows as well.
        vocabulary: what the tokens spell, where it is known already; one serves all formats.
        seed: of the fills whose encodings are looked up.

    Raises:
        ModelError: no rule is proven and the fills are too many to encode them all; a fill meets an
            unknown token; there is nothing before the secret to begin from; a part of the secret is
            not scored in its row.
    """
    sample = sample_encodings(
        tokenizer,
        vocabulary or Vocabulary(tokenizer),
        format,
        context=context,
        fills=_SAMPLE,
        seed=seed,
    )
    reasons = []
    for name, rule in _rules(sample):
        try:
            space = TokenSpace(sample, rule(sample))
        except NotApplicable as reason:
            reasons.append(f"{name}: {reason}")
            if isinstance(reason, TooCostly):
                break
            continue
        refuse_no_beginning(format, space.beginning)
        # A search adds up all tokens of a path; what has no loss is not to be scored.
        if isinstance(context, Context) and sample.scored_from > len(space.beginning):
            raise ModelError(
                f"format {format.name!r} has secrets whose first tokens are not scored in their "
                "rows, so a search would add up other bits than the scores have; use sampled "
                "references, or put text before the first hole"
            )
        return space
    raise ModelError(
        f"no rule tells which tokens spell the fills of format {format.name!r} "
        f"({'; '.join(reasons)}); use sampled references, or a format of at most "
        f"{_MOST_ENUMERATED} fills"
    )


def _rules(sample: EncodedSample) -> list[tuple[str, Callable[[EncodedSample], RuleGraph]]]:
    """The rules to try, in order."""
    # Where the merges themselves fail, the last few tokens do not tell either.
    rules: list[tuple[str, Callable[[EncodedSample], RuleGraph]]] = []
    if Merges.of(sample.tokenizer) is not None:
        rules.append(("its merges", by_merges))
    elif sample.format.size > _MOST_ENUMERATED:
        rules += [
            (f"the last {memory} of its tokens", partial(by_windows, memory=memory))
            for memory in range(1, _LONGEST_MEMORY + 1)
        ]
    if sample.format.size <= _MOST_ENUMERATED:
        rules.append(("all encodings", by_enumeration))
    return rules
