"""Policies as files that need nothing of this project: all of a policy as one torch module."""
