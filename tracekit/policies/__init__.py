"""Scheduling policies, one module per family, found by name.

The package `literature` contains policies that operators rarely need. To write your own policy, use `Policy` and
`Card`. `parse_policy` reads 'NAME,key=value'.
"""

from __future__ import annotations

from tracekit.policies.interface import Card, Parameter, Policy, parse_policy

__all__ = ["Card", "Parameter", "Policy", "parse_policy"]
