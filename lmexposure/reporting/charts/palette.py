"""The colours of a chart by their part, each a colour of its own on paper and a variable on a page.

Series have the blue, orange and green families of Okabe and Ito 2008. Classes of canaries have one
scale that gets darker on paper, and lighter on a dark page, the more often they were inserted, so
that colour-blind readers see its order. All stand out from white by 3 to 1; no two parts share a
colour, so that a page can put its own in the place of each.
"""

PAPER = "#ffffff"  # under a stand-alone chart; a page has its own
INK = "#1c2126"
MUTED = "#66707a"
GRID = "#dfe3e7"
BAND = "#e6ebf1"
CONTROL = "#69717a"
REFERENCE = "#7d8993"
FIT = "#00795a"
LINE = "#a3004f"
ACCENT = "#6b3fa0"
CLASSES = (
    *("#a87000", "#b45e00", "#c0431a", "#b0193f"),
    *("#99145f", "#7d1a7a", "#62218c", "#471f8f"),
)  # by repetitions, ascending
SERIES = ("#0b6fb0", "#b35900", "#007f5f", "#a03a8e", "#4f5459", "#86690a")

VARIABLES = {
    INK: "--chart-ink",
    MUTED: "--chart-muted",
    GRID: "--chart-grid",
    BAND: "--chart-band",
    CONTROL: "--chart-control",
    REFERENCE: "--chart-reference",
    FIT: "--chart-fit",
    LINE: "--chart-line",
    ACCENT: "--chart-accent",
    **{color: f"--chart-class-{number}" for number, color in enumerate(CLASSES, 1)},
    **{color: f"--chart-{number}" for number, color in enumerate(SERIES, 1)},
}
