"""What MuJoCo draws with, and how its camera follows a body."""

import os
import subprocess
import sys
from typing import Any

import gymnasium

from es.errors import UsageError

# A graphics card, software, a display: those that need no display come first.
BACKENDS = ("egl", "osmesa", "glfw")
TRY_BACKEND = (
    "import importlib, sys;"
    "context = importlib.import_module(f'mujoco.{sys.argv[1]}').GLContext(64, 64);"
    "context.make_current();"
    "import mujoco;"
    "mujoco.MjrContext(mujoco.MjModel.from_xml_string('<mujoco/>'), 100)"
)
CAMERA_CHOICES = {"camera_id", "camera_name", "default_camera_config"}  # a user's arguments


def choose_backend() -> None:
    """Set MUJOCO_GL to a backend that works here, unless it is set; raise UsageError if none does.

    By default, MuJoCo assumes that there is a display.
    """
    if sys.platform != "linux" or "MUJOCO_GL" in os.environ:
        return
    for backend in BACKENDS:
        # In a process of its own: a backend that fails keeps others from being loaded.
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
    """Return the body of a MuJoCo environment that can travel anywhere, or None.

    It is the body that the environment's camera is set to track. If the camera is not set to look
    at a place either, it is the first body of the model that moves.
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
    if not model.body_jntnum[body]:  # such as the world
        return None
    joint = model.body_jntadr[body]
    travels = {int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_SLIDE)}
    return body if model.jnt_type[joint] in travels and not model.jnt_limited[joint] else None


class Followed(gymnasium.Wrapper):
    """Draw a travelling body on endless floors, with lights that follow it.

    Episodes stay the same. moves_camera: whether the environment's camera follows the body, too.
    """

    def __init__(self, env: gymnasium.Env, body: int, moves_camera: bool) -> None:
        super().__init__(env)
        self._body, self._moves_camera = body, moves_camera
        bare: Any = env.unwrapped
        self._renderer = bare.mujoco_renderer
        _lay_endless_floors(self._renderer.model)

    def render(self) -> Any:
        """Return the picture."""
        import mujoco

        renderer = self._renderer
        if not renderer.viewer:
            super().render()  # makes the viewer
            # Haze would be a white line between an endless floor and the sky.
            renderer.viewer.scn.flags[mujoco.mjtRndFlag.mjRND_HAZE] = False
        place = renderer.data.subtree_com[self._body, :2]
        if self._moves_camera:
            renderer.viewer.cam.lookat[:2] = place
        still = renderer.model.light_bodyid == 0
        renderer.data.light_xpos[still, :2] = renderer.model.light_pos[still, :2] + place
        return super().render()


def _lay_endless_floors(model: Any) -> None:
    import mujoco

    # Bodies collide with all of a plane anyway; its size (0: endless) is only for drawing.
    scaled = set()
    for floor in range(model.ngeom):
        if model.geom_type[floor] != mujoco.mjtGeom.mjGEOM_PLANE or model.geom_bodyid[floor]:
            continue
        material, size = model.geom_matid[floor], model.geom_size[floor, :2]
        # texrepeat counts the repetitions in a whole plane, or in 2 m of an endless one.
        if material >= 0 and not model.mat_texuniform[material] and material not in scaled:
            model.mat_texrepeat[material, size > 0] /= size[size > 0]
            scaled.add(material)
        model.geom_size[floor, :2] = 0
