"""Compiled primitives for one observation at a time, of which policies and environments are made.

Every sum runs in a fixed order, and what is vectorised lies across outputs, never along a sum: the
results are the same to the bit whatever the width of a CPU's vector units.
"""
