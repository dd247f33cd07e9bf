"""Made by scripts/stubs of the face, and of what is declared of settings."""

from lmexposure.federated.canife import canife_audit as canife_audit
from lmexposure.federated.canife import texts_of_users as texts_of_users
from lmexposure.federated.canife import tokens_of_users as tokens_of_users
from lmexposure.models import CraftedCanary as CraftedCanary
from lmexposure.models import FederatedAudit as FederatedAudit
from lmexposure.models import RoundScores as RoundScores
from lmexposure.models import audit_update as audit_update
from lmexposure.models import clients_of as clients_of
from lmexposure.models import clipped as clipped
from lmexposure.models import design_canary as design_canary
from lmexposure.models import federated_training as federated_training
from lmexposure.models import local_update as local_update
from lmexposure.models import mock_rounds as mock_rounds
from lmexposure.models import noisy_sum as noisy_sum
from lmexposure.models import random_canary as random_canary
from lmexposure.studies import CanifeSettings as CanifeSettings
from lmexposure.studies import FederatedSettings as FederatedSettings

__all__: list[str]
