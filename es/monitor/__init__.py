"""What a run reports: console, progress.csv, TensorBoard and the learning curve."""
