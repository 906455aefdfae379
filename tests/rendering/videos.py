"""Videos, decoded again."""

import itertools

import cv2
import numpy as np

from es.rendering.video import CAPTION_HEIGHT


def decoded(path):
    """Its frames, (height, width, 3), and how many are to be shown in a second."""
    reader = cv2.VideoCapture(str(path))
    speed = reader.get(cv2.CAP_PROP_FPS)
    frames: list[np.ndarray] = []
    while True:
        more, frame = reader.read()
        if not more:
            return frames, speed
        frames.append(frame)


def differing(frames):
    """How many frames differ from the one before, below the caption."""
    pictures = [frame[CAPTION_HEIGHT:].astype(int) for frame in frames]
    return sum(np.abs(one - other).max() > 40 for one, other in itertools.pairwise(pictures))


def previews(folder):
    """The GIFs that TensorBoard shows, with their updates."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    for path in sorted(folder.glob("events*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                yield event.step, value.tensor.string_val[2]
