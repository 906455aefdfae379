"""Compiled primitives for images."""
