# The compiled part of the replay, built from the .pxi files. The docstrings there describe the arguments.
from typing import Any

def __getattr__(name: str) -> Any: ...
