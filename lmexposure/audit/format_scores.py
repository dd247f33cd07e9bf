"""The log-perplexities of one format: its canaries and controls, and fills never inserted."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from lmexposure._integrity import say_rebuilt
from lmexposure.audit.directory import OTHER_VERSION
from lmexposure.canaries import DEFAULT_REFERENCES, Canary, Format, Manifest
from lmexposure.core import Encoded, Part
from lmexposure.errors import ManifestError, ModelError
from lmexposure.models import AnyContext
from lmexposure.scoring import Beginning, TorchModel, Vocabulary, find_beginning
from lmexposure.studies import MeasureSettings, Scores, write_score_table

_COLUMNS = ("bits", "tokens", "secret_bits")


@dataclass(frozen=True, kw_only=True)
class FormatScores:
    """Scores of one format: canaries, controls, candidates held out, drawn references."""

    format: Format  # the format
    context: AnyContext = None  # what is around each text in its row
    canaries: tuple[Canary, ...]  # K canaries and controls, in the manifest's order
    # E candidates that their coins kept out, in the manifest's order; `repetitions` is the class
    # that each would have belonged to
    held_out: tuple[Canary, ...] = ()
    bits: NDArray[np.float64]  # log-perplexity in bits, shape (K + E + M,); lower = more memorised
    tokens: NDArray[np.int64]  # scored tokens of each text, shape (K + E + M,)
    # bits behind the token prefix that all these texts share, shape (K + E + M,)
    secret_bits: NDArray[np.float64]
    beginning: Beginning  # that prefix; the context's tokens belong to it
    first_unscored: bool  # the first token of the texts went unscored: there was nothing before it
    exhaustive: bool  # the E + M references are all fills that are neither canary nor control
    set_aside: int  # fills that the corpus held before insertion: not drawn, not counted in a rank
    slower: str = ""  # why they were scored in a slower way than usual; empty where they were not
    # log-perplexity under the base model in bits, shape (K + E + M,); None without
    base_bits: NDArray[np.float64] | None = None

    @property
    def canary_bits(self) -> NDArray[np.float64]:
        """Log-perplexities of canaries and controls, shape (K,)."""
        return self.bits[: len(self.canaries)]

    @property
    def reference_bits(self) -> NDArray[np.float64]:
        """Log-perplexities of fills never inserted, shape (E + M,): held out, then drawn."""
        # A coin that knows no secret held a candidate out: it is as good a reference as any.
        return self.bits[len(self.canaries) :]

    @property
    def roles(self) -> list[str]:
        """Of the K + E + M texts: "canary", "control", "held_out", "reference"."""
        references = self.bits.size - len(self.canaries) - len(self.held_out)
        shown: list[str] = [canary.role for canary in self.canaries]
        return [*shown, *["held_out"] * len(self.held_out), *["reference"] * references]

    @property
    def repetitions(self) -> list[int]:
        """Of the K + E + M texts: of a candidate held out its class's, of references 0."""
        drawn = [canary.repetitions for canary in (*self.canaries, *self.held_out)]
        return drawn + [0] * (self.bits.size - len(drawn))

    @property
    def certifiable(self) -> bool:
        """Fills have token paths of their own behind the prefix, and all of it was scored.

        No fill lies within another (a plan ensures it), so where tokens spell the text no path
        begins another: the paths are disjoint events, as the certificate needs.
        """
        return self.beginning.scored and self.beginning.characters is not None

    @property
    def controls(self) -> NDArray[np.bool_]:
        """Which of the canaries were never inserted, shape (K,)."""
        return np.array([canary.role == "control" for canary in self.canaries], dtype=bool)

    def save(self, kept: Part) -> None:
        """Keep the numbers, so that an interrupted measurement need not make them again."""
        columns = {name: getattr(self, name) for name in _COLUMNS}
        packed = io.BytesIO()
        np.savez(packed, slower=np.array(self.slower), **columns)
        kept.write(packed.getvalue())


def score_format(  # noqa: PLR0913 (what is scored, how, and where it is kept)
    lm: TorchModel,
    manifest: Manifest,
    name: str,
    *,
    context: AnyContext,
    settings: MeasureSettings,
    vocabulary: Vocabulary,
    kept: Part | None,
    progress: Callable[[int, int], None],
    score_base: Callable[[Sequence[Encoded]], NDArray[np.float64]] | None = None,
) -> FormatScores:
    """Score candidates, controls and references of one format under the same conditions."""
    form = manifest.formats[name]
    drawn = tuple(c for c in manifest.entries if c.format == name)
    canaries = tuple(c for c in drawn if c.role != "held_out")
    if not canaries:
        raise _nothing_inserted(name, len(drawn))
    count = settings.references_for(DEFAULT_REFERENCES)
    indices = manifest.references(name, count, strict=settings.references is not None)
    # In the order of drawing, so that not even a rounding in a batch depends on a coin.
    texts = [c.text for c in drawn] + [form.text(i) for i in indices]
    encoded = _encode(lm, manifest, name, texts, context)
    beginning = find_beginning(
        lm.tokenizer, vocabulary, texts, encoded, context=context, literal=form.prefix
    )
    order = _held_out_behind(drawn, len(texts))
    saved = _saved(kept, len(texts))
    if saved is None:
        scores = lm.token_bits(encoded, batch_size=settings.scoring_batch, progress=progress)
        saved = {
            "bits": scores.totals[order],
            "tokens": scores.tokens[order],
            "secret_bits": scores.bits_from(len(beginning.ids))[order],
            "slower": scores.slower,
        }
    made = FormatScores(
        format=form,
        context=context,
        canaries=canaries,
        held_out=tuple(c for c in drawn if c.role == "held_out"),
        beginning=beginning,
        first_unscored=any(e.first_unscored for e in encoded),
        set_aside=len(manifest.set_aside.get(name, ())),
        exhaustive=len(indices) == manifest.references_left(name) and not manifest.plan.left_out,
        **saved,
    )
    if kept is not None:
        made.save(kept)
    return made if score_base is None else replace(made, base_bits=score_base(encoded)[order])


def _nothing_inserted(name: str, candidates: int) -> ManifestError:
    return ManifestError(
        f"format {name!r}: none of its {candidates} candidates was inserted, and it has no "
        "controls: there is nothing to measure; plan controls, or more candidates"
    )


def _held_out_behind(drawn: tuple[Canary, ...], texts: int) -> NDArray[np.int64]:
    """Places of the texts, in their order but with those held out behind canaries and controls."""
    kind = np.zeros(texts, dtype=np.int64)
    kind[: len(drawn)] = [c.role == "held_out" for c in drawn]
    kind[len(drawn) :] = 2  # references
    return np.argsort(kind, kind="stable")


def _encode(
    lm: TorchModel, manifest: Manifest, name: str, texts: list[str], context: AnyContext
) -> list[Encoded]:
    """The texts in context, scored from the same token on."""
    ids = [canary.id for canary in manifest.entries if canary.format == name]
    try:
        encoded = lm.encode(texts, context)
    except ModelError as failure:
        known = f"texts 0 to {len(ids) - 1} are {ids[0]} to {ids[-1]}, then references"
        raise ModelError(f"format {name!r}: {failure} ({known})") from failure
    _refuse_twins(name, encoded)
    earliest = min(text.scored_from for text in encoded)
    return [replace(text, scored_from=earliest) for text in encoded]


def _refuse_twins(name: str, encoded: list[Encoded]) -> None:
    """Different fills must be different tokens, or the model cannot tell them apart."""
    first: dict[tuple[int, ...], int] = {}
    for number, text in enumerate(encoded):
        other = first.setdefault(tuple(text.ids), number)
        if other != number:
            raise ModelError(
                f"format {name!r}: texts {other} and {number} of {len(encoded)} differ, but the "
                "tokenizer gives both the same tokens (it drops or changes characters); use a "
                "format whose characters it keeps"
            )


def _saved(kept: Part | None, texts: int) -> dict[str, Any] | None:
    """What an interrupted measurement left, if it is of as many texts."""
    if kept is None or (packed := kept.read()) is None:
        return None
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
            columns: dict[str, Any] = {name: arrays[name] for name in _COLUMNS}
            columns["slower"] = str(arrays["slower"])
    except (ValueError, LookupError, TypeError, OSError, EOFError, BadZipFile):
        say_rebuilt(kept.path, why=OTHER_VERSION)
        return None
    return columns if all(columns[name].shape == (texts,) for name in _COLUMNS) else None


def scores_of(scores: Sequence[FormatScores]) -> Scores:
    """The scores of all formats as one table; see `Scores`."""
    ids: list[str] = []
    for part in scores:
        drawn = [*part.canaries, *part.held_out]
        ids += [canary.id for canary in drawn]
        ids += [f"{part.format.name}/reference/{n:06d}" for n in range(part.bits.size - len(drawn))]
    base = [part.base_bits for part in scores if part.base_bits is not None]
    return Scores(
        ids=np.array(ids),
        formats=np.repeat(
            [part.format.name for part in scores], [part.bits.size for part in scores]
        ),
        roles=np.array([role for part in scores for role in part.roles]),
        repetitions=np.array([n for part in scores for n in part.repetitions], dtype=np.int64),
        log_perplexity_bits=np.concatenate([part.bits for part in scores]),
        base_log_perplexity_bits=np.concatenate(base) if base else None,
    )


def write_scores(path: Path, scores: Sequence[FormatScores]) -> None:
    """Write scores.parquet, with the bits of the secrets alone and the numbers of tokens."""
    write_score_table(
        path,
        scores_of(scores),
        secret_bits=np.concatenate([part.secret_bits for part in scores]),
        tokens=np.concatenate([part.tokens for part in scores]),
    )
