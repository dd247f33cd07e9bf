"""Forward passes over whole texts: each by itself, or through the prefix tree that they share.

The tree is worth its while where texts begin alike. A fast way is trusted only after it gave the
same bits as the plain pass on some of these very texts, or on others as long under this model.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from lmexposure.core import Encoded
from lmexposure.errors import ModelError, NumericalError
from lmexposure.models import SOURCE_ENDS, BehindSource, FunctionLm, LstmForCausalLM
from lmexposure.scoring.prefix_tree import LevelNodes, PackedNodes, SortedTexts
from lmexposure.scoring.runtime import (
    LN2,
    MODEL_FAILURES,
    Floats,
    LmHead,
    Proven,
    failure_text,
    fused_activations,
    in_batches,
    out_of_memory,
    rounding_bits,
    share_spans,
    working,
)
from lmexposure.scoring.steps import RecomputedSteps, next_token_steps

Row = TypeVar("Row")
_Way = TypeVar("_Way", "PlainForward", "PrefixTreeForward")
_TEXTS_WORTH_A_PROBE = 16
_SAVING = 0.8  # of the tokens that the plain pass feeds; a tree that feeds more is not worth it
_COMPARED = 5
_PROBE_NODES = 160  # more than a packed row of them, so that branches are next to each other
_NEIGHBOURS = 8
_LEAK_BITS = 1e-5
# Tokens a packed pass. More fills no core better; on a CPU what a pass of 2,048 holds stays small
# enough to be had again from the allocator, where larger tensors are fresh pages each time.
_PASS_TOKENS = {"cpu": 1 << 11, "cuda": 1 << 15}
_MORE = 8  # times as many where short sequences lie side by side
_PASS_LOGITS = 1 << 26  # 256 MB of float32, where a way holds whole logits
_PACKED = "packed"
_PROVEN = Proven()


def refuse_nonfinite(bits: Floats, number: int, texts: int) -> None:
    """Refuse to score with NaN or infinity."""
    if not np.isfinite(bits).all():
        raise NumericalError(
            f"the model gave NaN or infinite log-probabilities for text {number} of {texts}; "
            "its weights or dtype are broken: check the checkpoint, or score in float32"
        )


class PlainPass:
    """Right for every causal model: none looks to the right, where the padding is."""

    def __init__(self, model: Any) -> None:
        if model.config.is_encoder_decoder and not isinstance(model, BehindSource):
            raise ModelError(
                "the model is an encoder-decoder, and reads rows once load_model or measure has "
                "it; give it to measure, or what load_model gives"
            )
        self._model = model
        self._known = inspect.signature(model.forward).parameters

    def bits(self, batch: Sequence[Encoded]) -> list[Floats]:
        """Floats of every scored token of some texts; log-softmax in float32."""
        rows = [text.ids for text in batch]
        first = min(text.scored_from for text in batch)
        logits = self._logits(rows, first)
        longest = max(map(len, rows))
        target = torch.tensor([row[first:] + [0] * (longest - len(row)) for row in rows])
        target = target.to(logits.device)[:, :, None]  # (B, longest - first, 1)
        target = target.clamp(max=logits.shape[-1] - 1)  # what ends a source is never scored
        nats = logits.logsumexp(-1) - logits.gather(-1, target).squeeze(-1)
        token_bits = (nats.double() / LN2).cpu().numpy()
        return [
            token_bits[row, text.scored_from - first : len(text.ids) - first].copy()
            for row, text in enumerate(batch)
        ]

    def _logits(self, rows: Sequence[list[int]], first: int) -> torch.Tensor:
        """Logits that predict tokens first .. of each row, (B, longest - first, V): `working`."""
        # The last token is predicted and never fed.
        ids, mask = _padded([row[:-1] for row in rows], self._model.device)
        keep = ids.shape[1] - first + 1
        wished = {"use_cache": False, "attention_mask": mask, "logits_to_keep": keep}
        # A model that does not name one may swallow it silently: asked for only where named.
        options: Any = {name: value for name, value in wished.items() if name in self._known}
        logits: torch.Tensor = self._model(input_ids=ids, **options).logits
        return working(logits[:, -keep:])


def _padded(rows: Sequence[list[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as (B, T) with zeros on the right, and the mask of what is no padding."""
    T = max(map(len, rows))
    ids = torch.tensor([row + [0] * (T - len(row)) for row in rows], device=device)
    lengths = torch.tensor(list(map(len, rows)), device=device)
    mask = torch.arange(T, device=device) < lengths[:, None]
    return ids.long(), mask.long()


class PlainForward:
    """Every text from its beginning, those of one length together: always right."""

    def __init__(self, model: Any, encoded: Sequence[Encoded]) -> None:
        self.model, self._pass, self._encoded = model, PlainPass(model), encoded
        self.slower = ""
        # Texts of one length share a batch, so that hardly anything is padded.
        self.order: Sequence[int] = sorted(range(len(encoded)), key=lambda i: -len(encoded[i].ids))
        self.costs = np.array([len(encoded[i].ids) for i in self.order])
        longest = int(self.costs[0])
        size = min(_MORE * _pass_tokens(model), _PASS_LOGITS // _vocabulary(model))
        self.size = max(1, size // longest)

    def __call__(self, places: Sequence[int]) -> list[Floats]:
        """Bits of the scored tokens of the texts at consecutive places of `order`."""
        return self.bits_of([self.order[place] for place in places])

    def bits_of(self, numbers: Sequence[int]) -> list[Floats]:
        """The same for texts named by their number."""
        return self._pass.bits([self._encoded[i] for i in numbers])

    def read(
        self,
        rows: Callable[[list[Encoded]], list[Row]],
        size: int,
        *,
        finite: Callable[[Row], Floats],
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[Row]:
        """What `rows` reads of each text, in input order; all numbers of `finite` must be so."""

        def work(span: range) -> list[Row]:
            numbers = [self.order[place] for place in span]
            found: list[Row] = []
            for some in in_batches(numbers, size, lambda few: rows([texts[i] for i in few])):
                found += some
                progress(len(found))
            for number, row in zip(numbers, found, strict=True):
                refuse_nonfinite(finite(row), number, len(texts))
            return found

        texts = self._encoded
        by_number = dict(zip(self.order, share_spans(self.costs, work), strict=True))
        return [by_number[number] for number in range(len(texts))]


class PrefixTreeForward:
    """Through the tree of the texts, depth first."""

    def __init__(
        self, plain: PlainForward, texts: SortedTexts, nodes: PackedNodes | LevelNodes, most: int
    ) -> None:
        self._plain, self._texts, self._nodes = plain, texts, nodes
        self._prefix_bits = nodes.prefix_bits()
        self.order: Sequence[int] = texts.order.tolist()
        self.costs = texts.fed
        self.size = max(1, int(most * len(texts) / max(1, texts.fed.sum())))
        self.slower = ""

    def probe(self) -> range:
        """Some places to try this way on."""
        return self._texts.probe(least=_COMPARED, nodes=_PROBE_NODES)

    def with_others_changed(self, places: Sequence[int]) -> tuple[Floats, Floats]:
        """Floats of the last of some texts, before and after all others are changed."""
        tree = self._texts.tree(places[0], places[-1] + 1)
        own = tree.paths[-1][tree.paths[-1] >= 0]
        others = (tree.tokens + 1) % _vocabulary(self._plain.model)
        others[own] = tree.tokens[own]
        changed = replace(tree, tokens=others)
        before, after = (self._nodes.node_bits(texts)[own] for texts in (tree, changed))
        return before, after

    def through_tree(self, places: Sequence[int]) -> list[Floats]:
        """What the tree alone gives, NaN among it where the model or this way gives NaN."""
        tree = self._texts.tree(places[0], places[-1] + 1)
        with fused_activations(self._plain.model):
            node_bits = self._nodes.node_bits(tree)
        return tree.text_bits(node_bits, self._prefix_bits)

    def __call__(self, places: Sequence[int]) -> list[Floats]:
        """See `PlainForward`."""
        found = self.through_tree(places)
        for place, bits in zip(places, found, strict=True):
            if not np.isfinite(bits).all():
                # NaN of another branch can reach a text past a mask, since 0 x NaN is NaN.
                number = self.order[place]
                alone = self._plain.bits_of([number])[0]
                refuse_nonfinite(alone, number, len(self._texts))
                found[place - places[0]] = alone
        return found


@torch.inference_mode()
def choose_forward(model: Any, encoded: Sequence[Encoded]) -> PlainForward | PrefixTreeForward:
    """The fastest way that is right for this model, in evaluation mode, and these texts."""
    plain = PlainForward(model, encoded)
    if len(encoded) < _TEXTS_WORTH_A_PROBE or isinstance(model, FunctionLm):
        return plain
    texts = SortedTexts(encoded)
    if isinstance(model, BehindSource) and SOURCE_ENDS not in texts.prefix:
        return plain  # of different sources
    failures: dict[str, str] = {}  # what was tried first, by what was wrong with it
    for kind, make in _FAST:
        try:
            forward = make(plain, texts)
            if forward is None:
                continue
            way, longest = (kind, bool(texts.prefix)), int(plain.costs[0])
            if _PROVEN.covers(model, way, longest) or _is_right(forward, plain):
                _PROVEN.add(model, way, longest)
                return _slower(forward, kind, failures)
            failures.setdefault("gives other bits", kind)
        except MODEL_FAILURES as failure:
            failures.setdefault(failure_text(failure), kind)
            if out_of_memory(failure):
                break
    return _slower(plain, "each by itself", failures)


def _slower(forward: _Way, kind: str, failures: dict[str, str]) -> _Way:
    """Note with a way why no faster one is taken."""
    if failures and not kind.startswith(_PACKED):  # both ways to pack are fast
        reasons = [f"{tried}: {reason}" for reason, tried in failures.items()]
        forward.slower = (
            f"texts are scored {kind}, which is slower and gives the same bits "
            f"({'; '.join(reasons)})"
        )
    return forward


def _packed(
    plain: PlainForward, texts: SortedTexts, *, by_layer: bool = False
) -> PrefixTreeForward | None:
    """Packed, where repeated ancestors leave a saving; a recurrent state would read siblings."""
    model = plain.model
    if isinstance(model, LstmForCausalLM) or getattr(model, "_is_stateful", False):
        return None
    depth = max(1, texts.depth)
    width = max(256, min(16 * depth, max(1024, 2 * depth)))
    if texts.fed.sum() * width / (width - depth) > _SAVING * texts.tokens:
        return None
    head = LmHead(model, _probe_ids(texts))
    nodes = PackedNodes(model, head, texts.prefix, width=width, by_layer=by_layer)
    return PrefixTreeForward(plain, texts, nodes, _pass_tokens(model))


def _packed_by_layer(plain: PlainForward, texts: SortedTexts) -> PrefixTreeForward | None:
    """The same for models that want one mask for each of their layer types."""
    kinds = getattr(plain.model.config.get_text_config(), "layer_types", None)
    return _packed(plain, texts, by_layer=True) if kinds else None


def _levels(plain: PlainForward, texts: SortedTexts) -> PrefixTreeForward | None:
    """Level by level, where the model's states can be forked and texts have a token in common."""
    if not texts.prefix or texts.fed.sum() > _SAVING * texts.tokens:
        return None
    model = plain.model
    steps = next_token_steps(model, _probe_ids(texts))
    if isinstance(steps, RecomputedSteps):
        raise ModelError(steps.why)
    nodes = LevelNodes(model, LmHead(model, _probe_ids(texts)), steps, texts.prefix)
    by_logits = _PASS_LOGITS // _vocabulary(model)
    # A level is a small part of a pass, so more nodes fit into one.
    most = min(_MORE * _pass_tokens(model), by_logits) * max(1, texts.depth)
    return PrefixTreeForward(plain, texts, nodes, most)


_FAST = ((_PACKED, _packed), (f"{_PACKED} by layer", _packed_by_layer), ("level by level", _levels))


def _is_right(forward: PrefixTreeForward, plain: PlainForward) -> bool:
    """Whether some texts, the longest among them, have the bits that they have by themselves."""
    places = forward.probe()
    chosen = np.unique(np.linspace(0, len(places) - 1, _COMPARED).round().astype(int)).tolist()
    quick = forward.through_tree(places)
    slow = plain.bits_of([forward.order[places[i]] for i in chosen])
    allowed = rounding_bits(plain.model)
    half = plain.model.dtype.itemsize < 4
    for i, bits in zip(chosen, slow, strict=True):
        if not np.allclose(quick[i], bits, rtol=0, atol=allowed):
            return False
        if not half and abs(quick[i].sum() - bits.sum()) > allowed:
            return False
    # Rounding of bfloat16 could hide that a text reads its neighbours: its bits must also stay what
    # they are when all others change.
    before, after = forward.with_others_changed(places[-_NEIGHBOURS:])
    return np.allclose(before, after, rtol=0, atol=_LEAK_BITS, equal_nan=True)


def _probe_ids(texts: SortedTexts) -> list[int]:
    """The end of a text: enough for a first look, before whole texts are compared."""
    return texts.longest()[-16:]


def _pass_tokens(model: Any) -> int:
    return _PASS_TOKENS.get(model.device.type, _PASS_TOKENS["cuda"])


def _vocabulary(model: Any) -> int:
    return int(model.config.get_text_config().vocab_size)
