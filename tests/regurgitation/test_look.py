"""The whole look: what is repeated comes out, in its order, and nothing that was held out."""

import json
import stat
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from regurgitation.conftest import REPEATED, WORDS, Case
from tiny import byte_level_bpe, model_of

import lmexposure as lx
from lmexposure._forecast import Phase
from lmexposure.errors import CorpusError, ModelError, ResultError, SettingsError
from lmexposure.models import LoadedModel
from lmexposure.regurgitation import look as looking
from lmexposure.regurgitation import verbatim
from lmexposure.regurgitation.runs import document_runs, longest
from lmexposure.regurgitation.windows import read_windows
from lmexposure.scoring import score_windows
from lmexposure.studies import VerbatimPassages, VerbatimRecord, VerbatimSettings

SHORT = VerbatimSettings(
    prefix_tokens=16,
    suffix_tokens=16,
    near_windows=2,
    samples=24,
    sample_tokens=80,
    least_match=40,
    random_split=True,
)
ALONE = replace(SHORT, random_split=False)
WINDOWS = replace(ALONE, samples=0, near_windows=0)


@pytest.fixture(scope="module")
def looked(case: Case, tmp_path_factory: pytest.TempPathFactory) -> VerbatimRecord:
    out = tmp_path_factory.mktemp("looked")
    return verbatim(case.model, case.train, out=out, held_out=case.held_out, settings=SHORT)


def numbers(case: Case, of: int) -> int:
    """The number of the first copy of a document."""
    lines = case.train.read_text("utf-8").splitlines()
    return lines.index(case.documents[of]) + 1


def test_the_repeated_documents_come_first_in_their_order(case: Case, looked: Any) -> None:
    first, second, *others = looked.rows
    assert [first.number, second.number] == [numbers(case, 0), numbers(case, 1)]
    assert [first.copies, second.copies] == [REPEATED[0], REPEATED[1]]
    assert first.verdict == "reproduced"  # one of 24 needs 2,399 held-out documents
    assert looked.runs.units == 24
    assert first.run.characters >= 48
    assert first.greedy >= 3
    assert all(row.copies == 1 and row.run is not None for row in others)
    assert all(row.run.characters < second.run.characters for row in others if row.run)
    assert looked.held_out.longest_run < 30
    assert looked.held_out.greedy == 0


def test_the_numbers_fit_each_other(case: Case, looked: Any) -> None:
    lines = case.train.read_text("utf-8").splitlines()
    assert looked.documents == len(lines)
    assert looked.distinct == len(case.documents)
    assert looked.characters == sum(map(len, lines))
    assert looked.corpus.windows == looked.corpus.among == sum(row.windows for row in looked.rows)
    assert looked.corpus.greedy == sum(row.greedy for row in looked.rows)
    shares = [row.share for row in looked.corpus.curve]
    assert shares == sorted(shares)
    assert looked.extractable.windows == sum(row.extractable for row in looked.rows)
    for row in looked.near:
        assert row.exact <= row.high + 1e-9
        assert row.low <= row.high
    assert looked.group.members == len(case.documents)


def test_free_samples_find_what_is_repeated(case: Case, looked: Any) -> None:
    assert looked.free.with_match > 0
    longest = looked.free.passages[0]
    assert longest.document == numbers(case, 0)
    assert longest.copies == REPEATED[0]
    assert longest.characters == looked.free.longest <= len(case.documents[0])


def test_a_run_is_what_greedy_decoding_says(case: Case) -> None:
    """Token by token, from a prompt of the document, until the model departs from it."""
    model, tokenizer = case.loaded.model, case.loaded.tokenizer
    windows, _ = read_windows(lambda: case.documents, tokenizer, SHORT, separator="\n")
    scores = score_windows(model, windows.encoded)
    runs = document_runs(model, windows, scores, prefix=16, limit=None)
    run: Any = longest(runs[0])
    document = windows.documents[0]
    ids = document.encoded(run.first, run.prompt, 0).ids
    text = ""
    while document.text[run.start :].startswith(text) and len(text) < len(document.text):
        logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
        ids = [*ids, int(logits.argmax())]
        text += tokenizer.decode(ids[-1:])
    agreed = zip(text, document.text[run.start :], strict=False)
    assert sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], agreed)) == run.characters
    assert run.whole


def test_the_files_hold_no_text_but_the_private_one(
    case: Case, looked: Any, tmp_path: Path
) -> None:
    verbatim(case.loaded, case.train, out=tmp_path, settings=replace(ALONE, samples=0))
    words = case.documents[0].split(" ")[3:7]
    assert " ".join(words) not in (tmp_path / "verbatim.json").read_text("utf-8")
    path = tmp_path / "passages.json"
    texts = VerbatimPassages.parse(path.read_bytes(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first = texts.passages[0]
    assert first.output[: first.matching] == first.original[: first.matching]
    assert first.original in case.documents[0]
    assert [path.name for path in (tmp_path / ".work").iterdir()] == ["asked.json"]


def test_without_a_control_nothing_is_called_memorised(case: Case, tmp_path: Path) -> None:
    found: Any = verbatim(case.loaded, case.train, out=tmp_path, settings=WINDOWS)
    assert found.rows[0].verdict == "reproduced"
    assert any("no control" in line for line in found.warnings)
    assert lx.check(tmp_path).outcome == "inconclusive"


def test_a_reference_with_another_tokenizer_is_asked_by_text(case: Case, tmp_path: Path) -> None:
    tokenizer = byte_level_bpe()
    reference = LoadedModel(
        model=model_of("gpt2", len(tokenizer)).eval(), tokenizer=tokenizer, name="tiny", notes=()
    )
    found: Any = verbatim(
        case.loaded, case.train, out=tmp_path, reference=reference, settings=WINDOWS
    )
    assert found.rows[0].verdict == "reproduced"
    assert lx.check(found).outcome == "inconclusive"  # a reference says nothing of chance
    assert found.rows[0].run.reference < 5
    assert found.of_reference.greedy == 0
    assert found.of_reference.bits_per_character > found.corpus.bits_per_character


def in_order(draws: np.random.Generator, share: float) -> str:
    """Words of which each next one follows an order as often as the share says."""
    words = [int(draws.integers(len(WORDS)))]
    while len(words) < 16:
        follows = draws.random() < share
        words.append((words[-1] + 1) % len(WORDS) if follows else int(draws.integers(len(WORDS))))
    return " ".join(WORDS[word] for word in words)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a reference"])
def test_without_a_random_split_there_is_a_difference_and_no_p(
    case: Case, tmp_path: Path, beside: bool
) -> None:
    """That a classifier cannot tell two sources apart lets no model be accused of memory."""
    draws = np.random.default_rng(60)
    paths = {}
    for name, share in (("corpus", 0.35), ("held_out", 0.3)):
        paths[name] = tmp_path / f"{name}.txt"
        paths[name].write_text("\n".join(in_order(draws, share) for _ in range(40)), "utf-8")
    reference = model_of("lstm", len(case.loaded.tokenizer)).eval()
    base = LoadedModel(model=reference, tokenizer=case.loaded.tokenizer, name="tiny", notes=())
    found: Any = verbatim(
        case.loaded,
        paths["corpus"],
        out=tmp_path / "look",
        held_out=paths["held_out"],
        reference=base if beside else None,
        settings=WINDOWS,
    )
    group = found.group
    assert group.blind_p > 0.05  # where a p was given once
    assert group.p is None
    assert group.low < group.difference < group.high
    assert group.beside_reference is beside
    assert ("reference model" in group.assumes) is beside
    assert found.runs is None
    assert {row.p for row in found.rows} == {None}
    assert lx.check(found).outcome == "inconclusive"


def test_the_model_itself_is_no_control(case: Case, tmp_path: Path) -> None:
    found: Any = verbatim(
        case.loaded, case.train, out=tmp_path, reference=case.loaded, settings=WINDOWS
    )
    assert any("same weights" in line for line in found.warnings)
    assert {row.verdict for row in found.rows} <= {"explained", "no"}
    assert all(row.run.reference == row.run.characters for row in found.rows if row.run)
    assert found.of_reference.greedy == found.corpus.greedy


def test_a_killed_look_goes_on_and_ends_with_the_same_numbers(
    case: Case, looked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"out": tmp_path, "held_out": case.held_out, "settings": SHORT}

    def killed(*args: Any, **values: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(looking, "free_record", killed)
    with pytest.raises(KeyboardInterrupt):
        verbatim(case.model, case.train, **given)  # type: ignore[arg-type]
    monkeypatch.undo()
    kept = {path.name.rpartition("-")[0]: path for path in (tmp_path / ".work").iterdir()}
    assert {"scoring-00000", "held out-00000", "samples-0"} <= kept.keys()
    torn = kept["scoring-00000"]
    torn.write_bytes(torn.read_bytes()[:-40])
    again = verbatim(case.model, case.train, **given)  # type: ignore[arg-type]
    same = {"measured": "", "lmexposure": ""}
    assert again.model_copy(update=same) == looked.model_copy(update=same)
    read = verbatim(case.model, case.train, **given)  # type: ignore[arg-type]
    assert read == again  # nothing is done twice


def test_some_documents_and_some_windows(case: Case, tmp_path: Path) -> None:
    chosen = replace(ALONE, documents=(numbers(case, 1), numbers(case, 5)), samples=0)
    found: Any = verbatim(case.loaded, case.train, out=tmp_path / "a", settings=chosen)
    assert sorted(row.number for row in found.rows) == sorted(chosen.documents or ())
    few = replace(ALONE, windows=20, samples=0, near_windows=0)
    found = verbatim(case.loaded, case.train, out=tmp_path / "b", settings=few)
    assert (found.corpus.windows, found.corpus.among) == (20, looked_windows(case))
    share = found.extractable
    assert share.low < share.share < share.high or share.share == 0
    with pytest.raises(CorpusError, match="number 900 was asked for"):
        none = replace(ALONE, documents=(900,))
        verbatim(case.loaded, case.train, out=tmp_path / "c", settings=none)


def looked_windows(case: Case) -> int:
    windows, _ = read_windows(lambda: case.documents, case.loaded.tokenizer, SHORT, separator="\n")
    return windows.among


def test_windows_tile_a_document(case: Case) -> None:
    windows, _ = read_windows(lambda: case.documents, case.loaded.tokenizer, SHORT, separator="\n")
    for number, document in enumerate(windows.documents):
        own = [windows.windows[i] for i in windows.of_document(number)]
        assert [w.start for w in own] == [16 * (k + 1) for k in range(len(own))]
        for window in own:
            text = document.text[window.start : window.stop]
            assert len(text) == 16
            spelled = case.loaded.tokenizer.decode(window.encoded.ids[window.encoded.scored_from :])
            assert spelled == text
            prompt = case.loaded.tokenizer.decode(window.encoded.ids[: window.encoded.scored_from])
            assert prompt == document.text[window.start - 16 : window.start]


def test_json_lines_with_windows_line_ends_and_unicode(case: Case, tmp_path: Path) -> None:
    lines = [json.dumps({"text": text, "n": 1}) for text in case.documents]
    corpus = tmp_path / "c.jsonl"
    corpus.write_bytes("\r\n".join(lines).encode())
    found: Any = verbatim(case.loaded, corpus, out=tmp_path / "out", settings=WINDOWS)
    assert found.documents == len(lines)
    assert found.rows[0].number == 1


def test_bad_input_is_named(case: Case, tmp_path: Path) -> None:
    for name, text in (("short", "too short\nalso\n"), ("blank", "\n \n\n")):
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "result.json").write_text("{}")
    tokenizer = byte_level_bpe()
    small = model_of("gpt2", len(tokenizer)).eval()
    limit = small.config.max_position_embeddings
    long, run = replace(ALONE, prefix_tokens=limit), tmp_path / "run"
    pair: dict[str, Any] = {"tokenizer": tokenizer, "settings": long}
    refused: list[tuple[type[Exception], str, Any, Any, dict[str, Any]]] = [
        (
            CorpusError,
            r"every document of the corpus is too short: .* 16 \+ 16",
            None,
            "short.txt",
            {},
        ),
        (CorpusError, "holds no text", None, "blank.txt", {}),
        (CorpusError, "no file matches", None, "missing*.txt", {}),
        (ModelError, f"reads {limit} at once", small, case.train, pair),
        (ResultError, r"holds a run \(result.json\), whose files", None, case.train, {"out": run}),
        (
            SettingsError,
            "random_split=True is of held-out doc",
            None,
            case.train,
            {"settings": SHORT},
        ),
    ]
    for error, message, model, corpus, given in refused:
        asked: Any = {"out": tmp_path / "a", "settings": ALONE} | given
        with pytest.raises(error, match=message):
            verbatim(model or case.loaded, tmp_path / corpus, **asked)
    with pytest.raises(SettingsError, match="distance=16 edits make any text"):
        replace(ALONE, distance=16)


def test_text_of_another_encoding_is_doubted(case: Case, tmp_path: Path) -> None:
    """Letters in an order that no training had: worse than guessing."""
    draws = np.random.default_rng(1)
    letters = sorted(set("".join(case.documents)))
    lines = ["".join(draws.choice(letters, size=90)) for _ in range(12)]
    corpus = tmp_path / "noise.txt"
    corpus.write_text("\n".join(lines), encoding="utf-8")
    found: Any = verbatim(case.loaded, corpus, out=tmp_path / "out", settings=WINDOWS)
    assert any("is it the corpus of this model" in line for line in found.warnings)
    assert {row.verdict for row in found.rows} == {"no"}


def test_a_damaged_record_is_refused(case: Case, tmp_path: Path) -> None:
    verbatim(case.loaded, case.train, out=tmp_path, settings=WINDOWS)
    path = tmp_path / "verbatim.json"
    path.write_bytes(path.read_bytes().replace(b'"greedy"', b'"greedi"', 1))
    with pytest.raises(ResultError, match=r"verbatim\.json"):
        lx.open(tmp_path)
    with pytest.raises(ResultError, match=r"verbatim\.json .* move the file away first"):
        verbatim(case.loaded, case.train, out=tmp_path, settings=WINDOWS)


def test_other_work_is_refused_by_name_and_lost_texts_are_made_again(
    case: Case, tmp_path: Path
) -> None:
    made = verbatim(case.loaded, case.train, out=tmp_path, settings=WINDOWS)
    others = replace(WINDOWS, suffix_tokens=17)
    with pytest.raises(ResultError, match="its suffix_tokens was 16, now 17 is asked for"):
        verbatim(case.loaded, case.train, out=tmp_path, settings=others)
    with pytest.raises(ResultError, match="its corpus was another; choose another directory"):
        verbatim(case.loaded, case.held_out, out=tmp_path, settings=WINDOWS)
    path = tmp_path / "passages.json"
    texts = path.read_bytes()
    path.unlink()
    again = verbatim(case.loaded, case.train, out=tmp_path, settings=WINDOWS)
    assert (again.passages_sha256, path.read_bytes()) == (made.passages_sha256, texts)


@pytest.mark.parametrize("prompts", ["abc", [3], 3])
def test_prompts_are_a_list_of_texts(case: Case, tmp_path: Path, prompts: Any) -> None:
    with pytest.raises(SettingsError, match=r"^prompts=.* must be a list of texts, such as"):
        verbatim(case.loaded, case.train, out=tmp_path / "look", prompts=prompts)
    assert not (tmp_path / "look").exists()


def test_a_prompt_longer_than_the_context_is_cut(case: Case, tmp_path: Path) -> None:
    tokenizer = byte_level_bpe()
    small = model_of("gpt2", len(tokenizer)).eval()
    long = "The random number is 281265017. " * 200
    found: Any = verbatim(
        small,
        case.train,
        tokenizer=tokenizer,
        out=tmp_path,
        prompts=[long],
        settings=replace(ALONE, samples=22, near_windows=0),
    )
    assert found.free.samples == 22


class Watching:
    """A watcher that stops the look at a place."""

    def __init__(self, stop: tuple[str, int] = ("", 0)) -> None:
        self._stop = stop
        self.seen: list[str] = []
        self.phases: list[Phase] = []

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        assert 0 <= done <= total
        self.seen += [what] * (what not in self.seen)
        if (what, done) == self._stop:
            raise KeyboardInterrupt

    def plan(self, title: str, phases: Sequence[Phase], *, keeps: bool) -> None:
        assert title.startswith("looking at ")
        self.phases = list(phases)

    def expect(self, what: str, seconds: float) -> None:
        raise AssertionError("paces are seen")

    def end_asked(self) -> bool:
        return False


@pytest.mark.slow
def test_what_is_ahead_is_announced_without_what_is_kept(
    case: Case, looked: Any, tmp_path: Path
) -> None:
    def look(watching: Watching) -> Any:
        whole: Any = {"held_out": case.held_out, "settings": SHORT, "progress": watching}
        return verbatim(case.model, case.train, out=tmp_path, **whole)

    first, again = Watching(("near", 1)), Watching()
    with pytest.raises(KeyboardInterrupt):
        look(first)
    names = ["scoring", "held out", "near", "sampling", "writing out"]
    assert [phase.what for phase in first.phases] == names
    assert all(phase.before == 0 and phase.expected > 0 for phase in first.phases)
    assert look(again).rows == looked.rows
    assert [what for what in again.seen if what != "looking up"] == names
    of_first, of_again = ({phase.what: phase for phase in w.phases} for w in (first, again))
    assert of_again["scoring"].work == of_again["held out"].work == 0
    assert (of_again["near"].work, of_again["near"].before) == (1, 0.5)
    assert of_again["sampling"].work == of_first["sampling"].work
