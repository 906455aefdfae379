"""Compiled primitives for policies and environments, for one observation at a time.

Every sum runs in a fixed order. Loops are vectorised across outputs, never along a sum, so the
results are the same to the bit for any width of a CPU's vector units.
"""

TELL = "ES_TELL"  # if this variable is set, processes print a line before they compile for seconds
