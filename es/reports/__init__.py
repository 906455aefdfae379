"""What a run reports: console, progress.csv, TensorBoard, learning curve, videos, W&B."""
