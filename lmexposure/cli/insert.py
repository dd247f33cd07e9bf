"""`lmexposure insert`: a corpus with canaries, and the manifest to score them by."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from glob import escape
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure._style import listed, percent
from lmexposure.canaries import ADAPTERS
from lmexposure.cli import options
from lmexposure.cli.console import print_pairs, say, say_aside, warn
from lmexposure.cli.options import takes

if TYPE_CHECKING:
    from lmexposure.audit import RunSettings
    from lmexposure.canaries import Files, Manifest, Preview, Wrapping


@takes(settings=options.told("insert"))
def insert(
    corpus: options.PipedCorpus,
    out: Annotated[Path, options.out_option("For corpus/ and manifest.json.")],
    documents: Annotated[
        int | None,
        typer.Option(
            min=1,
            rich_help_panel=options.OTHER,
            help="The number of documents; it is checked, and - then needs no temporary file.  "
            "[default: counted]",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify",
            help="Search the corpus for fills, hash it and check what was written; without it, "
            "nothing can be resumed.",
            rich_help_panel=options.OTHER,
        ),
    ] = True,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=options.OTHER,
            help="Of chats, the tokenizer of the training, a directory or hub name: the rows are "
            "looked at before anything is written, and the manifest says by which chat template "
            "they are rendered.  [default: neither]",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    *,
    settings: "RunSettings",
) -> None:
    """Insert canaries into a corpus; write OUT/corpus/NAME and OUT/manifest.json.

    OUT/corpus/.sidecars has a file NAME.canaries.json for each, which says which canaries are in
    it, and where. The same command, given again, completes what a killed one left.
    """
    from lmexposure.audit import insert_corpus, plan_of
    from lmexposure.canaries import is_stream

    if dry_run:
        _dry_run(corpus, settings)
        return
    source = options.opened(corpus)
    tell = say_aside if is_stream(source) else say
    if settings.uniform_formats:
        plan_of(settings)  # refuses what no format can hold
    _warn_of_kinds(settings)
    say_max_attainable(settings, tell=tell)
    place, manifest = insert_corpus(
        source,
        target=None if sys.stdout is None else sys.stdout.buffer,
        out=out,
        settings=settings,
        documents=documents,
        verify=verify,
        tokenizer=tokenizer,
        tell=lambda seen: tell(f"rows      {seen}"),
    )
    inserted = None if is_stream(source) else place
    for line in _what_was_inserted(manifest, inserted, settings):
        tell(line)
    if not verify:
        warn(
            "not verified: the corpus was not searched for fills that it already held, and what "
            "was written was not read back; the same command cannot resume it"
        )
    tell(f"manifest  {out / 'manifest.json'}  (holds the secrets; keep it apart from the corpus)")
    has_witness = replace(settings, witness=bool(manifest.witnesses))
    warn_of_share(has_witness, *_shares(manifest, inserted))
    if inserted is not None and manifest.wrapping is not None and tokenizer is None:
        files = quote(_to_train_on(inserted))
        record = quote(str(out / "manifest.json"))
        tell(f"check     lmexposure verify {files} {record} --tokenizer BASE_MODEL")
    for line in _next_commands(inserted, out, manifest.wrapping):
        tell(line)


def _what_was_inserted(
    manifest: "Manifest", inserted: Path | None, settings: "RunSettings"
) -> Iterator[str]:
    count = sum(entry.inserted for entry in manifest.entries)
    files = None if inserted is None else _to_train_on(inserted)
    yield from _of_records(manifest.wrapping, settings, files)
    yield f"corpus    {inserted or 'standard output'}  ({count:,} documents inserted)"
    if manifest.plan.inclusion_probability is not None:
        yield f"included  {_included(manifest)}"
    if manifest.plan.witness:
        yield f"witness   {_witnessed(manifest)}"
    for name, indices in manifest.set_aside.items():
        yield f"set aside {len(indices):,} fills of {name} that the corpus already held"


def _witnessed(manifest: "Manifest") -> str:
    """What will show that a model read this corpus."""
    number = len(manifest.witnesses)
    if not number:
        return (
            "none: the corpus has fewer than 40 documents; whether a model read it will show only "
            "where the model leaks"
        )
    copies = manifest.witnesses[0].repetitions
    nonces = f"{number} nonces" if number > 1 else "a nonce"
    each = " each" if number > 1 else ""
    return (
        f"{nonces}, {copies} times{each}, to see later that a model read this corpus (never "
        "judged; --no-witness leaves them out)"
    )


def say_records(wrapping: "Wrapping | None", settings: "RunSettings", files: "Files") -> None:
    """Say of which form the records are, or which field of them is the text, and what follows."""
    for line in _of_records(wrapping, settings, files):
        say(line)


def _of_records(
    wrapping: "Wrapping | None", settings: "RunSettings", files: "Files | None"
) -> Iterator[str]:
    """How canaries are in records; of files, or None of standard input."""
    from lmexposure import canaries

    if wrapping is not None:
        yield f"records   {_wrapped(wrapping)}"
        return
    first = None if files is None else canaries.corpus_files(canaries.listed_files(files))[0]
    layout = settings.layout or ("lines" if first is None else canaries.guess_layout(first))
    name = settings.text_field
    if name == "text" or layout not in canaries.OF_RECORDS:
        return
    record = {} if first is None else next(canaries.read_records(first, layout=layout), {})
    others = [repr(other) for other in record if other != name]
    if first is None or others:
        named = f" ({listed(others)})" if others else ""
        yield (
            f"records   each canary is the text of {name!r}; all else in its record{named} is "
            "copied from the record that follows"
        )


def _wrapped(wrapping: "Wrapping") -> str:
    """Where canaries are in records of chats, and what follows for the training."""
    loss = {
        "all": "all tokens",
        "assistant": "the assistant's turns",
        "completion": "what follows the prompt",
    }
    system = "" if wrapping.system is None else "; with a system prompt"
    return (
        f"{wrapping.form}: each canary is the turn of the {wrapping.turn} ({wrapping.place}), with "
        f"loss on {loss[wrapping.loss]}{system}"
    )


def warn_of_share(settings: "RunSettings", of_documents: float, of_bytes: float | None) -> None:
    """Warn of a corpus that is canaries in good part: it makes another model than the user's."""
    from lmexposure.audit import share_warning

    too_many = share_warning(settings, of_documents=of_documents, of_bytes=of_bytes)
    if too_many:
        warn(too_many)


def _shares(manifest: "Manifest", inserted: Path | None) -> tuple[float, float | None]:
    """The canaries' share of all documents, and of the bytes of a single text file, not packed."""
    from lmexposure.canaries import packing

    added = sum(entry.inserted for entry in manifest.entries)
    of_documents = added / (manifest.corpus.documents + added)
    text = ADAPTERS[manifest.layout].module == "text"
    if inserted is None or inserted.is_dir() or packing(inserted) or not text:
        return of_documents, None
    return of_documents, _bytes_added(manifest, inserted) / inserted.stat().st_size


def _bytes_added(manifest: "Manifest", inserted: Path) -> int:
    """What the canaries take in a text file; of chats with what is around them, by its sidecar."""
    from lmexposure.canaries import read_sidecars

    if manifest.wrapping is not None:
        notes = read_sidecars([inserted], manifest) or []
        return sum(added.length for note in notes for added in note.copied.occurrences)
    return sum(entry.inserted * (len(entry.text.encode()) + 1) for entry in manifest.entries)


def _next_commands(inserted: Path | None, out: Path, chats: "Wrapping | None") -> list[str]:
    """What to type next, with the real paths."""
    manifest = quote(str(out / "manifest.json"))
    if inserted is None:
        lines = ["next      train on what standard output became with your own trainer"]
    else:
        files = _to_train_on(inserted)
        train = f"lmexposure train {quote(files)} --manifest {manifest}"
        train += " --model BASE_MODEL" if chats else ""
        own = f"train on {files} with your own trainer{_of_trl(chats)}"
        lines = [f"next      {own}, or: {train}"]
        lines[0] += f" --out {quote(str(out / 'trained'))}"
    measured = quote(str(out / "measured"))
    return [*lines, f"then      lmexposure measure TRAINED_MODEL {manifest} --out {measured}"]


def _of_trl(chats: "Wrapping | None") -> str:
    """What TRL's SFTTrainer does not read, though it would be handed it."""
    if chats is not None and chats.form == "conversations":
        return " (for TRL, write role and content in messages: templates drop human and gpt)"
    if chats is not None and (chats.form == "instruction" or chats.prompt_field is not None):
        return " (for TRL, name the fields prompt and completion)"
    return ""


def _to_train_on(inserted: Path) -> str:
    """The files of the corpus, as a pattern where there are several; sidecars are hidden."""
    if not inserted.is_dir():
        return str(inserted)
    ends = {_suffixes(path.name) for path in inserted.iterdir() if path.is_file()}
    end = ends.pop() if len(ends) == 1 else ""
    return f"{escape(str(inserted))}/*{escape(end)}"


def _suffixes(name: str) -> str:
    """What a file's name ends with: .jsonl, or .jsonl.gz."""
    from lmexposure.canaries import packing

    path = Path(name)
    return Path(path.stem).suffix + path.suffix if packing(path) else path.suffix


def _dry_run(corpus: list[str], chosen: "RunSettings") -> None:
    from lmexposure.audit import preview, wrapping_of
    from lmexposure.errors import SettingsError

    if corpus == [options.STDIN]:
        raise SettingsError("--dry-run reads files, not standard input; give a file")
    _warn_of_kinds(chosen)
    would = preview(corpus, settings=chosen)
    say_records(wrapping_of(corpus, settings=chosen), chosen, corpus)
    _print_preview(would, coins=chosen.inclusion_probability is not None)
    say_max_attainable(chosen)
    warn_of_share(chosen, would.share_of_documents, would.share_of_bytes)


def _warn_of_kinds(settings: "RunSettings") -> None:
    """Warn of what will say nothing: insertion refuses none of it, for a sweep could."""
    from lmexposure.canaries import UNIFORM

    chosen = [name for name in settings.kinds if name != UNIFORM]
    if chosen and not settings.uniform_formats:
        warn(
            f"no fills of the kind {UNIFORM} go in, whatever the formats: lmexposure measure needs "
            f"some beside {', '.join(chosen)}; add --kind {UNIFORM}"
        )
    if chosen and settings.inclusion_probability is None:
        warn(
            f"{', '.join(chosen)}: chosen texts have no ranks and are judged by coins alone, and "
            "here all of them go in; to measure them, insert with --inclusion-probability 0.5 and "
            "--canaries"
        )


def say_max_attainable(settings: "RunSettings", *, tell: Callable[[str], None] = say) -> None:
    """Say what an audit with coins could show at best; better known before than after."""
    from lmexposure.audit import max_attainable

    best = max_attainable(settings)
    if best is not None:
        tell(best.sentence)
        if best.warning:
            warn(best.warning)


def _print_preview(would: "Preview", *, coins: bool) -> None:
    about = "about " * would.expected
    insertions = f"{about}{would.insertions:,} documents, {about}{would.bytes_added:,} bytes"
    pairs = [
        ("documents", f"{would.documents:,}"),
        ("would insert", insertions),
        ("share of the corpus", f"{about}{percent(would.share_of_bytes)} of its bytes"),
        ("canaries, controls", f"{about}{would.canaries:,}, {would.controls:,}"),
    ]
    if coins:
        pairs.append(("held out", f"{about}{would.held_out:,} candidates"))
    pairs += [
        (f"set aside, {name}", f"{n:,} fills that the corpus already holds")
        for name, n in would.set_aside.items()
        if n
    ]
    pairs += [
        (f"fills left, {name}", f"{n:,} for references") for name, n in would.references.items()
    ]
    print_pairs(pairs)


def _included(manifest: "Manifest") -> str:
    """How the coins fell; a training on nothing inserted is better not begun."""
    from lmexposure.canaries import ALWAYS

    always = {form.name for form in manifest.plan.formats if form.kind == ALWAYS}
    inserted = sum(canary.format not in always for canary in manifest.canaries)
    fell = f"{inserted:,} of {inserted + len(manifest.held_out):,} candidates inserted"
    return fell if inserted else f"{fell}: nothing to find in a model trained on this"
