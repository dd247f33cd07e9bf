"""Plain English of the field: words that were withdrawn are in no module, template or page of ours.

A word is withdrawn where readers stumbled over it; what to write instead is next to it here.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import lmexposure as lx

ROOT = Path(__file__).parents[1]
READ = (
    *sorted((ROOT / "lmexposure").rglob("*.py")),
    *sorted((ROOT / "lmexposure" / "core" / "templates").iterdir()),
    *sorted(path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".ipynb")),
    *sorted(ROOT.glob("*.md")),
)
# What a thing stands for, and what stands alone, has no better word.
INSTEAD = {
    r"st(?:and|ands|anding|ood)(?! for\b|-alone\b)": "say what it is or does: is, has, goes, lies",
    r"so many": "give the number, or write: as many",
    r"nobody": "say who does not, or write: no one",
    r"besides": "write: also, too, next to",
    r"soundness": "what must hold before a number counts is a precondition",
}
PAGES = tuple(path for path in READ if path.is_relative_to(ROOT / "docs") and path.suffix == ".md")
# What went with version 0.1 is told of nowhere: not in a module, a page, a help or a message.
GONE = (
    *("budget_share", "full_at_end", "spent_seconds", "TimeBudget", "PacedScoring"),
    *("multivariate_lira", "token_lira", "bits_against_base", "AgainstBase"),
    *("--candidates", "--coin-seed", "coin_seed", "OLD_SETTING_NAMES"),
    *("older_names", "manifest_upgrades", "result_upgrades", "from_version_", "as_version_"),
    *("remove_from_stream", "first_records", "is_standard_output"),
    *("rare_suffix", "high_temperature", "model_pair", "--kind-base", "kind_base"),
    *("--other-text", "other_text", "kind_named", "texts_apart", "model_texts"),
)
SHOWN = (
    *(path for path in READ if path.name != "CHANGELOG.md"),
    *sorted((ROOT / "tests" / "golden" / "expected" / "command_line").iterdir()),
)
# What a user reads has one word for each thing; in CONTRIBUTING.md what is written instead.
ONE_WORD = (
    r"fills?",
    r"R|\|R\|",
    r"randomness spaces?",
    r"cells?",
    r"windows?",
    r"populations?",
    r"render(?:s|ed|ings?)",
    r"any-dp|iid-scores",
    r"occurrences?",
    r"negatives",
    r"resolves? (?:a|that|the) (?:FPR|rate)",
    r"pa(?:id|ys) for",
)
# Where such a word is right: flags and names of arguments, keys, other meanings.
RIGHT = (
    r"--(?:windows|population)\b",
    r"\b(?:windows|population|rendering)=",
    r"leave rendering out",
    r"context window|window: most tokens",
    r"places of windows",  # a key of what was asked
    r"ways to fill|fill in the words|to fill its last batch",
    r"Estimating the population size",  # a title
    r"sweep population",  # a seed is made of it
    r"false negatives",
    r"canaries repetitions population|suffix_tokens windows random_split",  # names of settings
    r"give \(R, N\): at each of R",
    r"fill: none",  # of a stylesheet
)
# A variable of such a name does not say what it holds.
NO_NAMES = {"one", "ones"}


def withdrawn_words(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, word and advice, of each withdrawn word."""
    for number, line in enumerate(text.splitlines(), start=1):
        for word, advice in INSTEAD.items():
            for found in re.finditer(rf"\b{word}\b", line, re.IGNORECASE):
                yield number, found[0], advice


def withdrawn_names(text: str) -> Iterator[tuple[int, str, str]]:
    """The same of the variables, arguments and functions of a module."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name)
            ):
                if name in NO_NAMES:
                    yield node.lineno, name, "name it after what it is: canary, row, text"


def test_no_withdrawn_word_comes_back() -> None:
    lines = []
    for path in READ:
        text = path.read_text(encoding="utf-8")
        found = [*withdrawn_words(text), *(withdrawn_names(text) if path.suffix == ".py" else ())]
        lines += [f"{path.relative_to(ROOT)}:{line}: {word!r}: {say}" for line, word, say in found]
    assert not lines, "\n".join(lines)


def test_nothing_tells_of_what_is_gone() -> None:
    told = [
        (path.name, name)
        for path in SHOWN
        for name in GONE
        if re.search(rf"(?<![\w-]){name}", path.read_text(encoding="utf-8"))
    ]
    assert told == []
    assert re.search(r"(?<![\w-])--candidates", "give --candidates 5")


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Strings of a module that may be read by a user, each with its line.

    Docstrings are none, but for those of commands: their help is held as it is written out.
    """
    tree = ast.parse(text)
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    docstrings = set(map(id, statements))
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(said)) if " " in said and id(node) not in docstrings:
                yield node.lineno, said


def other_words(text: str) -> list[str]:
    """What a user would have to learn a second word for."""
    for right in RIGHT:
        text = re.sub(right, "", text, flags=re.IGNORECASE)
    return [
        found[0]
        for word in ONE_WORD
        for found in re.finditer(
            rf"(?<![\w|])(?:{word})(?![\w|])", text, 0 if "R|" in word else re.IGNORECASE
        )
    ]


def test_a_user_reads_one_word_for_each_thing() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {words}"
        for path in READ
        if path.suffix == ".py"
        for line, text in sentences(path.read_text(encoding="utf-8"))
        if (words := other_words(text))
    ]
    help = ROOT / "tests" / "golden" / "expected" / "command_line" / "help.txt"
    for path in (help, *PAGES):
        text = re.sub(r"`[^`]*`", "", path.read_text(encoding="utf-8"))  # without names
        found += [f"{path.name}: {words}"] * bool(words := other_words(text))
    public = (name for name in dir(lx) if not name.startswith("_"))
    for name, shown in ((name, getattr(lx, name)) for name in public):
        told = shown.__doc__ if inspect.isfunction(shown) or inspect.isclass(shown) else None
        words = other_words(re.sub(r"`[^`]*`|>>>.*", "", told or ""))
        found += [f"lmexposure.{name}: {words}"] * bool(words)
    assert not found, "\n".join(found)


def test_other_words_are_found_and_listed() -> None:
    assert other_words("10,000 fills of |R|, looked up for --windows 3 in a cell") == [
        "fills",
        "|R|",
        "cell",
    ]
    text = "def f():\n    '''A fill.'''\n    raise Error(f'no fill {x}')\n"
    assert [said for _, said in sentences(text)] == ["no fill "]
    listed = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("{#words}")[1]

    assert not [word for word in ONE_WORD if not re.search(word, listed.split("##")[0])]


def test_withdrawn_words_are_found() -> None:
    text = "A canary stands for text.\nThe line stands there, besides nobody reads so many.\n"
    assert [(line, word) for line, word, _ in withdrawn_words(text)] == [
        (2, "stands"),
        (2, "so many"),
        (2, "nobody"),
        (2, "besides"),
    ]
    names = withdrawn_names("def one(ones, canary):\n    return ones\n")
    assert [(line, name) for line, name, _ in names] == [(1, "one"), (1, "ones")]
