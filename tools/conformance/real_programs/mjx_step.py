"""One step of 256 articulated bodies (MuJoCo MJX)."""

import jax
import jax.numpy as jnp
import mujoco
from mujoco import mjx

XML = """
<mujoco>
  <option timestep="0.005" iterations="2" ls_iterations="4"/>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 0 1">
      <joint type="free"/><geom type="sphere" size=".1"/>
      <body pos="0 0 .3">
        <joint type="hinge" axis="0 1 0"/><geom type="capsule" size=".05 .1"/>
        <body pos="0 0 .3">
          <joint type="hinge" axis="1 0 0"/><geom type="capsule" size=".05 .1"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
m = mjx.put_model(mujoco.MjModel.from_xml_string(XML))
B = 256


def one(q, v):
    d = mjx.make_data(m).replace(qpos=q, qvel=v)
    d = mjx.step(m, d)
    return d.qpos, d.qvel


def step(q, v):
    return jax.vmap(one)(q, v)


example_args = (
    jax.ShapeDtypeStruct((B, m.nq), jnp.float32),
    jax.ShapeDtypeStruct((B, m.nv), jnp.float32),
)
