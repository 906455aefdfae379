"""Episodes: tasks and results, the loop that plays them, the pool of worker processes."""
