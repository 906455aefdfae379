"""What `es.envs` makes environments of: games, images, spaces, wrappers, and the list of all."""
