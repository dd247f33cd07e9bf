"""matplotlib says where it keeps its fonts; on a disk that it may not write to, on every import.

Imported before matplotlib, so that a command prints its own words and no others.
"""

import logging

LOGGER = logging.getLogger("matplotlib")
# Who has set a level wants to hear it.
if LOGGER.level == logging.NOTSET:
    LOGGER.setLevel(logging.ERROR)
