"""What a run reports: console, progress.csv, TensorBoard, learning curve, videos, W&B."""

NO_CURVE = "ES_NO_CURVE"  # if this variable is set, no learning curve is drawn
