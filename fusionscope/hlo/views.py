"""Opcodes of instructions that compute nothing new, by what becomes of their operand.

What mirrors a set of the compiler's stays beside the rule that asks for it.
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
