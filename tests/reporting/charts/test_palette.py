from lmexposure.reporting.charts import palette


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, contrast ratio."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_part_has_a_colour_and_a_variable_of_its_own() -> None:
    assert len(set(palette.VARIABLES.values())) == len(palette.VARIABLES) == 23
    assert palette.PAPER not in palette.VARIABLES


def test_what_carries_data_stands_out_from_white() -> None:
    for color in set(palette.VARIABLES) - {palette.GRID, palette.BAND}:
        assert contrast(color, palette.PAPER) >= 3
    assert contrast(palette.INK, palette.PAPER) >= 7


def test_the_classes_get_darker_by_steps_that_an_eye_without_colour_sees() -> None:
    steps = [contrast(color, palette.PAPER) for color in palette.CLASSES]
    assert steps == sorted(steps)
    assert steps[-1] > 2.5 * steps[0]
