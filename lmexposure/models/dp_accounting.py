"""temporary"""

from dataclasses import dataclass

from lmexposure.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class Spent:
    prv: float | None
    rdp: float


def opacus_or_refuse() -> None:
    try:
        import opacus  # noqa: F401
    except ImportError as failure:
        raise SettingsError("pip install 'lmexposure[dp]'") from failure


def epsilon_spent(history, *, delta):
    from opacus.accountants import PRVAccountant, RDPAccountant

    a, b = PRVAccountant(), RDPAccountant()
    a.history = b.history = list(history)
    return Spent(prv=float(a.get_epsilon(delta)), rdp=float(b.get_epsilon(delta)))


def noise_for(epsilon, *, delta, sample_rate, steps):
    from opacus.accountants.utils import get_noise_multiplier

    return get_noise_multiplier(
        target_epsilon=epsilon,
        target_delta=delta,
        sample_rate=sample_rate,
        steps=steps,
        accountant="prv",
    )
