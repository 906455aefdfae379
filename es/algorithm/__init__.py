"""The algorithm: ask for perturbations, shape their returns, take the step. No processes."""
