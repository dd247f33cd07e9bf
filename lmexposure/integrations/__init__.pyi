"""Made by scripts/stubs of the face, and of what is declared of settings."""

from lmexposure.canaries import Inserted as Inserted
from lmexposure.canaries import Wrapping as Wrapping
from lmexposure.canaries import insert as insert
from lmexposure.canaries import remove as remove
from lmexposure.integrations.callback import ExposureCallback as ExposureCallback
from lmexposure.integrations.delivered import DeliveredCounter as DeliveredCounter
from lmexposure.integrations.delivery_report import DeliveryReport as DeliveryReport
from lmexposure.integrations.row_contexts import delivered_rows as delivered_rows
from lmexposure.integrations.tokenised import load_tokenizer as load_tokenizer
from lmexposure.integrations.tokenised import prepared_directory as prepared_directory
from lmexposure.integrations.tokenised import verify as verify
from lmexposure.integrations.wrapped_scoring import wrapped_exposures as wrapped_exposures
from lmexposure.integrations.wrapped_scoring import wrapped_log_perplexity as wrapped_log_perplexity

__all__: list[str]
