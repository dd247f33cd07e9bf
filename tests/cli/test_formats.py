from cli.conftest import Call

from lmexposure.canaries import shipped_formats


def test_lists_every_shipped_format_with_its_bits(call: Call) -> None:
    outcome = call.done("formats")
    for name, one in shipped_formats().items():
        line = next(li for li in outcome.out.splitlines() if li.startswith(name))
        assert line.endswith(f"{one.bits:.1f}")
        assert one.template in line


def test_shows_one_with_fills_of_it(call: Call) -> None:
    outcome = call.done("formats", "show", "credit_card", "--samples", "2")
    assert f"size         {10**15}" in outcome.out
    assert outcome.out.count("fill         My credit card number is ") == 2
    assert call("formats", "show", "credit_card", "--samples", "2") == outcome
