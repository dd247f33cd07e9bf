"""What the checks of memorised text mean; they are in `verbatim_verdict`."""

from lmexposure.gate.checks import CheckKind

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
    help="Documents that the model gives back word for word, and no control does: neither a model "
    "that never saw them, nor documents that the model never saw.",
    remedy="Name a control (--reference, --held-out): likely text is not memorised text.",
)
