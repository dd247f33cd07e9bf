"""Commands that compute little keep nobody waiting for imports, torch's first of all.

Those that load a model have said a word before they import it, and import no torchao for nothing.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import sentences
from made_sweeps import written_sweep

_DATA = Path(__file__).parents[1] / "golden" / "data"
_RUN = _DATA / "shown" / "demo"
_MODEL = _DATA / "measured" / "gpt2"

_HEAVY = (
    *("torch", "transformers", "tokenizers", "datasets", "accelerate", "huggingface_hub"),
    *("pandas", "pyarrow", "scipy", "scipy.stats", "matplotlib", "jinja2", "numpy"),
)
# One fresh interpreter for all commands: what one has imported is there for those behind it, so
# they come in the order of what they may import.
_ONE_AFTER_THE_OTHER = """
import json, sys
from lmexposure.cli.entry import main

found = {}
for name, words in json.loads(sys.argv[1]).items():
    sys.argv = ["lmexposure", *words]
    try:
        main()
    except SystemExit as end:
        found[name] = [end.code, [name for name in %r if name in sys.modules]]
print("\\n" + json.dumps(found))
"""

_STATISTICS = {"numpy", "scipy"}
_SCORES = {*_STATISTICS, "pyarrow"}
_PAGE = {*_SCORES, "jinja2", "matplotlib"}
# Words of the command, its exit code, what may be imported once it has run.
_COMMANDS: dict[str, tuple[str, int, set[str]]] = {
    "help": ("--help", 0, set()),
    "help of a command": ("insert --help", 0, set()),
    "formats": ("formats", 0, set()),
    "check": ("check RUN --json verdict.json", 1, set()),
    "check medians": ("check RUN --median-exposure 9 --quantile-exposure 0.5:9", 1, set()),
    "check a sweep": ("check sweep", 0, set()),
    "insert": ("insert corpus.txt --out lines", 0, {"numpy"}),
    "insert jsonl": ("insert corpus.jsonl --format ssn --format pin --out jsonl", 0, {"numpy"}),
    "dry run": ("insert corpus.txt --out nowhere --dry-run", 0, {"numpy"}),
    "verify": ("verify lines/corpus/corpus.txt lines/manifest.json", 0, {"numpy"}),
    "verify jsonl": ("verify jsonl/corpus/corpus.jsonl jsonl/manifest.json", 0, {"numpy"}),
    "remove": ("remove lines/corpus/corpus.txt lines/manifest.json --file again.txt", 0, {"numpy"}),
    "remove jsonl": (
        "remove jsonl/corpus/corpus.jsonl jsonl/manifest.json --file again.jsonl",
        0,
        {"numpy"},
    ),
    "insert by coins": (
        "insert corpus.txt --inclusion-probability 0.5 --canaries 50 --repetitions 1 --out coins",
        0,
        _STATISTICS,
    ),
    "epsilon csv": ("epsilon scores.csv", 0, _STATISTICS),
    "epsilon": ("epsilon RUN/scores.parquet", 0, _SCORES),
    "report as text": (
        "report RUN --format md --format csv --format json --out text",
        0,
        {*_SCORES, "jinja2"},
    ),
    "report": ("report RUN --out page", 0, _PAGE),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, list[str]]]:
    """Exit code of each command, and the heavy modules that were there when it ended."""
    here = tmp_path_factory.mktemp("light")
    lines = sentences(1000)
    (here / "corpus.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = "".join(json.dumps({"text": line}) + "\n" for line in lines)
    (here / "corpus.jsonl").write_text(rows, encoding="utf-8")
    scores = "".join(f"{30 * (n % 2) + n % 7},{n % 2}\n" for n in range(100))
    (here / "scores.csv").write_text("score,included\n" + scores, encoding="utf-8")
    written_sweep(here / "sweep")
    commands = {
        name: words.replace("RUN", str(_RUN)).split() for name, (words, *_) in _COMMANDS.items()
    }
    done = subprocess.run(
        [sys.executable, "-c", _ONE_AFTER_THE_OTHER % (_HEAVY,), json.dumps(commands)],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (here / "again.txt").read_bytes() == (here / "corpus.txt").read_bytes()
    assert (here / "page" / "report.html").exists()
    seen: dict[str, tuple[int, list[str]]] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.mark.parametrize("name", _COMMANDS)
def test_a_light_command_imports_no_torch_and_little_else(
    name: str, found: dict[str, tuple[int, list[str]]]
) -> None:
    _, code, allowed = _COMMANDS[name]
    assert found[name][0] == code
    assert set(found[name][1]) <= allowed


# Those that load a model, and the first word of each.
_OF_MODELS = {
    "measure MODEL MANIFEST --out out": "loading",
    "measure MODEL MODEL MANIFEST --out out": "loading 2 checkpoints",
    "check --model MODEL --manifest MANIFEST": "loading",
    "verbatim MODEL corpus.txt --out out": "loading",
    "identifiers MODEL corpus.txt --format uuid --out out": "loading",
    "run corpus.txt --out out": "reading corpus.txt",
    "run - --layout lines --out out": "reading standard input",
    "demo --effort quick --out out": "reading",
    "train corpus.txt corpus.jsonl --out out": "reading 2 files",
    "sweep corpus.txt --out out": "reading corpus.txt",
    "sweep --only 0 --out out": "opening out",
    "sweep --collect out": "opening out",
    "defences corpus.txt --methods relaxloss,hamp --out out": "reading corpus.txt",
    "canife corpus.txt --out out": "reading corpus.txt",
    "dp-check corpus.txt": "reading corpus.txt",
}
# Each ends at its first word, so that one interpreter takes them all.
_FIRST_WORDS = """
import json, sys
from lmexposure.cli.entry import main

class Said(Exception):
    pass

class First:
    encoding = "utf-8"

    def __init__(self):
        self.said = []

    def write(self, text):
        if text.strip():
            self.said.append([text, [name for name in %r if name in sys.modules]])

    def flush(self):
        if self.said:
            raise Said

    def isatty(self):
        return False

found, usual = {}, (sys.stdout, sys.stderr)
for words in json.loads(sys.argv[1]):
    sys.argv = ["lmexposure", *words.split()]
    sys.stdout = sys.stderr = first = First()
    try:
        main()
    except Said:
        found[words] = first.said[0]
sys.stdout, sys.stderr = usual
print(json.dumps(found))
"""


def test_a_command_that_loads_a_model_says_a_word_before_it_imports_torch(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("a line\n" * 50)
    (tmp_path / "corpus.jsonl").write_text('{"text": "a line"}\n' * 50)
    places = {"MODEL": str(_MODEL / "model"), "MANIFEST": str(_MODEL / "manifest.json")}
    typed = [" ".join(places.get(word, word) for word in words.split()) for words in _OF_MODELS]
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_WORDS % (_HEAVY,), json.dumps(typed)],
        cwd=tmp_path,
        input="a line\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for words, first in zip(typed, _OF_MODELS.values(), strict=True):
        said, imported = found[words]
        assert said.startswith(first), words
        assert set(imported) <= {"numpy"}, words


def test_inserting_waits_for_no_trainer() -> None:
    script = (
        "import sys\n"
        "from lmexposure.canaries import InsertionStep\n"
        "from lmexposure.integrations import insert\n"
        "heavy = {'torch', 'transformers', 'datasets', 'ray', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_tables_on_the_terminal_wait_for_no_page_and_no_chart() -> None:
    script = (
        "import sys\n"
        "from lmexposure.cli.console import print_document\n"
        "from lmexposure.studies import Result\n"
        "print_document(Result.read(sys.argv[1]).document())\n"
        "heavy = {'torch', 'matplotlib', 'jinja2', 'pyarrow', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script, str(_RUN)], check=True, capture_output=True)
