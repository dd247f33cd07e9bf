"""What the words of a run's report mean, and where they come from."""

GLOSSARY = (
    (
        "format",
        "A text with holes, such as “The random number is 9 digits”. All ways to fill its holes "
        "are the randomness space R.",
    ),
    (
        "secret, canary",
        "A secret is one way to fill the holes, drawn at random. A canary is the format filled "
        "with a secret, put into the training text on purpose: where the model gives it away, it "
        "gives away other text of its kind [1].",
    ),
    (
        "class",
        "Canaries of one format that were inserted equally often.",
    ),
    ("repetitions", "How often a canary was put into the training text."),
    (
        "control",
        "A canary drawn like the others and never inserted. Controls show what chance alone gives "
        "in this measurement.",
    ),
    ("reference", "A fill of the same format, never inserted, that canaries are compared with."),
    (
        "log-perplexity",
        "−log2 of the probability that the model gives to the whole text, in bits, summed over its "
        "tokens. Lower = less surprised = more memorised [1].",
    ),
    (
        "rank",
        "1 + the number of fills, never inserted, that the model finds at least as likely as the "
        "canary. Rank 1 is the likeliest.",
    ),
    (
        "exposure",
        "log2 |R| − log2 rank, in bits [1]. Higher = more memorised. A secret that was never seen "
        "has 1 bit in the median and 1.44 in the mean [2].",
    ),
    (
        "extraction",
        "Finding the secret from the model alone, given the format and perhaps its first "
        "characters.",
    ),
    (
        "epsilon, delta",
        "The strength of a differential-privacy guarantee, epsilon in nats. Small epsilon: the "
        "model is nearly the same with or without any one document. A lower bound says how much "
        "the training gave away at least [3].",
    ),
    (
        "any-dp",
        "A bound that holds for every private training, from one trained model, because a coin of "
        "its own decided whether each canary was inserted [3] [4].",
    ),
    (
        "iid-scores",
        "A bound that holds where the scores of canaries are independent and alike, given the "
        "model [2]. Weaker than any-dp: the condition cannot be proven from the data.",
    ),
    (
        "gaussian",
        "A bound that holds only where the training trades errors as Gaussian noise does.",
    ),
    (
        "bayesian",
        "A credible bound: it rests on a prior, and is no confidence bound [5].",
    ),
    (
        "ROC, AUC, TPR, FPR",
        "How well members are distinguished from others: the true-positive rate (members found) "
        "against the false-positive rate (others taken for members), and the area under that "
        "curve. What counts is the left end, where few others are taken for members [6].",
    ),
)
SOURCES = (
    (
        "Carlini, Liu, Erlingsson, Kos, Song 2019, The Secret Sharer: Evaluating and Testing "
        "Unintended Memorization in Neural Networks",
        "https://arxiv.org/abs/1802.08232",
    ),
    (
        "Jagielski 2023, A Note On Interpreting Canary Exposure",
        "https://arxiv.org/abs/2306.00133",
    ),
    (
        "Steinke, Nasr, Jagielski 2023, Privacy Auditing with One (1) Training Run",
        "https://arxiv.org/abs/2305.08846",
    ),
    (
        "Mahloujifar, Melis, Chaudhuri 2024, Auditing f-Differential Privacy in One Run",
        "https://arxiv.org/abs/2410.22235",
    ),
    (
        "Zanella-Béguelin and others 2022, Bayesian Estimation of Differential Privacy",
        "https://arxiv.org/abs/2206.05199",
    ),
    (
        "Carlini, Chien, Nasr, Song, Terzis, Tramèr 2022, Membership Inference Attacks From First "
        "Principles",
        "https://arxiv.org/abs/2112.03570",
    ),
)
