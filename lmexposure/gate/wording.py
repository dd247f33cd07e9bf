"""How the gate speaks: numbers and sentences that people can read."""


def are(count: int) -> str:
    """The verb that goes with so many.

    >>> are(1), are(2)
    ('is', 'are')
    """
    return "is" if count == 1 else "are"


def bits(value: float) -> str:
    """Bits to a tenth.

    >>> bits(12.345)
    '12.3 bits'
    """
    return f"{value:.1f} bits"


def number(value: float) -> str:
    """A number to two digits, a whole one in full.

    >>> number(0.0000123), number(1000)
    ('1.2e-05', '1,000')
    """
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else f"{value:.2g}"


def percent(value: float) -> str:
    """A share as people say it.

    >>> percent(0.2589), percent(0.00997)
    ('26 %', '1 %')
    """
    return f"{100 * value:.2g} %" if value < 0.0995 else f"{100 * value:.0f} %"


def copies(repetitions: int) -> str:
    """How often something was inserted.

    >>> copies(1), copies(4)
    ('once', '4 times')
    """
    return "once" if repetitions == 1 else f"{repetitions:,} times"


def sentence(text: str) -> str:
    """A clause as a sentence; a question keeps its mark.

    >>> sentence("one; two"), sentence("why?")
    ('One; two.', 'Why?')
    """
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('?') else '.'}"
