"""What plugs into a training: the callback, the count of delivered canaries, wrapped exposure.

`insert` and `remove`, for data pipelines, are those of `lmexposure.canaries`; `verify` also reads
what a training reads, tokens.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.canaries import Inserted, Wrapping, insert, remove
    from lmexposure.integrations.callback import ExposureCallback
    from lmexposure.integrations.delivered import DeliveredCounter
    from lmexposure.integrations.delivery_report import DeliveryReport
    from lmexposure.integrations.row_contexts import delivered_rows
    from lmexposure.integrations.tokenised import load_tokenizer, prepared_directory, verify
    from lmexposure.integrations.wrapped_scoring import wrapped_exposures, wrapped_log_perplexity
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(__name__, __file__)
