"""The distribution that this package is installed from."""

from importlib.metadata import version
from typing import Final

DISTRIBUTION: Final = "holdfast-server"
VERSION: Final = version(DISTRIBUTION)
