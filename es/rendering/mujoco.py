"""How MuJoCo draws: with what, and from where."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import gymnasium

from es.errors import UsageError

# What MuJoCo can draw with, without a display first: a graphics card, in software, on a display.
BACKENDS = ("egl", "osmesa", "glfw")
TRY_BACKEND = (
    "import importlib, sys;"
    "context = importlib.import_module(f'mujoco.{sys.argv[1]}').GLContext(64, 64);"
    "context.make_current();"
    "import mujoco;"
    "mujoco.MjrContext(mujoco.MjModel.from_xml_string('<mujoco/>'), 100)"
)
CAMERA_CHOICES = {"camera_id", "camera_name", "default_camera_config"}  # arguments of a user


def choose_backend() -> None:
    """Has MuJoCo draw with what works here, unless MUJOCO_GL says with what.

    Left to itself, it takes a display for granted. Raises UsageError where nothing works.
    """
    if sys.platform != "linux" or "MUJOCO_GL" in os.environ:
        return
    for backend in BACKENDS:
        # In a process of its own: one that does not work keeps others from being loaded.
        tried = subprocess.run(
            [sys.executable, "-c", TRY_BACKEND, backend], capture_output=True, check=False
        )
        if tried.returncode == 0:
            os.environ["MUJOCO_GL"] = backend
            return
    raise UsageError(
        "MuJoCo finds nothing to draw with here: install EGL or OSMesa (on Debian and Ubuntu: "
        "apt-get install libegl1 libgl1-mesa-dri)"
    )


def travelling_body(env: gymnasium.Env) -> int | None:
    """The body of a MuJoCo environment that leaves the place where it started, if there is one.

    It is the one that the environment's camera is said to track, or else, where that is not said
    to look at a place, the one that moves first in the model; and it is free to go anywhere.
    """
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is None:
        return None
    import mujoco

    model, config = renderer.model, renderer.default_cam_config or {}
    tracked = config.get("trackbodyid")
    if tracked is None and "lookat" not in config and model.njnt:
        tracked = model.jnt_bodyid[0]
    body = int(model.body_rootid[max(tracked or 0, 0)])
    if not model.body_jntnum[body]:  # as of the world
        return None
    joint = model.body_jntadr[body]
    travels = {int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_SLIDE)}
    return body if model.jnt_type[joint] in travels and not model.jnt_limited[joint] else None


class Followed(gymnasium.Wrapper):
    """Draws a travelling body on endless floors, in light that goes with it.

    Episodes stay the same. moves_camera: whether the environment's camera goes with it, too.
    """

    def __init__(self, env: gymnasium.Env, body: int, moves_camera: bool) -> None:
        super().__init__(env)
        self._body, self._moves_camera = body, moves_camera
        bare: Any = env.unwrapped
        self._renderer = bare.mujoco_renderer
        _lay_endless_floors(self._renderer.model)

    def render(self) -> Any:
        """The picture."""
        import mujoco

        renderer = self._renderer
        if not renderer.viewer:
            super().render()  # makes the viewer
            # It would be a white line where a floor without an end meets the sky.
            renderer.viewer.scn.flags[mujoco.mjtRndFlag.mjRND_HAZE] = False
        place = renderer.data.subtree_com[self._body, :2]
        if self._moves_camera:
            renderer.viewer.cam.lookat[:2] = place
        still = renderer.model.light_bodyid == 0
        renderer.data.light_xpos[still, :2] = renderer.model.light_pos[still, :2] + place
        return super().render()


def _lay_endless_floors(model: Any) -> None:
    """Bodies collide with all of a plane anyway; its size, 0 for no end, is for drawing alone."""
    import mujoco

    scaled = set()
    for floor in range(model.ngeom):
        if model.geom_type[floor] != mujoco.mjtGeom.mjGEOM_PLANE or model.geom_bodyid[floor]:
            continue
        material, size = model.geom_matid[floor], model.geom_size[floor, :2]
        # A texture is repeated so often in a plane, or in 2 m of one that has no end.
        if material >= 0 and not model.mat_texuniform[material] and material not in scaled:
            model.mat_texrepeat[material, size > 0] /= size[size > 0]
            scaled.add(material)
        model.geom_size[floor, :2] = 0
