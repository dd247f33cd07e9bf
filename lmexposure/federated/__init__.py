"""Privacy of users in federated training, tested by crafted canaries (CANIFE).

`rounds.py` trains in one process, DP-FedSGD and DP-FedAvg; `design.py` crafts a text whose update
no client's covers; `mock.py` lets it take part in rounds, by a coin each; `audit.py` bounds epsilon
round by round, beside the claim.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.federated.audit import (
        FederatedAudit,
        federated_training,
    )
    from lmexposure.federated.canife import (
        canife_audit,
    )
    from lmexposure.federated.corpus import texts_of_users, tokens_of_users
    from lmexposure.federated.design import CraftedCanary, design_canary, random_canary
    from lmexposure.federated.mock import RoundScores, audit_update, mock_rounds
    from lmexposure.federated.rounds import (
        clients_of,
        clipped,
        local_update,
        noisy_sum,
    )
    from lmexposure.studies import CanifeSettings, FederatedSettings
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)

__all__ = [
    "CanifeSettings",
    "CraftedCanary",
    "FederatedAudit",
    "FederatedSettings",
    "RoundScores",
    "audit_update",
    "canife_audit",
    "clients_of",
    "clipped",
    "design_canary",
    "federated_training",
    "local_update",
    "mock_rounds",
    "noisy_sum",
    "random_canary",
    "texts_of_users",
    "tokens_of_users",
]
