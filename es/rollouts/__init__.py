"""Episodes: tasks and results, the one loop that plays them, the pool of worker processes."""
