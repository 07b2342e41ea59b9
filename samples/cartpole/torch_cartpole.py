"""One step of the Cartpole in PyTorch, for what its compiler fuses.

    TORCH_LOGS=fusion python torch_cartpole.py given|drawn|apart [library]

prints how many loops TorchInductor's code for a CPU has, and how its scheduler came to them. Random
numbers are those of PyTorch itself with `library`.
"""

import math
import sys

import torch

FORCE, TIME_STEP, GRAVITY, POLE_MASS, TOTAL_MASS, HALF_LENGTH = 10.0, 0.02, 9.8, 0.1, 1.1, 0.5
LARGEST_ANGLE, LARGEST_POSITION, LARGEST_START = 12 * math.pi / 180, 2.4, 0.05


def move(position, velocity, angle, angular_velocity, action):
    force = torch.where(action > 0.5, FORCE, -FORCE)
    cosine, sine = torch.cos(angle), torch.sin(angle)
    push = (force + POLE_MASS * HALF_LENGTH * angular_velocity**2 * sine) / TOTAL_MASS
    angular_acceleration = (GRAVITY * sine - cosine * push) / (
        HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cosine**2 / TOTAL_MASS)
    )
    acceleration = push - POLE_MASS * HALF_LENGTH * angular_acceleration * cosine / TOTAL_MASS
    return (
        position + TIME_STEP * velocity,
        velocity + TIME_STEP * acceleration,
        angle + TIME_STEP * angular_velocity,
        angular_velocity + TIME_STEP * angular_acceleration,
    )


def has_fallen(position, angle):
    return (position.abs() > LARGEST_POSITION) | (angle.abs() > LARGEST_ANGLE)


def given(state, stood, action, start):
    """The state in one array, random numbers from before."""
    moved = torch.stack(move(*state, action))
    fallen = has_fallen(moved[0], moved[2])
    return torch.where(fallen, start, moved), stood + torch.where(fallen, 0.0, 1.0)


def drawn(state, stood, action, start):
    """The same, with random numbers drawn in the step."""
    start = (torch.rand_like(state) * 2 - 1) * LARGEST_START
    return given(state, stood, action, start)


def apart(state, stood, action, start):
    """The state in four arrays."""
    moved = move(*state, action)
    fallen = has_fallen(moved[0], moved[2])
    kept = tuple(torch.where(fallen, s, m) for s, m in zip(start, moved, strict=True))
    return *kept, stood + torch.where(fallen, 0.0, 1.0)


if __name__ == "__main__":
    import torch._inductor.config
    from torch._inductor import metrics

    step = {"drawn": drawn, "given": given, "apart": apart}[sys.argv[1]]
    arrays = torch.randn(4, 2048), torch.zeros(2048), torch.rand(2048), torch.randn(4, 2048)
    if len(sys.argv) > 2:
        torch._inductor.config.fallback_random = sys.argv[2] == "library"
    torch.compile(step, fullgraph=True)(*arrays)
    print(step.__name__, "kernels:", metrics.generated_kernel_count)
