"""Coins of a sweep: fair, one stream a text, and none for who cannot be in."""

import pytest

from lmexposure.canaries import ALWAYS, PARTNER, CorpusRecord, Format, Manifest, Plan
from lmexposure.canaries.plan import draw
from lmexposure.errors import SettingsError
from lmexposure.studies import SweepSettings
from lmexposure.sweeps.plan import eligible, inserted_texts, shares_of, tossed

_PAIRS = 6


def _manifest(*, kind: str = PARTNER) -> Manifest:
    words = [f"alpha{n}beta gamma{n}delta" for n in range(_PAIRS)]
    plan = Plan(
        formats=[
            "pin",
            Format.of_texts(
                "near_duplicate",
                [f"{w} first{n}." for n, w in enumerate(words)],
                kind="near_duplicate",
            ),
            Format.of_texts(
                "near_duplicate_partner", [f"{w} other{n}." for n, w in enumerate(words)], kind=kind
            ),
        ],
        canaries=_PAIRS,
        repetitions=(1,),
        controls=0,
        seed=3,
    )
    corpus = CorpusRecord(layout="texts", separator="\n", documents=50, verified=False)
    return Manifest(plan=plan, corpus=corpus, entries=draw(plan, documents=50, set_aside={}))


def _settings(**more: object) -> SweepSettings:
    values = {"models": 40, "shares": (1.0, 0.5, 0.0), **more}
    return SweepSettings().override(
        {"canaries": _PAIRS, "kinds": ("uniform", "near_duplicate"), "formats": ("pin",), **values}
    )


def test_shares_have_models_of_their_own() -> None:
    shares = shares_of(_settings())
    assert [shares.count(share) for share in (1.0, 0.5, 0.0)] == [40, 40, 10]
    assert set(shares_of(SweepSettings())) == {1.0}
    usual = SweepSettings().override({"kinds": ("uniform", "new_token")})
    assert usual.shares_used == (1.0, 0.5, 0.25, 0.0)


def test_partners_are_in_and_not_audited() -> None:
    texts = inserted_texts(_manifest())
    assert [t.group for t in texts] == ["canaries"] * 2 * _PAIRS + ["partners"] * _PAIRS
    assert {t.format for t in texts[-_PAIRS:]} == {"near_duplicate_partner"}


@pytest.mark.parametrize("partner", ["coin", "always"])
def test_who_can_be_in_which_model(partner: str) -> None:
    kind = ALWAYS if partner == "always" else PARTNER
    manifest, settings = _manifest(kind=kind), _settings(partner=partner)
    texts = inserted_texts(manifest)
    names = [text.id for text in texts]
    rows = tossed(settings, manifest, names, 5)
    assert len(rows) == 90
    half, none = rows[40:80], rows[80:]
    assert set("".join(none)) == {"0"}
    entries = {entry.id: entry for entry in manifest.entries}
    audited = {
        entries[t.id].index: may
        for t, may in zip(texts, eligible(texts, 0.5, _PAIRS), strict=True)
        if t.format == "near_duplicate"
    }
    for place, text in enumerate(texts):
        column = {row[place] for row in half}
        if text.group == "partners":
            may = audited[entries[text.id].index]
            wanted = {"1"} if partner == "always" else {"0", "1"}
        else:
            may, wanted = int(text.id[-4:]) < _PAIRS // 2, {"0", "1"}
        assert column == (wanted if may else {"0"})


def test_a_coin_moves_no_other_and_shares_have_streams_of_their_own() -> None:
    manifest, settings = _manifest(), _settings()
    names = [text.id for text in inserted_texts(manifest)]
    rows = tossed(settings, manifest, names, 5)
    fewer = tossed(settings, manifest, names[3:5], 5)
    assert [row[3:5] for row in rows] == list(fewer)
    assert [row[0] for row in rows[:40]] != [row[0] for row in rows[40:80]]
    alone = tossed(_settings(shares=(1.0,)), manifest, names, 5)
    assert alone == rows[:40]


def test_exactly_half_of_the_models_of_each_share() -> None:
    manifest = _manifest()
    names = [text.id for text in inserted_texts(manifest)]
    rows = tossed(_settings(coins="exactly_half"), manifest, names, 5)
    assert sum(row[0] == "1" for row in rows[:40]) == 20
    assert sum(row[0] == "1" for row in rows[40:80]) == 20


@pytest.mark.parametrize("shares", [(), (0.5,), (1.0, 1.0), (1.0, 0.2, 0.5), (1.0, -0.1), (1.0, 2)])
def test_shares_that_cannot_be(shares: tuple[float, ...]) -> None:
    with pytest.raises(SettingsError, match="must be 1 and smaller shares, descending"):
        SweepSettings(shares=shares)
