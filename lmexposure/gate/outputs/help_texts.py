"""What each kind of check means, for a reader who meets it in a list of findings."""

__all__ = ["HELP"]

HELP = {
    "p_value": "A permutation test of a class of canaries against fills that the model never saw. "
    "A small p-value means that chance hardly explains how familiar the canaries look to the "
    "model: it has memorised some of what it was trained on.",
    "max_exposure": "The exposure of a canary says, in bits, how far it moved up among all fills "
    "of its format by being in the training data; higher = more memorised. Chance alone passes t "
    "bits with probability 2^-t at most.",
    "median_exposure": "The median exposure of a class of canaries in bits, with an "
    "interval; higher = more memorised. Guessing gives 1 bit.",
    "quantile_exposure": "A quantile of the exposures of a class of canaries in bits, with an "
    "interval; higher = more memorised.",
    "max_guesses": "A secret that stood in the training data is among the fills that an attacker "
    "tries first who has the model and knows the format. Where secrets are drawn at random from a "
    "large space, finding one is proof of memorisation.",
    "max_epsilon": "A lower bound on the epsilon of differential privacy that the training can "
    "have had, in nats; higher = less private. It holds under the conditions that stand beside it.",
    "claimed_epsilon": "The epsilon that was claimed of the training, held against the lower bound "
    "that an audit found.",
    "min_canaries": "So few canaries cannot show that secrets do not leak: a leak of some of them "
    "would go unseen. Insert more.",
    "scores": "A canary without a score or an exposure was not tested. Measure again.",
    "controls": "Controls were drawn like the canaries and never inserted. Where they do not look "
    "like chance, no other number can be trusted.",
    "validation": "A model that did not learn has memorised nothing, which says nothing of one "
    "that does. Train longer or with another learning rate.",
    "classes": "There was nothing that a check could judge.",
}
