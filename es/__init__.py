"""Evolution Strategies: the algorithm and its engine, which know no environment and no network."""
