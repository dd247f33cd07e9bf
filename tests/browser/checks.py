"""What every page is held against, in the browser's own words."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Opened
from playwright.sync_api import Page

__all__ = ["COUNTED", "CUT", "EVERYWHERE", "OPEN_ALL", "OUTSIDE", "assert_fit", "assert_links"]

WIDTHS = (360, 768, 1600)  # what fits at its own size must fit at these too
EVERYWHERE = [
    ("desktop", "light"),
    *(
        pytest.param(size, scheme, marks=pytest.mark.slow)
        for size, scheme in (("desktop", "dark"), ("phone", "light"), ("phone", "dark"))
    ),
]
AXE = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}

# Elements beyond the screen's edges that are not in a region that scrolls.
OUTSIDE = """() => [...document.querySelectorAll('body *')].filter(e => {
  if (e.closest('svg, .sr, .skip')) return false;
  const region = e.closest('.scroll, .contents ol');
  if (region && region !== e) return false;
  const box = e.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 0.5 || box.left < -0.5);
}).map(e => `${e.tagName} ${e.className} ${e.textContent.slice(0, 40)}`)"""

# Text that is wider than the element that holds it.
CUT = """() => [...document.querySelectorAll('th, td, dd, dt, p, li, h1, h2, h3, summary, button')]
  .filter(e => !e.closest('svg, .sr') && e.clientWidth && e.scrollWidth > e.clientWidth + 1)
  .filter(e => getComputedStyle(e).display !== 'inline')
  .map(e => `${e.tagName} ${e.textContent.slice(0, 40)}`)"""

# Tables that are wider than their place.
SCROLLING = """() => [...document.querySelectorAll('.scroll')]
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.querySelector('table').id)"""

# Charts with a letter beyond the screen or their own edge, or letters too small to read.
CHARTS = """() => [...document.querySelectorAll('figure svg')].filter(svg => {
  const edge = svg.getBoundingClientRect();
  if (edge.left < -0.5 || edge.right > innerWidth + 0.5) return true;
  const scale = svg.getScreenCTM().a;
  return [...svg.querySelectorAll('text')].some(text => {
    const box = text.getBoundingClientRect();
    const least = innerWidth < 390 ? 10 : 11;
    const small = parseFloat(getComputedStyle(text).fontSize) * scale < least;
    return small || box.left < edge.left - 0.5 || box.right > edge.right + 0.5;
  });
}).map(svg => svg.textContent.slice(0, 60))"""

OPEN_ALL = "() => document.querySelectorAll('details').forEach(d => { d.open = true })"

# One row is as good as a hundred, and axe takes its time with each.
FEW_ROWS = "() => document.querySelectorAll('tbody tr:nth-child(n + 9)').forEach(r => r.remove())"

# How often an act reads a node's text, and how many changes of the document it makes.
COUNTED = """() => {
  const own = Object.getOwnPropertyDescriptor(Node.prototype, 'textContent');
  let reads = 0;
  const get = function () { reads += 1; return own.get.call(this); };
  const seen = new MutationObserver(() => {});
  seen.observe(document.body, {subtree: true, childList: true, attributes: true});
  Object.defineProperty(Node.prototype, 'textContent', {...own, get});
  try { ACT } finally { Object.defineProperty(Node.prototype, 'textContent', own); }
  return [reads, seen.takeRecords().length];
}"""


def assert_fit(seen: Opened, *, tables: bool = True) -> None:
    """Opened in full, a page is quiet, cuts nothing, and puts no obstacle in a reader's way."""
    page = seen.page
    page.evaluate(OPEN_ALL)
    for width in (*WIDTHS, page.evaluate("innerWidth")):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        for beyond in (OUTSIDE, CUT, CHARTS):
            assert page.evaluate(beyond) == []
        assert not tables or width < 700 or page.evaluate(SCROLLING) == []
    # Only now, for what a page asks for late.
    assert (seen.messages, seen.requests) == ([], [page.url])
    assert_links(page)
    page.evaluate(FEW_ROWS)
    found = Axe().run(page, options=AXE)
    assert found.violations_count == 0, found.generate_report()


def assert_links(page: Page) -> None:
    """No id is there twice, and every link within the page leads to one."""
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    links = page.evaluate("[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.hash)")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in links} <= set(ids)
