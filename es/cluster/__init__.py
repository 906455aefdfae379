"""The pool on a Ray cluster: an agent on each node, with its own worker processes."""
