"""Our docstrings as the site's generator reads them."""

import re

import griffe

# In plain Markdown `>>>` would be quotes in quotes of quotes.
_SESSION = re.compile(r"(?:^ *>>> .*\n?(?:^ *(?!>>> )\S.*\n?)*)+", re.MULTILINE)
# One entry of a section may be of several names: "low, high: the ends."
_SEVERAL = re.compile(r"^( {4})(\w+(?:, \w+)+): (.*(?:\n {5,}\S.*)*)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Fences sessions wherever they are, and gives each name an entry of its own."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            text = _SEVERAL.sub(_entries, obj.docstring.value)
            obj.docstring.value = _SESSION.sub(_fenced, text)


def _entries(found: re.Match[str]) -> str:
    indent, names, text = found.groups()
    return "\n".join(f"{indent}{name}: {text}" for name in names.split(", "))


def _fenced(session: re.Match[str]) -> str:
    return f"\n```pycon\n{session[0].rstrip()}\n```\n"
