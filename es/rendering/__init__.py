"""Pictures of episodes: in a window, or recorded as a video."""
