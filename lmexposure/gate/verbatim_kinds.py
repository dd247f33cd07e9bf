"""What the checks of memorised text mean; they are in `verbatim_verdict`."""

from lmexposure.core import CheckKind

RUN = CheckKind(
    help="The longest text of the corpus that greedy decoding gives word for word, in characters, "
    "prompted with what is in front of it in its document.",
    remedy="Look at all windows (--windows), name a control (--reference, --held-out), or use a "
    "model that reads more at once.",
)
EXTRACTABLE = CheckKind(
    help="The share of windows of the corpus whose suffix comes out within the tries.",
    remedy="Look at more windows (--windows), so that the share is known more closely.",
)
MEMORISED = CheckKind(
    help="Whether documents of the corpus come out longer than held-out ones of a random split: "
    "many of them somewhat longer, or a few of them far longer.",
    remedy="Name held-out documents of a random split, and more of them (--held-out FILE "
    "--random-split): likely text is not memorised text.",
    low_is_worse=True,
)
COVERED = CheckKind(
    help="Whether enough of the corpus was looked at: a document that is shorter than a window has "
    "none.",
    remedy="Look again with shorter windows (--prefix-tokens, --suffix-tokens), or with a --layout "
    "of longer documents.",
    precondition=True,
)
GUESSING = CheckKind(
    help="Whether the model knows the language of the corpus at all: one that finds it more "
    "surprising than equally likely tokens cannot be asked for it.",
    remedy="Name the corpus that the model was trained on, in its encoding and with its tokenizer.",
    precondition=True,
)
