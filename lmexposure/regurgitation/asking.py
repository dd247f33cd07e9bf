"""What a model is asked in a look: windows, near misses, free samples, and what it says aloud.

Each part is kept when it is whole, and read again by the same look.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from operator import eq
from typing import Any

import numpy as np

from lmexposure._files import canonical_json
from lmexposure._forecast import Phase
from lmexposure.audit import Progress
from lmexposure.core import Encoded, Work
from lmexposure.regurgitation.runs import Run
from lmexposure.regurgitation.table import Asked
from lmexposure.regurgitation.windows import Windows
from lmexposure.scoring import (
    DecodingRule,
    NearSearch,
    TorchModel,
    WholeSteps,
    WindowScores,
    greedy_tokens,
    near_verbatim,
    sample_tokens,
    sampling_work,
    score_windows,
)
from lmexposure.statistics import tries_for
from lmexposure.studies import NearWindow, Passage, VerbatimRecord, VerbatimSettings

_PART = 2_048  # windows in a part
_LONGEST_SHOWN = 400  # tokens of a text that is written out
_BEYOND = 16  # tokens that are shown behind a run
_TRIED = 5  # steps of a trial
SHOWN = 20  # documents whose text is kept beside the record
_PROMPTS = 10  # beginnings of documents that are sampled behind


@dataclass(frozen=True, kw_only=True, eq=False)
class Asking:
    """Questions to one model."""

    lm: TorchModel  # the model
    settings: VerbatimSettings  # of the look
    work: Work[VerbatimRecord]  # what is done of it is kept there
    progress: Progress  # watches
    made: list[WholeSteps] = field(default_factory=list)  # next-token steps, once they are

    @property
    def rule(self) -> DecodingRule:
        """Of decoding."""
        chosen = self.settings
        return DecodingRule(temperature=chosen.temperature, top_k=chosen.top_k, top_p=chosen.top_p)

    def windows(self, name: str, windows: Windows, encoded: Sequence[Encoded]) -> Asked:
        """What the model says of all windows, part by part."""
        total = len(encoded)
        found: list[WindowScores] = []
        for first in range(0, total, _PART):
            part = f"{name}-{first // _PART:05d}"
            kept = self._kept(part)
            if kept is None:
                watch = partial(self._told, name, first, total)
                some = encoded[first : first + _PART]
                scores = score_windows(self.lm, some, self.rule, progress=watch)
                kept = {
                    "rule_bits": [None if np.isinf(b) else b for b in scores.rule_bits.tolist()],
                    "bits": scores.bits.tolist(),
                    "greedy": ["".join("01"[int(hit)] for hit in hits) for hits in scores.greedy],
                }
                self._keep(part, kept)
            bits = [np.inf if b is None else b for b in kept["rule_bits"]]
            greedy = tuple(np.array([hit == "1" for hit in hits]) for hits in kept["greedy"])
            found.append(
                WindowScores(
                    rule_bits=np.array(bits, dtype=float),
                    bits=np.array(kept["bits"], dtype=float),
                    greedy=greedy,
                )
            )
            self.progress(name, min(total, first + _PART), total)
        scores = WindowScores(
            rule_bits=np.concatenate([part.rule_bits for part in found]),
            bits=np.concatenate([part.bits for part in found]),
            greedy=tuple(hits for part in found for hits in part.greedy),
        )
        needed = tries_for(scores.rule_bits, self.settings.chance)
        return Asked(windows=windows, scores=scores, extractable=needed <= self.settings.tries)

    def near(self, own: Asked) -> list[NearWindow]:
        """The windows that are likeliest to come out, within some edits, by their lower ends."""
        chosen = self.settings
        picked = np.argsort(own.scores.bits, kind="stable")[: chosen.near_windows].tolist()
        search, found = self._near_search, []
        for done, number in enumerate(picked):
            window = own.windows.windows[number]
            kept = self._kept(f"near-{number}")
            if kept is None:
                ids, cut = window.encoded.ids, window.encoded.scored_from
                drawn = np.random.SeedSequence((chosen.seed, 2, number))
                seed = int(drawn.generate_state(1, np.uint64)[0])
                near = near_verbatim(
                    self.steps(ids), ids[:cut], ids[cut:], search, rule=self.rule, seed=seed
                )
                kept = {
                    "document": own.windows.documents[window.document].number,
                    "start": window.start,
                    "exact": float(np.exp2(-own.scores.rule_bits[number])),
                    "low": near.between.low,
                    "high": near.between.high,
                    "open_mass": min(1.0, near.open_mass),
                    "draws": near.draws,
                }
                self._keep(f"near-{number}", kept)
            found.append(NearWindow.model_validate(kept))
            self.progress("near", done + 1, len(picked))
        return sorted(found, key=lambda row: -row.low)

    def samples(self, windows: Windows, prompts: Sequence[str]) -> list[str]:
        """Texts that the model makes up: from nothing, behind beginnings, behind a user's."""
        chosen = self.settings
        texts: list[str] = []
        every = self._prompts(windows, prompts) if chosen.samples else []
        sizes = [sampling_work(samples, self._room(prompt)[1]) for prompt, samples in every]
        before = 0
        for number, (prompt, samples) in enumerate(every):
            kept = self._kept(f"samples-{number}")
            begun, room = self._room(prompt)
            if kept is None:
                tokens = sample_tokens(
                    self.steps(windows.encoded[0].ids),
                    begun,
                    samples,
                    tokens=room,
                    rule=self.rule,
                    seed=(chosen.seed, 3, number),
                    progress=partial(self._told, "sampling", before, sum(sizes)),
                )
                kept = {"texts": [self._text(ids) for ids in tokens]}
                self._keep(f"samples-{number}", kept)
            texts += kept["texts"]
            before += sizes[number]
            self.progress("sampling", before, sum(sizes))
        return texts

    def scoring_phase(self, name: str, encoded: Sequence[Encoded], pace: float) -> Phase:
        """Windows that are to be scored, but for parts that are kept."""
        firsts = range(0, len(encoded), _PART)
        kept = [first for first in firsts if self._is_kept(f"{name}-{first // _PART:05d}")]
        done = sum(min(_PART, len(encoded) - first) for first in kept)
        tokens = float(sum(len(each.ids) for each in encoded[done:]))
        before = min(done, len(encoded) - 1) / len(encoded)
        return Phase(what=name, kind=name, work=tokens, pace=pace, before=before)

    def search_phases(self, windows: Windows, prompts: Sequence[str]) -> Iterator[Phase]:
        """Near misses, free samples and passages, but for those kept, by trials of a few steps."""
        chosen = self.settings
        total = min(chosen.near_windows, len(windows.windows))
        done = sum(self._is_kept(f"near-{number}") for number in range(len(windows.windows)))
        if done < total:
            left, before = float(total - done), done / total
            pace = self._near_seconds(windows)
            yield Phase(what="near", kind="near", work=left, pace=pace, before=before)
        every = self._prompts(windows, prompts) if chosen.samples else []
        groups = [(self._room(prompt)[1], n) for prompt, n in every]
        of_rows = {rows: self._step_seconds(windows, rows) for rows in {1, *(n for _, n in groups)}}
        ahead = [g for number, g in enumerate(groups) if not self._is_kept(f"samples-{number}")]
        if work := float(sum(sampling_work(n, tokens) for tokens, n in ahead)):
            pace = sum(tokens * of_rows[n] for tokens, n in ahead) / work
            before = 1 - work / sum(sampling_work(n, tokens) for tokens, n in groups)
            yield Phase(what="sampling", kind="sampling", work=work, pace=pace, before=before)
        # How long the runs are that are written out, and of how many documents, is not known yet.
        shown = float(min(SHOWN, len(windows.documents)))
        pace = (chosen.prefix_tokens + _BEYOND) * of_rows[1]
        yield Phase(what="writing out", kind="writing out", work=shown, pace=pace)

    def _near_seconds(self, windows: Windows) -> float:
        """Seconds of a search, by the beginning of one."""
        ids, cut = windows.encoded[0].ids, windows.encoded[0].scored_from
        steps, few = self.steps(ids), ids[cut : cut + self._near_search.distance + _TRIED]

        def search(number: int) -> None:
            if number:
                near_verbatim(steps, ids[:cut], few, self._near_search, rule=self.rule)

        return _seconds_each(search) * _TRIED * (len(ids) - cut) / len(few)

    def _step_seconds(self, windows: Windows, rows: int) -> float:
        """Seconds of a step of some samples, behind a text of middle length."""
        ids, rule = windows.encoded[0].ids, self.rule
        steps = self.steps(ids)

        def sample(tokens: int) -> None:
            sample_tokens(steps, ids[:-_TRIED], rows, tokens=1 + tokens, rule=rule, seed=(0,))

        return _seconds_each(sample)

    @property
    def _near_search(self) -> NearSearch:
        names = ("distance", "metric", "beam", "draws", "level")
        return NearSearch(**{name: getattr(self.settings, name) for name in names})

    def passages(
        self, windows: Windows, runs: Sequence[Run | None], picked: Sequence[int]
    ) -> list[Passage]:
        """What the model says behind the prompts of some runs, beside the original."""
        found = []
        for done, number in enumerate(picked):
            kept = self._kept(f"passage-{number}")
            if kept is None:
                run, document = runs[number], windows.documents[number]
                assert run is not None, "only documents with a run are picked"
                asked = document.encoded(run.first, run.prompt, 0).ids
                tokens = min(run.tokens + _BEYOND, _LONGEST_SHOWN)
                if self.lm.window is not None:
                    tokens = max(1, min(tokens, self.lm.window - len(asked)))
                steps = self.steps(windows.encoded[0].ids)
                output = self._text(greedy_tokens(steps, asked, tokens))
                begin, _ = document.characters(run.first - run.prompt, run.first)
                original = document.text[run.start : run.start + len(output)]
                kept = {
                    "document": document.number,
                    "prompt": document.text[begin : run.start],
                    "output": output,
                    "original": original,
                    "matching": sum(takewhile(bool, map(eq, output, original))),
                }
                self._keep(f"passage-{number}", kept)
            found.append(Passage.model_validate(kept))
            self.progress("writing out", done + 1, len(picked))
        return found

    def _is_kept(self, name: str) -> bool:
        return self.work.part(name).path.exists()

    def _kept(self, name: str) -> dict[str, Any] | None:
        content = self.work.part(name).read()
        kept: dict[str, Any] | None = None if content is None else json.loads(content)
        return kept

    def _keep(self, name: str, values: dict[str, Any]) -> None:
        self.work.part(name).write(canonical_json(values))

    def steps(self, probe: Sequence[int]) -> WholeSteps:
        """Next-token steps of the model, tried once."""
        if not self.made:
            self.made.append(self.lm.steps(probe))
        return self.made[0]

    def _room(self, prompt: Sequence[int]) -> tuple[Sequence[int], int]:
        """A prompt, and how many tokens fit behind it; of a long one the end, and one token."""
        most = self.settings.sample_tokens
        if self.lm.window is None:
            return prompt, most
        begun = prompt[-(self.lm.window - 1) :]
        return begun, min(most, self.lm.window - len(begun))

    def _told(self, name: str, first: int, total: int, done: int) -> None:
        self.progress(name, first + done, total)

    def _text(self, ids: Sequence[int]) -> str:
        text: str = self.lm.tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def _prompts(self, windows: Windows, prompts: Sequence[str]) -> list[tuple[list[int], int]]:
        """Prompts as tokens, and how many texts are sampled behind each."""
        total, prefix = self.settings.samples, self.settings.prefix_tokens
        first = windows.documents[0].placed
        nothing = list(first.ids[: max(1, first.first)])
        draws = np.random.default_rng([self.settings.seed, 4])
        few = min(_PROMPTS, len(windows.documents), total)
        picked = np.sort(draws.choice(len(windows.documents), size=few, replace=False))
        placed = (windows.documents[number].placed for number in picked.tolist())
        begun = [document.ids[: document.first + prefix] for document in placed]
        encode = self.lm.tokenizer
        begun += [nothing + encode(text, add_special_tokens=False)["input_ids"] for text in prompts]
        half = total // 2
        each = [half // len(begun) + (k < half % len(begun)) for k in range(len(begun))]
        every = [(nothing, total - half), *zip(begun, each, strict=True)]
        return [(prompt, samples) for prompt, samples in every if samples]


def _seconds_each(work: Callable[[int], None]) -> float:
    """Seconds of a step of work: of some steps, less those of none."""
    spent = []
    for steps in (0, _TRIED, 0, _TRIED):  # a first call is slower than all others
        begun = time.perf_counter()
        work(steps)
        spent.append(time.perf_counter() - begun)
    return max(0.0, min(spent[1::2]) - min(spent[::2])) / _TRIED
