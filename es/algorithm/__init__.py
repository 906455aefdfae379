"""The algorithm, which knows no processes: ask for perturbations, shape returns, take the step."""
