"""Opcodes that forward or rearrange their operands without computing anything.

Sets that mirror one of the compiler's stay beside the rule that uses them.
"""

from __future__ import annotations

# The result is the first operand.
PASSED_ON = frozenset({"add-dependency", "domain", "opt-barrier"})

# The result has the operand's memory.
SAME_MEMORY = PASSED_ON | {"bitcast"}

# They name values, and move none.
TUPLES = frozenset({"get-tuple-element", "tuple"})

# The elements of the operand in their order, in another shape.
RESHAPES = frozenset({"bitcast", "reshape"})

# The same, possibly at another place in memory.
COPIES = RESHAPES | {"copy"}
