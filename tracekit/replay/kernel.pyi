# The compiled part of the replay, built from the .pxi files; what it takes stands in its docstrings.
from typing import Any

def __getattr__(name: str) -> Any: ...
