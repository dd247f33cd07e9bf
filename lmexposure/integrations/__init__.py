"""Where people plug us in: their data pipelines and their training."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.integrations.callback import ExposureCallback
    from lmexposure.integrations.corpora import insert_files, remove, verify
    from lmexposure.integrations.delivered import DeliveredCounter
    from lmexposure.integrations.delivery_report import DeliveryReport
    from lmexposure.integrations.documents import Inserted, insert
    from lmexposure.integrations.ray_data import insert_into_ray, number_documents
    from lmexposure.integrations.records import insert_into_records
    from lmexposure.integrations.streaming import insert_into_stream
    from lmexposure.integrations.wrapped_exposure import wrapped_exposures
    from lmexposure.integrations.wrapping import Wrapping, wrapped_log_perplexity
else:
    from lmexposure._lazy import lazy_face as _lazy_face

    __getattr__, __dir__ = _lazy_face(
        __name__,
        {
            "callback": ["ExposureCallback"],
            "corpora": ["insert_files", "remove", "verify"],
            "delivered": ["DeliveredCounter"],
            "delivery_report": ["DeliveryReport"],
            "documents": ["Inserted", "insert"],
            "ray_data": ["insert_into_ray", "number_documents"],
            "records": ["insert_into_records"],
            "streaming": ["insert_into_stream"],
            "wrapped_exposure": ["wrapped_exposures"],
            "wrapping": ["Wrapping", "wrapped_log_perplexity"],
        },
    )

__all__ = [
    "DeliveredCounter",
    "DeliveryReport",
    "ExposureCallback",
    "Inserted",
    "Wrapping",
    "insert",
    "insert_files",
    "insert_into_ray",
    "insert_into_records",
    "insert_into_stream",
    "number_documents",
    "remove",
    "verify",
    "wrapped_exposures",
    "wrapped_log_perplexity",
]
