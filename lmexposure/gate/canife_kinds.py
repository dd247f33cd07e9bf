"""What the checks of a federated training mean; they are in `canife_verdict`."""

from lmexposure.core import CheckKind

HEALTH = CheckKind(
    help="How little a crafted canary has in common with clients: below this it says little.",
    remedy="Design canaries for longer (--iterations), against more clients (--design-clients).",
    precondition=True,
)
