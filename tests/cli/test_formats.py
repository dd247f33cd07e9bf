from pathlib import Path

from cli.conftest import Call

from lmexposure.canaries import shipped_formats


def test_lists_every_shipped_format_with_its_bits(call: Call) -> None:
    outcome = call("formats")
    assert outcome.code == 0
    for name, one in shipped_formats().items():
        line = next(li for li in outcome.out.splitlines() if li.startswith(name))
        assert line.endswith(f"{one.bits:.1f}")
        assert one.template in line


def test_shows_one_with_fills_of_it(call: Call) -> None:
    outcome = call("formats", "show", "credit_card", "--samples", "2")
    assert outcome.code == 0
    assert f"size         {10**15}" in outcome.out
    assert outcome.out.count("fill         My credit card number is ") == 2
    assert call("formats", "show", "credit_card", "--samples", "2") == outcome


def test_checks_a_file(call: Call, tmp_path: Path) -> None:
    good = tmp_path / "badge.toml"
    good.write_text('name = "badge"\ntemplate = "Badge {upper:2}-{digits:6}"\n')
    outcome = call("formats", "check", good)
    assert outcome.code == 0
    assert "sound    badge: 676,000,000 fills, 29.33 bits" in outcome.out
    bad = tmp_path / "bad.toml"
    bad.write_text('name = "bad"\ntemplate = "no hole"\n')
    outcome = call("formats", "check", bad)
    assert outcome.code == 3
    assert "problem" in outcome.out


def test_an_unknown_format_names_those_there_are(call: Call) -> None:
    outcome = call("formats", "show", "randm_number")
    assert outcome.code == 3
    assert "random_number" in outcome.err
