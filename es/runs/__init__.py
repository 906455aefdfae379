"""A run on the disk: its directory, its checkpoints, how it starts and how it ends."""
