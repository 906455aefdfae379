"""The pool on a Ray cluster: an agent on each node, with worker processes of its own."""
