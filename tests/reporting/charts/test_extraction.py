from reporting.charts.made import class_row, format_data, found, painted, texts

from lmexposure.reporting.charts import extraction_chart


def test_the_message_is_said_in_words() -> None:
    chart = extraction_chart(format_data())
    assert chart is not None
    assert chart.description == (
        "Secrets found by search. With 1,000 guesses: controls 0/4; 1× 1/4; "
        "8× 4/4; guessing finds each with probability 0.00025. With 2 characters known: "
        "1× 2/4; 8× 3/4; guessing finds each with probability 0.00025."
    )
    written = texts(chart)
    assert {"Guesses tried", "Characters known", "1,000", "100 %", "by chance"} <= set(written)


def test_one_way_alone_has_one_panel() -> None:
    guessed = format_data(classes=(class_row(1.0, guesses=(found(1, 0),)),))
    chart = extraction_chart(guessed)
    assert chart is not None
    assert "Guesses tried" in texts(chart)
    assert "Characters known" not in texts(chart)
    assert "With 1 guess:" in chart.description
    revealed = format_data(classes=(class_row(1.0, revealed=(found(0, 1), found(1, 1))),))
    chart = extraction_chart(revealed)
    assert chart is not None
    assert "Guesses tried" not in texts(chart)


def test_nothing_tried_has_no_chart() -> None:
    assert (
        extraction_chart(format_data(classes=(class_row(1.0), class_row(2.0, repetitions=4))))
        is None
    )
    assert (
        extraction_chart(format_data(classes=(class_row(1.0, guesses=(found(1, 0, 0),)),))) is None
    )


def test_chance_is_never_above_one() -> None:
    sure = class_row(1.0, guesses=(found(1, 4, 4, 4.0), found(100, 4, 4, 400.0)))
    chart = extraction_chart(format_data(classes=(sure,)))
    assert chart is not None
    assert chart.description.endswith("with probability 1.0000.")


def test_classes_differ_in_shape() -> None:
    chart = extraction_chart(format_data())
    assert chart is not None
    shapes = {
        str(one.get("d"))
        for variable in ("--chart-class-4", "--chart-class-8", "--chart-control")
        for one in painted(chart, variable)
        if one.get("id")
    }
    assert len(shapes) == 3


def test_a_first_look_ticks_its_only_number_of_characters() -> None:
    look = format_data(classes=(class_row(1.0, revealed=(found(0, 1),)),))
    chart = extraction_chart(look)
    assert chart is not None
    ticks = [text for text in texts(chart) if text.lstrip("−").replace(".", "").isdigit()]
    assert ticks == ["0"]
