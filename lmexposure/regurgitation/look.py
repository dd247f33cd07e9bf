"""The whole look at a corpus: windows, runs, near misses, free samples, controls, verdicts.

What is done is kept in parts, each of them whole, so that the same call goes on where it ended.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmexposure import __version__
from lmexposure._files import PRIVATE, canonical_json, content_hash, sha256_bytes
from lmexposure._settings import recorded_values
from lmexposure._style import count
from lmexposure._validate import of_type
from lmexposure.audit import Progress, Watcher, silent
from lmexposure.canaries import Files, corpus_files, layout_for, listed_files
from lmexposure.core import REPORTS, Held, JsonValue, Work, claimed
from lmexposure.errors import CorpusError, ModelError, ResultError, SettingsError
from lmexposure.models import tokenizer_sha256
from lmexposure.regurgitation.asking import SHOWN, Asking
from lmexposure.regurgitation.corpus_index import fold, free_record, look_up
from lmexposure.regurgitation.runs import Run, document_runs, longest, own_texts, units
from lmexposure.regurgitation.table import (
    Asked,
    Evidence,
    described,
    encoded_by,
    group_test,
    reference_runs,
    run_test,
    warnings_of,
    worse_than_guessing,
)
from lmexposure.regurgitation.windows import Documents, Windows, lead_of, read_windows
from lmexposure.scoring import TorchModel, any_model, token_pace
from lmexposure.studies import FreeExtraction, VerbatimPassages, VerbatimRecord, VerbatimSettings

_HIDDEN = frozenset(
    {"model", "reference", "corpus", "held_out", "prompts", "seed", "places of windows"}
)
_ROWS = 1_000  # documents in the record


def verbatim(  # noqa: PLR0913 (a public door: each is an option of a look)
    model: Any,
    corpus: Files,
    *,
    out: str | Path,
    tokenizer: Any = None,
    reference: Any = None,
    held_out: Files | None = None,
    prompts: Sequence[str] = (),
    settings: VerbatimSettings | None = None,
    progress: Progress = silent,
) -> VerbatimRecord:
    """Look which text of a corpus a model gives back, word for word or nearly so.

    Args:
        model: a path or hub name, what `load_model` gives, or a model in memory with its tokenizer.
        corpus: files that the model was trained on, or is thought to be.
        out: directory for verbatim.json and passages.json; the same call goes on where it ended.
        tokenizer: of a model in memory.
        reference: a model that never saw the corpus: a path or hub name, or what `load_model`
            gives; its tokenizer may be another.
        held_out: files of the same source that the model never saw.
        prompts: more beginnings for free samples.
        settings: which windows, and how they are asked for.
        progress: watches.

    Returns:
        what verbatim.json holds.

    Raises:
        CorpusError: every document is too short, or files cannot be read.
        ModelError: a model that cannot be used, or a passage longer than it reads at once.
        NumericalError: a model gave NaN.
        ResultError: `out` holds another look, or another kind of study.
        SettingsError: settings out of range, or a library that is not installed.
        FileError: the disk refused, or something in `out` has a name that the look writes.
    """
    settings = VerbatimSettings() if settings is None else settings
    of_type("settings", settings, VerbatimSettings, "VerbatimSettings(...)")
    if settings.random_split and held_out is None:
        raise SettingsError(
            "random_split=True is of held-out documents, and none are given; name them "
            "(held_out=[...]), or leave it out"
        )
    if not isinstance(prompts, list | tuple) or not all(isinstance(each, str) for each in prompts):
        raise SettingsError(
            f"prompts={prompts!r:.80} must be a list of texts, such as ['My key is']"
        )
    writes = ("passages.json", *REPORTS)
    with claimed(VerbatimRecord, out, writes=writes, beside=("training.json",)) as held:
        documents, separator = _documents(corpus, settings)
        others = None if held_out is None else _documents(held_out, settings)[0]
        if settings.samples:  # what is not installed is said before time is spent
            look_up([""], [], least=2)
            fold([], [])
        look = _Look(
            model=any_model(model, tokenizer, settings.run),
            reference=None if reference is None else any_model(reference, None, settings.run),
            documents=documents,
            separator=separator,
            held_out=others,
            prompts=tuple(prompts),
            settings=settings,
            progress=progress,
        )
        look.check_length()
        return look.all(held)


def _documents(corpus: Files, settings: VerbatimSettings) -> tuple[Documents, str | None]:
    """The documents of some files, from the beginning each time, and what is between them."""
    files = corpus_files(listed_files(corpus))
    layout = layout_for(files, settings.run.layout, settings.run.text_field)

    def read() -> Iterable[str]:
        for path in files:
            yield from layout.documents(path)

    if not any(text.strip() for text in read()):
        raise CorpusError(
            f"{', '.join(map(str, files))} holds no text; give files with documents in them"
        )
    return read, layout.separator


def _has_texts(made: VerbatimRecord) -> bool:
    try:
        made.passages()
    except ResultError:
        return False
    return True


@dataclass(frozen=True, kw_only=True, eq=False)
class _Look:
    """One look; see `verbatim` for what each is."""

    model: TorchModel
    reference: TorchModel | None
    documents: Documents
    separator: str | None
    held_out: Documents | None
    prompts: tuple[str, ...]
    settings: VerbatimSettings
    progress: Progress

    def check_length(self) -> None:
        """Refuse windows that are longer than the model reads at once."""
        chosen, lead = self.settings, lead_of(self.model.tokenizer)
        limit = self.model.window
        length = chosen.prefix_tokens + chosen.suffix_tokens + len(lead)
        if limit and length > limit:
            raise ModelError(
                f"a passage has {length} tokens ({chosen.prefix_tokens} + {chosen.suffix_tokens}), "
                f"and {self.model.name!r} reads {limit} at once; ask for shorter ones "
                "(prefix_tokens=..., suffix_tokens=...)"
            )

    def all(self, held: Held[VerbatimRecord]) -> VerbatimRecord:
        """Everything, or what the directory has of the same look."""
        held_out, tokenizer = self.held_out, self.model.tokenizer
        windows, others = read_windows(
            self.documents, tokenizer, self.settings, separator=self.separator, held_out=held_out
        )
        with held.work(self._asked(windows, others), hidden=_HIDDEN) as work:
            made = work.finished()
            if made is None or not _has_texts(made):
                made = self._made(work, windows, others)
            work.drop()
        return made

    def _made(
        self, work: Work[VerbatimRecord], windows: Windows, others: Windows | None
    ) -> VerbatimRecord:
        """Ask for all that was not asked yet, and write what was found."""
        ask = self._asking(self.model, work)
        if isinstance(self.progress, Watcher):
            self._announce(self.progress, ask, windows, others)
        own = ask.windows("scoring", windows, windows.encoded)
        control, control_runs = None, list[list[Run]]()
        runs = self._runs(own)
        if others is not None:
            control = ask.windows("held out", others, others.encoded)
            control_runs = self._runs(control)
        best = [longest(some) for some in runs]
        base, base_runs, base_bits = self._by_reference(windows, others, best, work)
        texts_own, texts_others = own_texts(windows, others, seed=self.settings.seed)
        near = ask.near(own)
        texts = ask.samples(windows, self.prompts)
        evidence = Evidence(
            own=own,
            runs=runs,
            base=base,
            base_runs=base_runs,
            control=control,
            control_runs=control_runs,
            texts=texts_own,
            control_texts=texts_others,
            units=units(texts_own, runs, texts_others, control_runs),
            copies={},
            settings=self.settings,
        )
        shown = evidence.worst_first()[:_ROWS]
        free, found, copies = self._looked_up(windows, best, shown, texts)
        evidence.copies.update(copies)
        group = test = None
        if control is not None:
            both = None if base is None or base_bits is None else (base.bits, base_bits)
            group = group_test(own, control, evidence.units, base=both, settings=self.settings)
            if self.settings.random_split:
                copies_left = sum(not text.unit for text in (*texts_own, *texts_others))
                test = run_test(evidence.units, copies_left, self.settings)
        model = described(self.model)
        reference = None if self.reference is None else described(self.reference)
        same = reference is not None and reference.weights_sha256 == model.weights_sha256
        worse = worse_than_guessing(own, len(self.model.tokenizer))
        of_corpus, of_reference, of_held_out = evidence.groups
        told = [number for number in shown[:SHOWN] if best[number] is not None]
        passages = tuple(ask.passages(windows, best, told))
        texts_of = VerbatimPassages(passages=passages, found=tuple(found))
        record = VerbatimRecord.now(
            inputs_sha256=work.sha256,
            model=model,
            reference=reference,
            corpus_sha256=windows.sha256,
            passages_sha256=content_hash(texts_of.to_dict()),
            documents=windows.read,
            distinct=windows.distinct,
            too_short=windows.too_short,
            characters=windows.characters,
            settings=self.settings.resolved(),
            corpus=of_corpus,
            of_reference=of_reference,
            held_out=of_held_out,
            rows=tuple(evidence.row(number) for number in shown),
            near=tuple(near),
            free=free,
            runs=test,
            group=group,
            worse_than_guessing=worse,
            warnings=tuple(warnings_of(evidence, same_model=same, worse=worse)),
        )
        texts_of.write(work.out / VerbatimPassages.NAME, mode=PRIVATE)
        record.save(work.out)
        return record

    def _announce(
        self, watcher: Watcher, ask: Asking, windows: Windows, others: Windows | None
    ) -> None:
        """Say what will be done and how long it takes."""
        groups = {"scoring": windows} | ({} if others is None else {"held out": others})
        probe = windows.encoded[0].ids
        pace = token_pace(self.model, probe)
        phases = [ask.scoring_phase(name, group.encoded, pace) for name, group in groups.items()]
        if self.reference is not None:  # of another tokenizer it reads about as many
            pace = token_pace(
                self.reference, [token % self.reference.vocabulary for token in probe]
            )
            of = self._asking(self.reference, ask.work)
            names = {"reference": windows, "reference, held out": others}
            phases += [of.scoring_phase(n, g.encoded, pace) for n, g in names.items() if g]
        phases += ask.search_phases(windows, self.prompts)
        number = sum(len(group.windows) for group in groups.values())
        title = f"looking at {count(number, 'window')}"
        if self.settings.samples:
            title += f", and what {count(self.settings.samples, 'free sample')} repeat"
        watcher.plan(title, phases, keeps=False)

    def _asking(self, lm: TorchModel, work: Work[VerbatimRecord]) -> Asking:
        return Asking(lm=lm, settings=self.settings, work=work, progress=self.progress)

    def _asked(self, windows: Windows, others: Windows | None) -> dict[str, JsonValue]:
        """All that decides the numbers, by names that people know."""
        chosen = self.settings
        places = [
            [[window.document, window.place] for window in group.windows]
            for group in (windows, others)
            if group is not None
        ]
        return {
            "version of lmexposure": __version__,
            "model": self.model.identity,
            "reference": self.reference and self.reference.identity,
            "corpus": windows.sha256,
            "held_out": others and others.sha256,
            **recorded_values(chosen.resolved()),
            "prompts": list(self.prompts),
            "dtype": chosen.run.dtype,
            "load_in": chosen.run.load_in,
            "places of windows": sha256_bytes(canonical_json(places)),
        }

    def _runs(self, asked: Asked) -> list[list[Run]]:
        lm, prefix = self.model, self.settings.prefix_tokens
        return document_runs(lm, asked.windows, asked.scores, prefix=prefix, limit=lm.window)

    def _by_reference(
        self,
        windows: Windows,
        others: Windows | None,
        runs: Sequence[Run | None],
        work: Work[VerbatimRecord],
    ) -> tuple[Asked | None, list[int | None], Any]:
        """The windows under the reference model, how far it follows runs, bits of the held out."""
        if self.reference is None:
            return None, [None] * len(runs), None
        ask = self._asking(self.reference, work)
        own, prefix = self.reference.tokenizer, self.settings.prefix_tokens
        # The same tokens are asked for in the same way; those of another tokenizer by text.
        same = tokenizer_sha256(own) == tokenizer_sha256(self.model.tokenizer)
        tokenizer = None if same else own
        encoded = encoded_by(tokenizer, windows, prefix, limit=ask.lm.window)
        base = ask.windows("reference", windows, encoded)
        followed = reference_runs(self.reference, tokenizer, windows, runs, ask.lm.window)
        if others is None:
            return base, followed, None
        of_others = encoded_by(tokenizer, others, prefix, limit=ask.lm.window)
        return base, followed, ask.windows("reference, held out", others, of_others).bits

    def _looked_up(
        self,
        windows: Windows,
        runs: Sequence[Run | None],
        shown: Sequence[int],
        texts: Sequence[str],
    ) -> tuple[FreeExtraction | None, Sequence[str], dict[int, int]]:
        """Free samples and runs in the whole corpus: what was found, its texts, copies of runs."""
        if not texts:
            return None, (), {}
        chosen = self.settings
        counted = {
            number: windows.documents[number].text[run.start : run.end]
            for number in shown
            if (run := runs[number]) is not None and run.characters >= chosen.least_match
        }
        self.progress("looking up", 0, 1)
        matches, copies = look_up(
            self.documents(), texts, list(counted.values()), least=chosen.least_match
        )
        self.progress("looking up", 1, 1)
        found = fold(texts, matches)
        record = free_record(texts, found, chosen)
        held = {n: most for n, most in zip(counted, copies, strict=True) if most}
        return record, found.texts, held
