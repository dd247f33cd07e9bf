"""Whether what was built holds together: links and anchors lead somewhere, nothing is loaded."""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser loads by itself, in contrast to a link that a reader follows.
_LOADED = {
    ("script", "src"),
    ("img", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
}
_NOT_LOADED = {"canonical", "next", "prev", "alternate", "edit"}  # relations of <link>
_FROM_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^\"')]+")


class _Page(HTMLParser):
    """The names on a page, where its links lead, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.names |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if values.get("rel") not in _NOT_LOADED:
            self.loaded |= {values[name] for own, name in _LOADED if own == tag and name in values}


def faults(site: Path) -> Iterator[str]:
    """Broken links and foreign assets, each in a line."""
    pages = {path: _Page() for path in site.rglob("*.html") if path.name != "404.html"}
    for path, page in pages.items():
        page.feed(path.read_text(encoding="utf-8"))
    for path, page in pages.items():
        where = path.relative_to(site)
        yield from (f"{where}: loads {url}" for url in page.loaded if urlsplit(url).netloc)
        yield from (
            f"{where}: leads nowhere: {url}" for url in page.links if _lost(url, path, pages)
        )
    for style in site.rglob("*.css"):
        found = _FROM_STYLE.findall(style.read_text(encoding="utf-8"))
        yield from (f"{style.relative_to(site)}: loads {url}" for url in found)


def _lost(url: str, path: Path, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(url)
    if parts.scheme or parts.netloc:
        return False
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.suffix != ".html":
        return not target.exists()
    if target not in pages:
        return True
    return bool(parts.fragment) and unquote(parts.fragment) not in pages[target].names


if __name__ == "__main__":
    found = sorted(faults(Path(sys.argv[1]).resolve()))
    sys.exit("\n".join(found) if found else 0)
