from lmexposure.cli.tables import _found, _size


def test_what_guessing_would_find_stands_in_brackets() -> None:
    rows = [
        {"method": "beam", "revealed": 0, "found": 4, "of": 4, "by_chance": 0.4},
        {"method": "beam", "revealed": 1, "found": 4, "of": 4, "by_chance": 4.0},
        {"method": "greedy", "revealed": 0, "found": 0, "of": 4, "by_chance": 0.1},
    ]
    assert _found({"extraction": rows}, "beam", 2) == ["4/4", "(4/4)", ""]
    assert _found({"extraction": rows}, "greedy", 0) == ["0/4"]


def test_a_space_too_large_for_a_float_is_a_power_of_two() -> None:
    assert _size({"space_size": str(10**9), "bits": 29.9}) == "1e+09"
    assert _size({"space_size": str(16**1000), "bits": 4000.0}) == "2^4000"
