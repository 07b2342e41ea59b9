"""The place in the user's program that an instruction comes from: its scope, and its call stack."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionscope.hlo import Instruction, SourceLocation

# Transformations whose result is still the function that they are given; they are dropped.
_WRAPPERS = frozenset(
    "checkpoint jit jvp linearize pjit pmap remat shard_map vmap xla_call".split()
)
_GRADIENT = "transpose"
# Parts of a name that describe how JAX calls something, and not the program.
_CALLS = frozenset(
    "body closed_call core_call custom_jvp_call custom_vjp_call eval_jaxpr pjit shard_map".split()
)
_CALL = re.compile(r"([\w.]+)\((.*)\)")
_CAPTURE = "fusionscope/capture/child.py"
_PACKAGES = ("site-packages/", "dist-packages/")
_FARTHEST = 8  # steps to an instruction that has a name


def scope_of(op_name: str) -> tuple[str, ...]:
    """Return the parts of a framework's name of an operation, outermost first, the operation last.

    The function that was compiled is omitted, as it is the whole module. ``jit(f)`` is ``f``,
    ``jvp(layer)`` is ``layer``, and ``transpose(jvp(layer))``, which computes its gradient, is
    ``gradient of layer``.
    """
    parts = _split(op_name)
    while len(parts) > 1 and _CALL.fullmatch(parts[0]) and parts[0].startswith(("jit(", "pjit(")):
        whole, parts = parts[0], parts[1:]
        if whole != "jit(main)" and not parts[0].startswith("jit(main)"):
            break
    path: list[str] = []
    for part in parts[:-1]:
        path += _unwrap(part)
    return (*path, *parts[-1:])


def _unwrap(part: str) -> Iterator[str]:
    """Yield the scopes in one part of a name: none, one or several."""
    is_gradient = False
    while (call := _CALL.fullmatch(part)) and (call[1] in _WRAPPERS or call[1] == _GRADIENT):
        is_gradient = is_gradient or call[1] == _GRADIENT
        part = call[2]
    inner = [name for name in _split(part) if name not in _CALLS]
    if is_gradient:
        first, *inner = inner or [""]
        yield f"gradient of {first}" if first else "gradient"
    if len(inner) > 1:
        for name in inner:
            yield from _unwrap(name)
    else:
        yield from inner


def _split(name: str) -> list[str]:
    """Split at the slashes that are not in parentheses."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(name):
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif character == "/" and depth <= 0:
            parts.append(name[start:place])
            start = place + 1
    parts.append(name[start:])
    return [part for part in parts if part]


def origin_of(launch: Instruction) -> Instruction:
    """Return the instruction with the name and the line of ``launch``: itself, one in the fusion,
    its nearest producer or consumer that has them, or else the loop, call or branch around it.

    Returns ``launch`` if there is none: passes insert instructions without name and line.
    """
    if launch.op_name or launch.stack:
        return launch
    for callee in launch.called if launch.opcode in ("async-start", "call", "fusion") else ():
        with_names = [
            instruction for instruction in reversed(callee.instructions) if instruction.op_name
        ]
        if with_names:
            return next((inner for inner in with_names if inner is callee.root), with_names[0])
    for follow in (_first_operand, _first_user):
        origin = follow(launch)
        for _ in range(_FARTHEST):
            if origin is None or origin.op_name:
                break
            origin = follow(origin)
        if origin is not None and origin.op_name and origin.opcode != "parameter":
            return origin
    return _around(launch) or launch


def _around(launch: Instruction) -> Instruction | None:
    """Return the innermost loop, call or branch around it that has a name."""
    callers = launch.computation.module.callers
    computation, visited = launch.computation, {launch.computation}
    while computation in callers:
        caller = callers[computation][0]
        if caller.op_name:
            return caller
        computation = caller.computation
        if computation in visited:
            break
        visited.add(computation)
    return None


def _first_operand(instruction: Instruction) -> Instruction | None:
    operands = instruction.computation.graph.operands[instruction.index]
    return instruction.computation.instructions[operands[0]] if operands else None


def _first_user(instruction: Instruction) -> Instruction | None:
    users = instruction.computation.users[instruction.index]
    return instruction.computation.instructions[users[0]] if users else None


def outermost_first(stack: Sequence[SourceLocation]) -> tuple[SourceLocation, ...]:
    """Return the frames of a call stack that is innermost first.

    If the compiler inlined a call it appends the stack of the call to that of the callee, so frames
    repeat: each is kept once. The frame of ``fusionscope capture``, which called the program, is
    omitted.
    """
    frames = reversed(dict.fromkeys(stack))
    return tuple(frame for frame in frames if not frame.file.endswith(_CAPTURE))


def frame_text(frame: SourceLocation) -> str:
    """Return text such as ``model.py:42 attention``."""
    function = (frame.function or "").rpartition("<locals>.")[2]
    return f"{PurePath(frame.file.replace(chr(92), '/')).name}:{frame.line} {function}".rstrip()


def short_file(file: str) -> str:
    """For a file in an installed package, return the path inside the package."""
    file = file.replace("\\", "/")
    for package in _PACKAGES:
        _, separator, inside = file.rpartition(package)
        if separator:
            return inside
    return file
