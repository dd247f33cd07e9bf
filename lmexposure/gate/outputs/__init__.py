"""A verdict in the forms that people, build servers and code hosts read."""

from lmexposure.gate.outputs.as_json import verdict_json
from lmexposure.gate.outputs.as_junit import verdict_junit
from lmexposure.gate.outputs.as_sarif import verdict_sarif
from lmexposure.gate.outputs.as_summary import verdict_summary
from lmexposure.gate.outputs.as_text import verdict_text

__all__ = ["verdict_json", "verdict_junit", "verdict_sarif", "verdict_summary", "verdict_text"]
