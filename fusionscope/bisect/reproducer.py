"""Writes a kernel as something that runs alone: its HLO, its inputs, and a script."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile

from fusionscope.bisect.alone import read_operands, take_out
from fusionscope.bisect.fused_plan import FusedKernel, FusedModule
from fusionscope.bisect.trials import Trials, prepare_module
from fusionscope.dump import DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.facts.facts import Facts
from fusionscope.hlo import Module, to_text
from fusionscope.hlo.shape import Shape
from fusionscope.rerun.injection import Injection
from fusionscope.rerun.placeholders import hide
from fusionscope.rerun.programs import own_flags
from fusionscope.rerun.running import environment_for
from fusionscope.rerun.workbench import Variant
from fusionscope.system.files import make_directory, write_file
from fusionscope.system.processes import start_child

FUSED, UNFUSED, INPUTS, SCRIPT = "kernel.hlo", "unfused.hlo", "inputs.npz", "reproduce.py"
_NUMPY_KINDS = {"s": "int", "u": "uint", "f": "float", "c": "complex", "bf": "bfloat"}
_STACK_FRAME = re.compile(r" ?stack_frame_id=\d+")  # of a table that the file lacks
_TYPE = re.compile(r"(s|u|f|c|bf)(\d+)(\w*)")
_DIFFERS = re.compile(r"[1-9]\d* of \d+ elements differ")  # as the script prints it
_TEXT = """{about}
{flags}import jax, numpy, pathlib
from jax.extend import xla
from jaxlib import _hlo

jax.config.update("jax_enable_x64", True)
here = pathlib.Path(__file__).parent
types, results = {types}, {results}
inputs = [x.view(t) for x, t in zip(numpy.load(here / "{inputs}").values(), types)]

def run(file):
    proto = _hlo.hlo_module_from_text((here / file).read_text()).as_serialized_hlo_module_proto()
    xla.register_hlo_module_transformation(lambda _: proto, name=file, platforms="{platform}")
    found = jax.jit(lambda *_: [jax.numpy.zeros(*r) for r in results], keep_unused=True)(*inputs)
    xla.clear_hlo_module_transformation(name=file, platforms="{platform}")
    return [numpy.asarray(each) for each in found]

for fused, unfused in zip(run("{fused}"), run("{unfused}")):
    different = (fused != unfused) & ~((fused != fused) & (unfused != unfused))
    one, other = fused[different], unfused[different]
    most = abs(one.astype("c16") - other.astype("c16")).max(initial=0)
    print(f"{{one.size}} of {{fused.size}} elements differ, by at most {{most:.3g}}")
    for a, b in list(zip(one, other))[:5]:
        print(f"  fused {{a}}, unfused {{b}}")
"""


class Reproducer(Facts, frozen=True):
    """A kernel in ``directory`` that runs alone.

    directory: where it is
    output: what its script printed
    differs: whether fused and unfused operations gave different results
    problem: why there is none or its script failed; empty otherwise
    """

    directory: Path
    output: tuple[str, ...] = ()
    differs: bool = False
    problem: str = ""


def write_reproducer(
    trials: Trials, fused: FusedModule, kernel: FusedKernel, directory: Path, python: str
) -> Reproducer:
    """Write ``kernel`` of ``fused`` into ``directory``, with the values that it reads there, and
    run the script under ``python``.
    """
    make_directory(directory)
    try:
        types, results = _write_modules(trials, fused.module, kernel, directory)
    except UnusableInput as error:
        return Reproducer(directory, problem=str(error))
    write_file(directory / SCRIPT, script_for(trials.module, kernel, types, results))
    return _run(trials, directory, python)


def script_for(
    module: DumpedModule,
    kernel: FusedKernel,
    types: Sequence[str],
    results: Sequence[tuple[Sequence[int | None], str]],
) -> str:
    """Return the script for ``kernel`` of ``module``, whose inputs and results have these types."""
    flags = list(own_flags(module))
    operations = [operation.name for operation in kernel.operations]
    what = " ".join([*operations[:3], *(["…"] if len(operations) > 3 else [])])
    about = f"Runs {what} of {module.name}, as one kernel ({FUSED}) and unfused ({UNFUSED})."
    return _TEXT.format(
        about=repr(about),  # names of a dump may hold anything, and the script is run
        fused=FUSED,
        unfused=UNFUSED,
        inputs=INPUTS,
        flags=f"import os; os.environ['XLA_FLAGS'] = {' '.join(flags)!r}\n" if flags else "",
        types=json.dumps(types),
        results=json.dumps(results),
        platform="cpu" if module.backend == "cpu" else "cuda",
    )


def _write_modules(
    trials: Trials, module: Module, kernel: FusedKernel, directory: Path
) -> tuple[list[str], list[tuple[Sequence[int | None], str]]]:
    """Write the kernel and its inputs. Return the types of these, and the shapes and types of its
    results, as numpy calls them.
    """
    operands = read_operands(module, kernel.name)
    variant = Variant(_injected(trials, operands), hide(operands))
    trials.bench.run(variant, directory / INPUTS)
    alone = take_out(module, kernel.name, trials.plan)
    for fused_module, file in zip(alone, (FUSED, UNFUSED), strict=True):
        injected = _injected(trials, fused_module).module
        assert injected is not None
        write_file(directory / file, _STACK_FRAME.sub("", to_text(injected)))
    shape = alone[0].entry.root.shape
    results = shape.elements if shape.is_tuple else (shape,)
    return (
        [_numpy_type(parameter.shape) for parameter in alone[0].entry.parameters],
        [(result.dimensions, _numpy_type(result)) for result in results],
    )


def _injected(trials: Trials, module: Module) -> Injection:
    injection = prepare_module(
        trials.module, trials.plan, module, trials.bench.receive, trials.alter
    )
    if injection.module is None:
        raise UnusableInput(f"the kernel cannot be compiled alone: {injection.problem}")
    return injection


def _numpy_type(shape: Shape) -> str:
    if shape.element_type == "pred":
        return "bool"
    match = _TYPE.fullmatch(shape.element_type)
    if match is None:
        return shape.element_type
    kind, bits, suffix = match.groups()
    return f"{_NUMPY_KINDS[kind]}{bits}" + (f"_{suffix}" if suffix else "")


def _run(trials: Trials, directory: Path, python: str) -> Reproducer:
    with TemporaryFile() as printed, TemporaryFile() as errors:
        with start_child(
            [python, str(directory.resolve() / SCRIPT)],
            environment_for(trials.module),
            input=subprocess.DEVNULL,
            output=printed,
            errors=errors,
        ) as child:
            try:
                code = child.wait(trials.limit_s)
            except subprocess.TimeoutExpired:
                return Reproducer(directory, problem=f"{SCRIPT} took over {trials.limit_s:g} s")
        printed.seek(0)
        errors.seek(0)
        lines = tuple(printed.read().decode(errors="replace").splitlines())
        last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
    problem = "" if code == 0 else f"{SCRIPT} ended with {code}: {' '.join(last)}"
    return Reproducer(directory, lines, any(map(_DIFFERS.match, lines)), problem)
