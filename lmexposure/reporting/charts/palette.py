"""The colours of a chart by their part, each a colour of its own on paper and a variable on a page.

The blue, orange and green families of Okabe and Ito 2008, told apart by colour-blind readers, but
dark enough to stand out from white by 3 to 1; no two parts share a colour, so that a page can put
its own in the place of each.
"""

PAPER = "#ffffff"  # under a stand-alone chart; a page has its own
INK = "#1c2126"
MUTED = "#66707a"
GRID = "#dfe3e7"
BAND = "#e6ebf1"
CANARY = "#c24e00"
CONTROL = "#0068a8"
REFERENCE = "#7d8993"
FIT = "#00795a"
LINE = "#a3004f"
ACCENT = "#6b3fa0"
SERIES = ("#0b6fb0", "#b35900", "#007f5f", "#a03a8e", "#4f5459", "#86690a")

VARIABLES = {
    INK: "--chart-ink",
    MUTED: "--chart-muted",
    GRID: "--chart-grid",
    BAND: "--chart-band",
    CANARY: "--chart-canary",
    CONTROL: "--chart-control",
    REFERENCE: "--chart-reference",
    FIT: "--chart-fit",
    LINE: "--chart-line",
    ACCENT: "--chart-accent",
    **{color: f"--chart-{number}" for number, color in enumerate(SERIES, 1)},
}
