"""Made by scripts/stubs of the face, and of what is declared of settings."""

from lmexposure.defences.catalogue import DEFENCES as DEFENCES
from lmexposure.defences.catalogue import Defence as Defence
from lmexposure.defences.catalogue import Knob as Knob
from lmexposure.defences.catalogue import Reference as Reference
from lmexposure.defences.comparison import Compared as Compared
from lmexposure.defences.comparison import Comparison as Comparison
from lmexposure.defences.comparison import prepare_comparison as prepare_comparison
from lmexposure.defences.driver import Found as Found
from lmexposure.defences.driver import compare_defences as compare_defences
from lmexposure.defences.driver import search as search
from lmexposure.defences.needs import check_models as check_models
from lmexposure.studies import DefencesSettings as DefencesSettings

__all__: list[str]
