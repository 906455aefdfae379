"""Reports of a run: its files, the console, the learning curve, videos."""

PROGRESS, EVALUATIONS = "progress.csv", "evaluations.csv"
SETTINGS, CURVE, VIDEOS = "config.toml", "learning_curve.png", "videos"
NO_CURVE = "ES_NO_CURVE"  # if this variable is set, no learning curve is drawn
