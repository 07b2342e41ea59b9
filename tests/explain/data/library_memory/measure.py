"""Prints by how much a process grows when it runs a program on a CPU once: in MiB, more than its
outputs and temporaries take. With a third argument, writes the final module into that folder.

    python measure.py PROGRAM ROWSxCOLUMNS [FOLDER]
"""

import gzip
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np


def outer(rows, columns):
    return jnp.exp(rows[:, None] * columns[None, :])


def distances(points, sources):
    return ((points[:, None, :] - sources[None, :, :]) ** 2).sum(-1)


# A program, and the shapes of its arguments in rows (m) and columns (n).
PROGRAMS = {
    "kernel_sum": (
        lambda p, s, w: (w[None, :] * jnp.exp(-0.5 * distances(p, s))).sum(1),
        ("m,3", "n,3", "n"),
    ),
    "weighted_rows": (lambda x, w: (jnp.exp(x) * w[None, :]).sum(1), ("m,n", "n")),
    "weighted_columns": (lambda x, w: (jnp.exp(x) * w[:, None]).sum(0), ("m,n", "m")),
    "variance": (lambda a, b: jnp.var(outer(a, b), axis=0), ("m", "n")),
    "scaled": (
        lambda p, s, w: (w[None, :] * jnp.exp(-0.5 * distances(p, s))).sum(0),
        ("m,3", "n,3", "n"),
    ),
    "maximum": (
        lambda p, s, w: (w[None, :] * jnp.exp(-0.5 * distances(p, s))).max(1),
        ("m,3", "n,3", "n"),
    ),
    "weighted_argument": (lambda x, w: (x * w[None, :]).sum(1), ("m,n", "n")),
    "two_factors": (lambda x, y: (jnp.exp(x) * jnp.sin(y)).sum(1), ("m,n", "m,n")),
    "squares": (lambda a, b: (outer(a, b) * outer(a, b)).sum(1), ("m", "n")),
    "product": (lambda a, b: jnp.exp(a @ b).sum(1), ("m,64", "64,n")),
}


def status(key: str) -> float:
    match = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) / 1024


def main() -> None:
    name, sizes, *folder = sys.argv[1:]
    lengths = dict(zip("mn", map(int, sizes.split("x")), strict=True))
    function, shapes = PROGRAMS[name]
    draw = np.random.default_rng(0)
    arguments = [
        jnp.asarray(
            draw.random([lengths.get(part) or int(part) for part in shape.split(",")], np.float32)
        )
        for shape in shapes
    ]
    compiled = jax.jit(function).lower(*arguments).compile()
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again
    before = status("VmRSS")
    jax.block_until_ready(compiled(*arguments))
    memory = compiled.memory_analysis()
    assigned = (memory.output_size_in_bytes + memory.temp_size_in_bytes) / 2**20
    print(f"{name} {sizes}: {status('VmHWM') - before - assigned:.1f} MiB")
    if folder:
        text = re.sub(r', metadata=\{op_name="[^}]*\}', "", compiled.as_text())
        text = "".join(
            line for line in text.splitlines(True) if not re.match(r"\d+ |[A-Z]\w+s$|File", line)
        )
        file = Path(folder[0]) / f"{name}.txt.gz"
        file.write_bytes(gzip.compress(text.encode(), mtime=0))


main()
