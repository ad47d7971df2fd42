"""Scheduling policies, one module a family; each is found by its name. `literature` has those beyond an operator's run.

Your own policy needs `Policy` and `Card`; `parse_policy` reads 'NAME,key=value'.
"""

from __future__ import annotations

from tracekit.policies.interface import Card, Parameter, Policy, parse_policy

__all__ = ["Card", "Parameter", "Policy", "parse_policy"]
