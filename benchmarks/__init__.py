"""Measurements: run each from the repository's root with `python -m benchmarks.NAME`."""
