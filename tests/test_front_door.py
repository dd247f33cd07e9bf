"""The front door: what its functions take and give, and what wrong calls end in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from corpora import sentences
from datasets import Dataset, DatasetDict, IterableDataset
from made_results import small_manifest, small_result, small_run
from made_studies import MADE

import lmexposure as lx
from lmexposure.core import claimed
from lmexposure.errors import (
    CorpusError,
    FileError,
    InputError,
    LmexposureError,
    ManifestError,
    PlanError,
    ResultError,
    SettingsError,
)
from lmexposure.studies import Result

TEXTS = sentences(40)
PLAN: dict[str, Any] = {"formats": ["pin"], "canaries": 2, "repetitions": (3,), "seed": 7}

RECORDS = [{"text": text, "source": i} for i, text in enumerate(TEXTS)]
KINDS: dict[str, Any] = {
    "list": TEXTS,
    "tuple": tuple(TEXTS),
    "records": RECORDS,
    "frame": pd.DataFrame(RECORDS),
    "data set": Dataset.from_list(RECORDS),
    "splits": DatasetDict(train=Dataset.from_list(RECORDS), test=Dataset.from_list(RECORDS)),
}


def texts_in(documents: Any) -> list[str]:
    """The texts of any of the kinds."""
    if isinstance(documents, DatasetDict):
        documents = documents["train"]
    if isinstance(documents, pd.DataFrame | Dataset | IterableDataset):
        return list(documents["text"])
    return [one if isinstance(one, str) else one["text"] for one in documents]


@pytest.mark.parametrize("kind", KINDS)
def test_documents_come_back_as_what_they_were_with_the_same_canaries(kind: str) -> None:
    documents, manifest = lx.insert(KINDS[kind], **PLAN)
    assert type(documents) is type(KINDS[kind])
    assert texts_in(documents) == lx.insert(TEXTS, **PLAN).documents
    assert lx.verify(documents, manifest).as_inserted
    assert not lx.verify(KINDS[kind], manifest).as_inserted
    restored = lx.remove(documents, manifest)
    assert type(restored) is type(KINDS[kind])
    assert texts_in(restored) == TEXTS
    with pytest.raises(CorpusError, match="changed since"):
        lx.remove(KINDS[kind], manifest)


def test_another_iterable_becomes_a_list_and_a_plan_is_as_good_as_its_fields() -> None:
    plan = lx.Plan(**PLAN)
    made: Any = (text for text in TEXTS)
    assert lx.insert(made, plan) == lx.insert(TEXTS, **PLAN)
    named = [{"body": text} for text in TEXTS]
    documents, manifest = lx.insert(named, plan, text_field="body")
    assert [one["body"] for one in documents] == lx.insert(TEXTS, plan).documents
    assert (manifest.corpus.text_field, manifest.layout) == ("body", "dataset")
    assert lx.verify(documents, manifest).as_inserted


def test_other_columns_are_those_of_the_row_that_follows() -> None:
    frame, _ = lx.insert(KINDS["frame"], **PLAN)
    records, _ = lx.insert(RECORDS, **PLAN)
    assert frame.to_dict("records") == records
    assert list(frame.columns) == ["text", "source"]
    assert frame["source"].dtype == KINDS["frame"]["source"].dtype


def test_a_chat_takes_a_wrapping() -> None:
    chats = [
        {"messages": [{"role": "user", "content": t or "?"}, {"role": "assistant", "content": "!"}]}
        for t in TEXTS
    ]
    wrapped, manifest = lx.insert(chats, wrapping=lx.Wrapping(turn="assistant"), **PLAN)
    assert len(wrapped) == 40 + 6 + 5  # the last are copies of a witness
    assert lx.verify(wrapped, manifest).as_inserted
    with pytest.raises(CorpusError, match=r"record 1 has no 'text'; it has messages: .*a wrapping"):
        lx.insert(chats, **PLAN)


def test_a_stream_needs_its_length() -> None:
    stream = KINDS["data set"].to_iterable_dataset()
    inserted, manifest = lx.insert(stream, total=40, **PLAN)
    assert lx.verify(inserted, manifest).as_inserted
    with pytest.raises(CorpusError, match=r"how many documents a stream has.*give total"):
        lx.insert(stream, **PLAN)
    with pytest.raises(CorpusError, match="too late to set it aside; leave existing out"):
        lx.insert(stream, total=40, existing="set_aside", **PLAN)
    with pytest.raises(CorpusError, match="total=40 is for a stream; leave it out"):
        lx.insert(TEXTS, total=40, **PLAN)


def test_files_are_inserted_into_verified_and_restored(tmp_path: Path) -> None:
    source = tmp_path / "corpus.txt"
    source.write_text("\n".join(TEXTS) + "\n")
    manifest = lx.insert_files(source, tmp_path / "out", **PLAN)
    inserted = tmp_path / "out" / "corpus" / "corpus.txt"
    assert lx.Manifest.read(tmp_path / "out" / "manifest.json") == manifest
    assert lx.verify(inserted, manifest).as_inserted
    assert lx.verify([inserted], tmp_path / "out" / "manifest.json").as_inserted
    assert not lx.verify(source, manifest).as_inserted
    removed = lx.remove(inserted, manifest, tmp_path / "back.txt")
    assert (removed.checked, removed.documents) == (True, 6 + 5)
    assert (tmp_path / "back.txt").read_bytes() == source.read_bytes()
    with pytest.raises(CorpusError, match=r"back.txt is there already; choose another name"):
        lx.remove(inserted, manifest, tmp_path / "back.txt")
    before = inserted.stat().st_mtime_ns
    assert lx.insert_files(source, tmp_path / "out", **PLAN) == manifest
    assert inserted.stat().st_mtime_ns == before
    with pytest.raises(InputError, match="holds a manifest of another plan; choose another"):
        lx.insert_files(source, tmp_path / "out", **{**PLAN, "repetitions": (7,)})


def test_names_of_files_are_files_and_texts_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("\n".join(TEXTS) + "\n")
    manifest = lx.insert_files(tmp_path / "a.txt", tmp_path / "out", **PLAN)
    monkeypatch.chdir(tmp_path / "out" / "corpus")
    assert lx.verify(["a.txt"], manifest).as_inserted
    for names in ("a.txt", Path("a.txt"), ["a.txt"], [Path("a.txt")]):
        with pytest.raises(CorpusError, match="is in files; give out, the name of the file to wr"):
            lx.remove(names, manifest)
    with open("a.txt", "rb") as stream, pytest.raises(CorpusError, match="in files; give out"):
        lx.remove(stream, manifest)
    assert lx.remove(["a.*"], manifest, tmp_path / "back.txt").checked
    texts, known = lx.insert(TEXTS, **PLAN)
    rows = lx.insert(KINDS["frame"], **PLAN).documents
    for documents in (texts, tuple(texts), iter(texts), rows, [{"text": "a"}], [*texts, "a.txt"]):
        with pytest.raises(CorpusError) as refused:
            lx.remove(documents, known, tmp_path / "new.txt")
        assert str(refused.value) == (
            "documents in memory need no out; leave it out, or give names of files that are there"
        )


NO_DOCUMENTS: list[tuple[Any, str]] = [
    ([1, 2], r"the first document is of type int; give texts \(str\).*of token ids, give the"),
    ([[1, 2], [3]], "the first document is of type list; give texts"),
    ("one text", "documents is one text; give a list of texts, one a document; files go into"),
    (b"bytes", "documents is of type bytes; give a list of texts"),
    (Path("a.txt"), "documents is of type PosixPath; give a list of texts"),
    ([Path("a.txt")], "holds names of files, such as 'a.txt'; files go into insert_files"),
    ([__file__], "holds names of files, such as .*; files go into insert_files"),
    ({"text": TEXTS}, "documents is of type dict; give a list of texts or of records, a DataFrame"),
    ({"a", "b"}, "documents is of type set; give a list of texts"),
    (5, "documents is of type int; give a list of texts"),
    ([], "has 0 records and none holds text; give some"),
    (["one", 2], "record 2 is of type int, not a string"),
    ([{"text": "a"}, "b"], "record 2 is one text, and must be fields by name"),
    ([{"text": "a"}, {"t": "b"}], "record 2 has no 'text'; it has t: name the text_field"),
    (pd.DataFrame({"body": TEXTS}), "frame has no 'text'; it has body: name the text_field"),
]
# What is typed, the class of the error, and what it says of the value and the next step.
REFUSED = [
    (
        "insert(TEXTS, wrapping=lx.Wrapping(), **PLAN)",
        CorpusError,
        r"list of records \(dicts\); give",
    ),
    ("insert(TEXTS)", PlanError, r'say what to insert, such as formats=\["pin"\]'),
    ("insert(TEXTS, format='pin')", PlanError, "a plan has no 'format'; it has formats, canaries"),
    (
        "insert(TEXTS, ['pin'])",
        PlanError,
        "plan is of type list; give a Plan, or its fields by name",
    ),
    (
        "insert(TEXTS, lx.Plan(formats='pin'), seed=1)",
        PlanError,
        r"not both; replace\(plan, seed=..",
    ),
    ("insert([{'text': 'a'}], wrapping='user', **PLAN)", InputError, "wrapping is of type str; g"),
    (
        "insert_files([3], 'out', **PLAN)",
        CorpusError,
        "sources holds one of type int; give paths of",
    ),
    ("insert_files(None, 'o', **PLAN)", InputError, "sources is of type NoneType; give a path"),
    ("remove([], KNOWN, 'out')", CorpusError, "sources is empty; give paths of files"),
    ("remove('a', RESULT, 'b')", InputError, "manifest is of type Result; give the manif"),
    (
        "verify(TEXTS, KNOWN, tokenizer='gpt2')",
        SettingsError,
        "a tokenizer goes with the directory",
    ),
    ("verify(Path.cwd(), KNOWN)", SettingsError, r"or its \*.arrow files"),
    ("verify(KINDS['frame'], KNOWN, text_field='x')", CorpusError, "the frame has no 'x'"),
    ("verify(KINDS['data set'], KNOWN, text_field='x')", CorpusError, "there are text, source"),
    (
        "verify(DatasetDict(test=KINDS['data set']), KNOWN)",
        CorpusError,
        "no 'train' split; .*has test",
    ),
    ("verify(TEXTS, RESULT)", InputError, "manifest is of type Result; give the manifest"),
    ("check(RESULT, {'p_value': 1})", InputError, "thresholds is of type dict; give Thre"),
    ("check({})", InputError, "measured is of type dict; give a study, such as a Result, or"),
    ("Result.read(RESULT)", InputError, "path is of type Result; give that of a run direct"),
    ("ExposureCallback(lx.insert(TEXTS, **PLAN))", InputError, "manifest is of type Inserted; gi"),
    ("load_model({})", InputError, "name_or_path is of type dict; give the path of a saved model"),
    ("run('c.txt', out='r', settings={})", InputError, "unknown setting 'settings'; did you mean"),
    (
        "run(TEXTS, out='r')",
        InputError,
        "sources holds an empty name; give paths of files: no texts",
    ),
    (
        "epsilon([1, 2, 3], [True, False])",
        InputError,
        "different lengths: scores 3, included 2, form",
    ),
    ("epsilon([1, float('nan')], [1, 0])", InputError, r"scores\[1\]=nan is not finite"),
    ("epsilon(['a', 'b'], [1, 0])", InputError, "scores must hold numbers only"),
    ("epsilon([1, 2], ['yes', 'no'])", InputError, "included must say .* True or False, or 1 or 0"),
    ("epsilon([1, 2], [0.5, 1])", InputError, "included must say .* True or False, or 1 or 0"),
    (
        "epsilon([1, 2], [1, 0], repetitions=[1, 2, 3])",
        InputError,
        "formats 2, repetitions 3; give one",
    ),
    ("epsilon([1, 2], [1, 0], repetitions=0)", InputError, "repetitions"),
    (
        "epsilon([1, 2], [1, 0], formats=['a', 'b'], references=[1.0])",
        InputError,
        "of 2 formats cannot",
    ),
    (
        "epsilon([1, 2], [1, 0], deltas=())",
        InputError,
        r"deltas is empty; give one, such as \(0.0,\)",
    ),
    (
        "epsilon([1, 2], [1, 0], lower_is_in='yes')",
        InputError,
        "lower_is_in='yes' must be true or f",
    ),
    (
        "report(RESULT, 'r.html', thresholds=3)",
        SettingsError,
        "thresholds is of type int; give Thre",
    ),
    *(
        (f"report(RESULT, {out!r})", SettingsError, "out=.* is no path; give a")
        for out in ("", None, 3)
    ),
    (
        "report(RESULT, 'page.pdf')",
        SettingsError,
        "must end in .html, .md, .csv, .json, or be a dir",
    ),
    (
        "report(RESULT, 's.csv', show_secrets=True)",
        SettingsError,
        "no manifest next to the result in",
    ),
    ("report(RESULT, 's.csv', manifest=OTHER)", ManifestError, "but result was made from"),
]


@pytest.mark.parametrize(("documents", "message"), NO_DOCUMENTS)
def test_what_holds_no_documents(documents: Any, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        lx.insert(documents, **PLAN)


@pytest.mark.parametrize(("typed", "error", "message"), REFUSED)
def test_what_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    error: type[Exception],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    made = {"RESULT": small_result(), "KNOWN": small_manifest(), "OTHER": small_manifest(seed=5)}
    with pytest.raises(error, match=message):
        eval(f"lx.{typed}", globals() | made)


def test_results_in_memory_say_where_they_are_to_go() -> None:
    with pytest.raises(SettingsError, match="out='' is no path; give a directory's"):
        small_result().save("")
    with pytest.raises(SettingsError, match=r"out='' is no path; give a file such as report\.html"):
        lx.report(small_result(), "")


def test_records_print_themselves_short_and_without_secrets() -> None:
    manifest = lx.insert(TEXTS, **PLAN).manifest
    assert repr(manifest) == "<Manifest of 40 documents: 2 canaries and 32 controls of pin>"
    verdict = lx.check(small_result())
    assert repr(verdict) == f"<Verdict: {verdict.sentence}>"


def test_a_measurement_is_judged_and_reported_however_it_is_given(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    opened = Result.read(run)
    given: list[Any] = [small_result(), opened, run, str(run / "result.json")]
    verdicts = [lx.check(one) for one in given]
    assert verdicts[1:] == verdicts[:-1]
    assert (verdicts[0].outcome, verdicts[0].passed, verdicts[0].exit_code) == ("leak", False, 1)
    assert {check.outcome for check in verdicts[0].findings} == {"leak"}
    assert verdicts[0].deciding in verdicts[0].findings
    lax = lx.Thresholds(max_exposure=99.0, max_guesses=1, p_value=False)
    assert lx.check(given[0], lax).outcome != "leak"
    pages = [lx.report(one, tmp_path / f"{i}.md").read_text() for i, one in enumerate(given[1:])]
    assert pages[1:] == pages[:-1]


def test_a_report_from_memory_has_what_its_scores_show(tmp_path: Path) -> None:
    opened = Result.read(small_run(tmp_path / "run"))
    scores = opened.scores
    assert scores is not None
    bare, full = small_result(), small_result().with_scores(scores)
    pages = [lx.report(one, tmp_path / "page.html").read_text() for one in (bare, full)]
    roc = "Canaries distinguished from texts never inserted (ROC)"
    assert [roc in page for page in pages] == [False, True]
    assert ["drawn from nine quantiles" in page for page in pages] == [True, False]
    assert lx.report(full, tmp_path / "deep") == tmp_path / "deep" / "report.html"
    assert (tmp_path / "deep" / "report.md").exists()


def test_a_report_shows_secrets_to_their_owner_who_has_the_manifest(tmp_path: Path) -> None:
    result, manifest = small_result(), small_manifest()
    manifest.write(tmp_path / "manifest.json")
    for given in (manifest, tmp_path / "manifest.json"):
        page = lx.report(result, tmp_path / "r.csv", manifest=given, show_secrets=True)
        assert manifest.canaries[0].text.split()[-1] in page.read_text()
        assert page.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["mine.html", "mine.md", "mine.csv", "mine.json", "."])
def test_a_report_replaces_a_report_and_nothing_else(tmp_path: Path, name: str) -> None:
    first = lx.report(small_result(), tmp_path / name).read_bytes()
    assert lx.report(small_result(), tmp_path / name).read_bytes() == first
    written = tmp_path / ("report.md" if name == "." else name)
    written.write_text("# my own notes\n")
    with pytest.raises(FileError, match=f"{written.name} was changed since lmexposure wrote it; c"):
        lx.report(small_result(), tmp_path / name)
    assert written.read_text() == "# my own notes\n"


def test_a_report_stays_away_from_another_run(tmp_path: Path) -> None:
    small_run(tmp_path / "other", seed=5)
    with pytest.raises(SettingsError, match=r"holds another study \(result\.json\)"):
        lx.report(small_result(), tmp_path / "other" / "page.html")
    small_result().save(tmp_path / "own")
    assert lx.report(small_result(), tmp_path / "own" / "page.html").exists()


def test_exposure_both_ways_side_by_side() -> None:
    from lmexposure.statistics import sampled_exposure, skew_normal_exposure

    references = np.random.default_rng(1).normal(40, 3, 500)
    found = lx.exposure([25.0, 41.0], references, space_size=10**9)
    by_rank = sampled_exposure([25.0, 41.0], references, space_size=10**9)
    curve = skew_normal_exposure([25.0, 41.0], references, space_size=10**9, bootstraps=None)
    for name in ("value", "low", "high", "rank", "capped"):
        assert (getattr(found, name) == getattr(by_rank, name)).all()
    assert found.skew_normal is not None
    assert (found.skew_normal.value == curve.value).all()
    assert set(by_rank.warnings) <= set(found.warnings)
    assert lx.exposure(3.5, range(1, 17)).skew_normal is None
    assert "no skew-normal curve" in lx.exposure(3.5, range(1, 17)).warnings[0]
    assert repr(found) == f"<Exposures of 2 canaries: 8.97, {by_rank.value[1]:.2f} bits>"
    assert (
        repr(lx.exposure([1] * 6, [2])) == "<Exposures of 6 canaries: 0.00, 0.00, 0.00, ... bits>"
    )


@pytest.mark.parametrize(
    "turned",
    [lambda bits: 100 - bits, lambda bits: 100 - bits[:1]],
    ids=["many canaries", "one canary"],
)
def test_scores_the_wrong_way_round(turned: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(1)
    references, canaries = rng.normal(40, 3, 2000), rng.normal(20, 3, 10)
    with pytest.raises(
        InputError, match=r"all scores are negative.*turn the sign, and divide nats"
    ):
        lx.exposure(-canaries, -references)
    with pytest.warns(UserWarning, match="lower must mean more memorised.*turn the sign of both"):
        found = lx.exposure(turned(canaries), 100 - references)
    assert "turn the sign" in found.warnings[0]
    assert (found.value < 1e-2).all()


def test_epsilon_takes_columns_of_any_kind() -> None:
    rng = np.random.default_rng(5)
    coins = rng.random(600) < 0.5
    scores = rng.normal(size=600) + 4 * (coins & (rng.random(600) < 0.3))
    found = lx.epsilon(scores, coins, inclusion_probability=0.5, deltas=(1e-5,), claim=0.5)
    assert found.primary is not None
    assert found.claim is not None
    assert (found.primary.method, found.claim.verdict) == ("one_run_audit", "contradicted")
    asked: dict[str, Any] = {"inclusion_probability": 0.5, "deltas": (1e-5,), "claim": 0.5}
    for values, inside in (
        (scores.tolist(), coins.tolist()),
        (pd.Series(scores), pd.Series(coins.astype(int))),
        (scores.astype(object), coins.astype(float)),
    ):
        assert lx.epsilon(values, inside, **asked) == found
    assert lx.epsilon(-scores, coins, lower_is_in=True, **asked) == found
    assert repr(found).startswith("<Privacy: epsilon ≥ ")
    assert "no bound" in repr(lx.epsilon([1, 2], [True, True]))
    with pytest.warns(UserWarning, match="score lower than the rest.*give lower_is_in=True if low"):
        lx.epsilon(-scores, coins, **asked)
    with pytest.warns(UserWarning, match="leave out lower_is_in if lower scores do not mean in"):
        lx.epsilon(scores, coins, lower_is_in=True, **asked)


def test_a_report_takes_no_record_s_place(tmp_path: Path) -> None:
    """The manifest holds the only copy of the secrets: it was replaced without a word."""
    run = small_run(tmp_path / "run")
    for name in ("manifest.json", "result.json", "run.json"):
        before = (run / name).read_bytes()
        with pytest.raises(LmexposureError, match=r"choose another|is there already"):
            lx.report(run, run / name)
        assert (run / name).read_bytes() == before
    with pytest.raises(SettingsError, match="show_secrets"):
        lx.report(run, tmp_path / "out", show_secrets="no")  # type: ignore[arg-type]


def test_parts_of_a_run_that_is_not_done_are_not_judged_in_its_place(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    MADE["white_box"](1).save(run)
    (run / "result.json").unlink()
    with pytest.raises(ResultError, match="the run did not finish"):
        lx.check(run)
    (tmp_path / "measured").mkdir()
    with claimed(Result, tmp_path / "measured") as held, held.work({"inputs": "a"}):
        MADE["white_box"](1).save(tmp_path / "measured")
    with pytest.raises(ResultError, match=r"holds a run without result\.json; it is not done"):
        lx.check(tmp_path / "measured")


def test_a_record_under_the_name_of_another_kind_is_not_taken_for_it(tmp_path: Path) -> None:
    MADE["white_box"](1).save(tmp_path)
    path = tmp_path / "result.json"
    (tmp_path / "white_box.json").rename(path)
    with pytest.raises(ResultError, match="has the name of a run, and holds an audit of gradients"):
        lx.check(path)
    assert lx.open(path.rename(tmp_path / "mine.json")).NAME == "white_box.json"


def test_one_study_is_no_comparison(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    for one in (str(run), run, lx.open(run), 3):
        with pytest.raises(SettingsError, match="give two or more studies in a list"):
            lx.compare(one, tmp_path / "out")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="out=None is no path; give a directory"):
        lx.compare([run, run], None)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["a\0b", "a" * 5000, "a/" * 3000])
def test_a_path_that_no_disk_can_have(path: str) -> None:
    for call in (lx.open, lx.check):
        with pytest.raises(ResultError, match="which cannot be read"):
            call(path)
