"""identifiers: an audit after the fact, of what a corpus holds anyway, without insertion.

`ranking.py` ranks each among fresh draws, `comparison.py` says what that allows to claim, and
`study.py` is the record with its words.
"""
