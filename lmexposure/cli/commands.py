"""The commands, a row each: name, words, function, arguments, settings and examples.

A new command is a row here. Its function is in this directory, where it says more than one call of
the library, and imports heavy rooms only when it runs, so that every help answers at once. A study
of its own kind needs no function: its row names the library's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from lmexposure._settings import Function
from lmexposure.canaries import layouts_listed
from lmexposure.cli import corpora, judging, work
from lmexposure.cli.options import (
    DEMO,
    EVERY,
    FILES,
    MEASURED_FIRST,
    OTHER,
    TAKEN,
    THRESHOLDS,
    Argument,
    Group,
    argument,
    corpus_argument,
    flag,
    manifest_file,
    no_stdin,
    out_flag,
    switch,
)
from lmexposure.core import own_records
from lmexposure.studies import MACHINE, MEASURING, SWEEPING


@dataclass(frozen=True)
class Command:
    """What is declared of a command."""

    name: str
    words: str  # in the list of commands
    does: Function  # its docstring is what a help says first
    arguments: Mapping[Argument, str] = field(default_factory=dict)  # of the function; their helps
    settings: Mapping[str, Group] = field(default_factory=dict)  # by the function's argument
    examples: str = ""
    help: str = ""  # instead of the docstring
    shows: bool = False  # a study, at its end

    def taken(self) -> Mapping[str, Group]:
        """Its settings; where nothing is said, those of its name are the argument `settings`."""
        own = {"settings": TAKEN[self.name]} if self.name in TAKEN else {}
        return self.settings or own

    def told(self) -> Mapping[Argument, str]:
        """How it is to show its study, with the helps of that."""
        return SHOWN if self.shows else {}

    def epilog(self) -> str | None:
        """The examples, each a line of what it is for and a line as it is typed."""
        lines = (" ".join(line.split()) for line in self.examples.strip().splitlines())
        called = f"lmexposure {self.name}"
        return "".join(f"  {x}\n" if x[0] == "#" else f"  {called} {x}\n" for x in lines) or None


SHOWN = {
    switch("full", panel=OTHER): "Print every table; without it, they are in the report.",
    switch("quiet", panel=OTHER): "Print the verdict alone.",
}
_STDIN = "; - reads standard input"
_CORPUS = corpus_argument(pipe=_STDIN)
_FILES = corpus_argument()
_TRAINED_ON = corpus_argument("What it was trained on")
_INSERTION = {
    argument("manifest", Path, callback=manifest_file): "The manifest.json of the insertion."
}
_WORKERS = {
    flag("workers", int, panel=MACHINE): "Models side by side, by Ray; 1 does without it.  "
    "[default: as many as there are cores, or GPUs; 1 where Ray is not installed]",
    flag("address", panel=MACHINE, metavar="HOST:PORT"): "A Ray cluster, whose machines share "
    "OUT; auto finds the one that runs here.  [default: this machine]",
}
_FORMATS = {
    flag("formats", list[str], word="--format"): "html, md, csv or json; may be repeated.  "
    "[default: html, md]"
}
_RECORDS = ", ".join(own_records())
_CHATS = "Of files of chats"
_STEP = "Instead of the whole sweep"  # what a help says of the flags for one step of it
_step = partial(flag, panel=SWEEPING)
_file = partial(flag, kind=Path, panel=FILES)
_manifest = partial(flag, "manifest", Path, callback=manifest_file)

COMMANDS = (
    Command(
        "run",
        "Insert, train, measure and report: the whole test.",
        work.run,
        {**_CORPUS, **out_flag("The run; the same command resumes it.")},
        examples="""
        # a first look at your corpus
        corpus.txt --effort quick --out runs/look
        # a model that you fine-tune, with secrets of your choice
        corpus.txt --model gpt2 --format pin --format email --out runs/gpt2
        # an audit in one run of the claim that the training is (4, 1e-5)-private
        corpus.txt --audit --canaries 2000 \
        --claimed-epsilon 4 --delta 1e-5 --out runs/audit
        """,
        shows=True,
    ),
    Command(
        "insert",
        "Put canaries into a corpus, and write its manifest.",
        corpora.insert,
        {
            **corpus_argument(pipe=f"{_STDIN} and writes standard output"),
            **out_flag("For corpus/ and manifest.json."),
            flag("documents", int, least=1, panel=OTHER): "The number of documents; it is "
            "checked, and - then needs no temporary file.  [default: counted]",
            flag("verify", bool, word="--verify/--no-verify", default=True, panel=OTHER): "Search "
            "the corpus for secrets, hash it and check what was written; without it, nothing can "
            "be resumed.",
            flag("tokenizer", panel=OTHER): "Of chats, the tokenizer of the training, a "
            "directory or hub name: the rows are looked at before anything is written, and the "
            "manifest says which chat template makes them.  [default: neither]",
            switch("dry_run"): "Only say what would be done.",
        },
        examples="""
        # ten PINs inserted once and ten 16 times, into a corpus of one file
        corpus.txt --format pin --repetitions 1,16 --out canaried
        # an audit in one run: each of 2,000 candidates is inserted with probability 0.5
        train.jsonl --audit --canaries 2000 --out canaried
        # through a pipe
        - --layout jsonl --out canaried < train.jsonl > canaried.jsonl
        """,
    ),
    Command(
        "verify",
        "Count the canaries that a corpus holds.",
        corpora.verify,
        {
            argument("corpus", list[str]): "Text, JSONL or Parquet; .gz and .zst too; several "
            f"files, or a pattern in quotes, 'DIRECTORY/*' for a directory's files{_STDIN}; or "
            "the directory of a saved tokenised data set, Axolotl's dataset_prepared_path and "
            "LLaMA-Factory's tokenized_path among them, with --tokenizer.",
            **_INSERTION,
            flag("layout"): f"{layouts_listed()}.  [default: by the file's suffix, else the "
            "manifest's]",
            flag("text_field"): "The JSONL field that holds the text.  [default: the manifest's, "
            "else text]",
            flag("tokenizer"): "The tokenizer of a tokenised data set: a directory or hub name. "
            f"{_CHATS} that of the training to come: what it makes of their rows is looked at.",
            flag("chat_template"): f"{_CHATS}, a file with the training's template.",
            switch("rows"): "Of a tokenised data set: find out in which rows the training has "
            "the canaries (what is in front and behind, truncation, packing, loss), and write "
            "rows.json beside the manifest, where measure finds it.",
        },
    ),
    Command(
        "remove",
        "Take the canaries out again.",
        corpora.remove,
        {
            argument("corpus", list[str]): "What insertion wrote: a file, several, or a pattern "
            f"in quotes, 'DIRECTORY/*' for a directory's files{_STDIN}.",
            **_INSERTION,
            **out_flag("For the corpus, each file under its own name.", default=None),
            flag("file", metavar="<path>"): "For a single file, instead of --out: a name or a "
            "link; - is standard output.",
        },
    ),
    Command(
        "train",
        "Train a model on a corpus.",
        work.train,
        {
            **_CORPUS,
            **out_flag("For model/ and metrics.jsonl."),
            flag(
                "manifest", Path, callback=manifest_file
            ): "The manifest of the corpus: its canaries are kept whole, and out of validation.",
        },
    ),
    Command(
        "measure",
        "Measure any model against a manifest.",
        work.measure,
        {
            argument("model", list[str], default=None): "A model directory or hub name; several: "
            "the checkpoints of one training, for a trajectory.",
            **_INSERTION,
            flag("scores", Path): "Instead of MODEL, what another program found for the texts of "
            "`lmexposure texts`: JSONL, or lm-eval's logged samples.",
            **out_flag("For result.json, scores.parquet and the report."),
            flag("base", metavar="MODEL"): "The model before the training, which scores the same "
            "texts: exposures then say what was likely anyway, and calibrated ones what the "
            "training added. 'adapter-off': MODEL with its adapter switched off.",
        },
        examples="""
        # a first look
        my-model canaried/manifest.json --effort quick --out measured
        # all of it, against a claim of epsilon 8
        my-model canaried/manifest.json --claimed-epsilon 8 --delta 1e-5 --out measured
        """,
        shows=True,
    ),
    Command(
        "texts",
        "Write what another program is to score.",
        corpora.texts,
        {
            **_INSERTION,
            flag("out", Path, default=...): "A JSONL file, with id, context and text in each row; "
            "it has the secrets, and is for its owner alone.",
            flag("tokenizer"): "Of chats, the model's tokenizer: a directory or hub name.",
            flag("references", int, least=20): "Secrets to compare with, of each format; give "
            "`measure` the same.  [default: 10,000]",
            flag("left_context"): "What was in front of each text in the training: none, or a "
            "text.  [default: as the manifest has it]",
        },
        examples="""
        # for a model that only another program loads; then, measure --scores
        canaried/manifest.json --out texts.jsonl
        # of chats, in the rows of the model's template
        canaried/manifest.json --tokenizer my-model --out texts.jsonl
        """,
    ),
    Command(
        "sweep",
        "Train many models, find the worst canary.",
        work.sweep,
        {
            **corpus_argument(default=None),
            **out_flag(
                "The sweep; the same command goes on at the models that are missing.", default=None
            ),
            switch("prepare", panel=SWEEPING): f"{_STEP}: draw canaries and coins, and train "
            "nothing.",
            _step("only", metavar="N,N,..."): f"{_STEP}: train these models of what --prepare "
            "left in OUT, from 0; for Slurm, or machines without Ray.",
            _step("collect", Path, metavar="DIRECTORY"): f"{_STEP}: join the scores of its "
            "models, and report.",
            **_WORKERS,
        },
        {"given": replace(TAKEN["sweep"], make=dict)},  # a step of it takes none of them
        examples="""
        # 64 models, each with about half of 100 canaries and of the ordinary documents
        corpus.txt --models 64 --out sweeps/pin --format pin
        # the same step by step, for Slurm or machines without Ray: the plan,
        corpus.txt --models 64 --out sweeps/pin --format pin --prepare
        # model by model, on any machine that shares the directory,
        --only 17 --out sweeps/pin
        # and what they show together
        --collect sweeps/pin
        """,
        shows=True,
    ),
    Command(
        "defences",
        "Compare defences at one utility.",
        work.study("defences:compare_defences", refuses="check_models"),
        {
            **_FILES,
            **out_flag("The comparison; the same command goes on where it was ended."),
            **_WORKERS,
        },
        examples="""
        # on a slice of 50,000 characters, 32 models of each
        corpus.txt --methods relaxloss,hamp,dp-sgd --out defences/first
        # on the whole corpus, 64 models of each, at 3 % more loss than without a defence
        corpus.txt --methods goldfish,selena --target 1.03 --entire --out defences/all
        """,
        help="""Compare defences on CORPUS: as useful as each other, how much does each give away?

        The settings of each method are searched first, on other canaries and seeds; then many
        models of each are trained with the same canaries, and attacked in every way that fits.
        What each costs is said before time is spent.
        """,
        shows=True,
    ),
    Command(
        "report",
        "Write the report of a run.",
        judging.report,
        {
            argument("run", Path): "The directory of a run or of another study, or the record in "
            "it, such as result.json.",
            **_FORMATS,
            **out_flag("For the files; by default, next to the result.", default=None),
            switch("show_secrets"): "Show the secrets, which needs the manifest; or the texts "
            "that came out.",
            flag(
                "manifest", Path, callback=manifest_file
            ): "The manifest.json, if it is not next to the result.",
            switch("charts"): "Also write each chart as SVG, PNG and PDF, in charts/.",
            flag("model_card", Path): "A model directory whose README.md gets the results as "
            "metadata.",
            switch("force"): "With --model-card: write into the card of any model; the card then "
            "says that its weights were not checked.",
        },
        examples="""
        # report.html and report.md, next to the result
        runs/gpt2
        # with charts as files, and tables for other tools
        runs/gpt2 --format html --format csv --charts --out shown
        """,
    ),
    Command(
        "compare",
        "Say which of several runs leaks more.",
        judging.compare,
        {
            argument("runs", list[Path]): "Two or more runs, or studies of another kind; the "
            "others are compared with the first.",
            **_FORMATS,
            **out_flag("For the files.", default=Path("compare")),
        },
    ),
    Command(
        "check",
        "Stop a release that leaks: verdict and exit code.",
        judging.check,
        {
            argument("run", Path, default=None, metavar="RUN_OR_RESULT"): "The directory of a "
            f"run or of another study, or the record in it: {_RECORDS}.",
            flag("model", panel=MEASURING): "Measure this model first; needs --manifest.",
            flag(
                "manifest", Path, panel=MEASURING, callback=manifest_file
            ): "The manifest.json of the insertion, with --model.",
            **out_flag(
                "With --model: for the result; by default it is not kept.",
                default=None,
                panel=MEASURING,
            ),
            _file("json"): "Write JSON here.",
            _file("junit"): "Write JUnit XML here.",
            _file("sarif"): "Write SARIF 2.1.0 here.",
            _file("summary"): 'Append Markdown here, as to "$GITHUB_STEP_SUMMARY".',
            flag("settings_file", Path, word="--settings"): "A TOML file; thresholds in its "
            "table [check]; flags win.",
            switch("full"): "Print each check of each class with its reason, and all notes.",
        },
        {"thresholds": THRESHOLDS, "measuring": MEASURED_FIRST},
        examples="""
        # what stops a release
        runs/gpt2
        # with thresholds of your own, for a build server
        runs/gpt2 --max-guesses 100 --max-epsilon 8 --junit verdict.xml
        # a model that is measured first
        --model my-model --manifest canaried/manifest.json --out measured
        # a sweep of many models: its worst canary, and its epsilon
        sweeps/pin --max-worst-tpr 0.5 --max-epsilon 3
        """,
    ),
    Command(
        "epsilon",
        "Bound epsilon from scores of your own.",
        judging.epsilon,
        {
            argument("file", Path): "A .csv or .parquet file, such as the scores.parquet of a run.",
            flag("score"): "The column of scores.  [default: log_perplexity_bits, else score]",
            flag("included"): "The column that says which were included.  [default: role, else "
            "included]",
            switch("lower_is_in"): "Lower scores mean included, as of a loss.",
            flag("inclusion_probability", float): "Each candidate went in by its own independent "
            "coin of this probability. Say so only where it is true: the strongest bounds rest "
            "on it.",
            flag("repetitions", int): "Copies of each candidate, where no column says so.  "
            "[default: 1]",
            flag("significance", float, default=0.05): "How often, at most, the bounds may be "
            "wrong together.",
            flag("deltas", list[float], word="--delta"): "A delta that epsilon is bounded at; "
            "may be repeated.  [default: 0]",
            **dict([replace(TAKEN["measure"], first=("claimed_epsilon",)).flag("claimed_epsilon")]),
            flag("seed", int, default=0): "Seed of ties and splits.",
            flag("as_json", bool, word="--json", default=False): "Print JSON.",
        },
        examples="""
        # of scores of another tool, each included with probability 0.5
        scores.csv --inclusion-probability 0.5 --delta 1e-5
        # of losses, in which a lower one means included
        losses.parquet --score loss --included member --lower-is-in
        """,
    ),
    Command(
        "identifiers",
        "Audit what a corpus holds anyway, without insertion.",
        work.study("audit:natural_identifiers"),
        {
            argument("model"): "The audited model: a directory or hub name.",
            **_TRAINED_ON,
            flag("formats", list[str], word="--format", default=...): "A shipped format, or a "
            ".toml file of yours, that identifiers of the corpus have; may be repeated. Words in "
            "front of its first hole are left out.",
            **out_flag(
                "For identifiers.json and the report; the same command goes on where it was ended."
            ),
            flag("base", metavar="MODEL"): "A model that never saw the corpus, on the same "
            "comparisons: where it too ranks them low, they are not like fresh draws.",
            flag("held_out", list[str], metavar="PATH"): "Documents of the same source that a "
            "random split held out of the training; 'membership' is said beside such alone, or "
            "of UUIDs of version 4. May be repeated.",
        },
        examples="""
        # did my-model read the UUIDs and keys of train.txt? the base never saw them
        my-model train.txt --format uuid --format key.toml --base gpt2 --out audited
        # several files, with less text in front of each
        my-model 'shards/*.jsonl' --format api_key --left 50 --out audited
        """,
        help="""Compare identifiers that CORPUS holds anyway with fresh draws of their format.

        Nothing is inserted: keys, hashes and numbers that were made at random are found by their
        format, each is ranked among fresh draws in its place, under MODEL and under a base.
        """,
        shows=True,
    ),
    Command(
        "verbatim",
        "Does a model reproduce its documents? Without canaries.",
        work.study("regurgitation:verbatim"),
        {
            argument("model"): "A model directory or hub name.",
            **_TRAINED_ON,
            **out_flag("For verbatim.json and the report; the same command goes on there."),
            flag("reference", metavar="MODEL"): "A control: a model that never saw CORPUS; its "
            "tokenizer may be another.",
            flag("held_out", list[str], metavar="FILE", callback=no_stdin): "A control: "
            "documents of the same source that MODEL never saw; may be repeated.",
            flag("prompts", Path, metavar="FILE", callback=work.lines_of): "More beginnings to "
            "sample behind, one a line.  [default: none]",
            flag("show_secrets", bool, word="--show-text", default=False): "Show texts in the "
            "report, and not only their lengths.",
        },
        examples="""
        # which documents of train.txt come out of my-model, and of no model that never saw them
        my-model train.txt --reference gpt2 --out looked
        # against documents that were split off at random, with longer suffixes
        my-model train.jsonl --held-out test.jsonl --random-split --suffix-tokens 100 --out looked
        """,
        help="""Find which documents of CORPUS a model reproduces, and how easily.

        Likely text is not memorised text: name --held-out documents of a --random-split, or a
        --reference model. Without a random split nothing is called memorised.
        """,
        shows=True,
    ),
    Command(
        "canife",
        "Audit a federated training round by round, with crafted canaries.",
        work.study("federated:canife_audit"),
        {
            **corpus_argument("What users wrote"),
            **out_flag("For canife.json, the report and model/."),
        },
        examples="""
        # users of records, with noise that promises something
        posts.jsonl --user-field user --noise-multiplier 0.8 --rounds 20 --every 5 --out federated
        # a text cut into clients, several epochs of small batches each
        novel.txt --clients 200 --set local_epochs=2 --set local_batch=8 --out federated
        """,
        help="""Train an LSTM on users of CORPUS in a federated way, and attack its rounds.

        Each client's update is clipped, and noise is added to their sum, which promises each user
        an epsilon. A crafted canary takes part in mock rounds at random: what it shows is a lower
        bound on epsilon, of each attacked round and of the training, to hold against the promise.
        """,
        shows=True,
    ),
    Command(
        "dp-check",
        "Check a private training, without training.",
        work.dp_check,
        {
            **_CORPUS,
            flag(
                "manifest", Path, callback=manifest_file
            ): "The manifest of the corpus, where canaries are in it.",
        },
        examples="""
        # the training of train --method dp-sgd, of a model and a corpus of yours
        train.txt --model gpt2 --epsilon 8 --delta 1e-5
        # a promise for each user, by adapters
        train.jsonl --model gpt2 --lora --epsilon 8 --delta 1e-5 --set unit_field=user
        """,
    ),
    Command(
        "dp-report",
        "What a private training let out about each document.",
        judging.dp_report,
        {
            argument("training", Path): "The directory of a training by dp-sgd with "
            "document_norms=true.",
            flag("each", Path, word="--list"): "A CSV of each unit and its epsilon, which is "
            "private: readable by you alone.",
        },
        examples="""
        # how the epsilons of single documents lie
        runs/private
        # which documents are the least private, for you alone
        runs/private --list documents.csv
        """,
    ),
    Command(
        "demo",
        "The whole test on text that comes with Python.",
        work.demo,
        {
            **out_flag(
                "The run; the same command resumes it; by default runs/demo, runs/demo-clean or "
                "runs/demo-quick.",
                default=None,
            ),
            switch("clean"): "A model that passes the gate: each secret is in the text once, and "
            "the text is read once.",
        },
        {"given": DEMO},
        shows=True,
    ),
    Command(
        "settings",
        "List what a command can be told, in a file too.",
        judging.settings,
        {
            argument("command", default=None): f"Which: {', '.join(EVERY)}.  [default: all, by "
            "number]"
        },
    ),
    Command(
        "formats",
        "List, show and check the formats of secrets.",
        judging.formats,
        help="List the canary formats; show one; check a file of your own.",
    ),
    Command(
        "formats show",
        "Show a format in full, with a few secrets of it.",
        judging.show_format,
        {
            argument("name"): "A shipped format, or a .toml file.",
            flag("samples", int, default=3, least=0): "Number of secrets to print.",
            flag("seed", int, default=0, least=0): "Seed of the secrets.",
        },
    ),
    Command(
        "formats check",
        "Check a format file: what is wrong with it, and what would make it measure better.",
        judging.check_format,
        {argument("file", Path): "A format file, .toml."},
    ),
)
