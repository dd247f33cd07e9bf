"""All fills of a format as paths of tokens, each fill once, under its own encoding in context.

The paths are never listed: states are expanded when they are asked for, and the fills below each
are counted in exact integers. That each fill has exactly one path is proven for the tokenizer and
format at hand: the paths are as many as the fills, and random fills are found under their own
encoding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lmexposure.canaries import Format
from lmexposure.errors import InputError, ModelError
from lmexposure.models import AnyContext, Context
from lmexposure.scoring.beginnings import refuse_no_beginning
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
            raise NotApplicable(f"it gives {counted} paths for {self.size} secrets")
        # root: the state behind them
        # beginning: the tokens that all paths share: start token, context, text before the first
        # difference; at least one
        self.beginning, self.root = list(built.beginning), self._graph.root
        self._descend()
        self.longest = self._graph.longest(self.root)  # most tokens of a path behind `beginning`
        rows = sample.rows + sample.encode(built.examples[:_MOST_EXAMPLES])
        if not all(map(self._holds, rows)):
            raise NotApplicable("it does not give some secrets the tokens of their encoding")
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
                    f"token {place} of {len(ids)} leads out of the secrets of format "
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
                f"the {len(ids)} tokens are no whole text of format {self.format.name!r}; go on "
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
        f"no rule tells which tokens spell the secrets of format {format.name!r} "
        f"({'; '.join(reasons)}); use sampled references, or a format of at most "
        f"{_MOST_ENUMERATED} secrets"
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
