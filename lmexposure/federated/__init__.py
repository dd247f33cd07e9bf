"""Privacy of users in federated training, tested by crafted canaries; the training is in models."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.federated.canife import canife_audit, texts_of_users, tokens_of_users
    from lmexposure.models import (
        CraftedCanary,
        FederatedAudit,
        RoundScores,
        audit_update,
        clients_of,
        clipped,
        design_canary,
        federated_training,
        local_update,
        mock_rounds,
        noisy_sum,
        random_canary,
    )
    from lmexposure.studies import CanifeSettings, FederatedSettings
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)
