"""HLO as people write it, and every form that the compiler's parser takes.

What each text says stands beside it. Where jaxlib 0.12 is installed, the compiler's own parser is
asked as well.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from fusionscope.hlo import Module, parse, to_text


class Case(NamedTuple):
    """``says`` has a line for each computation: its name, then its instructions as
    ``name = opcode(operands)``, the entry and roots marked with ``*``."""

    name: str
    text: str
    says: str


def says(module: Module) -> str:
    lines = []
    for computation in module.computations:
        instructions = [
            f"{'*' if i.is_root else ''}{i.name} = {i.opcode}"
            f"({' '.join(operand.name for operand in i.operands)})"
            for i in computation.instructions
        ]
        entry = "*" if computation.is_entry else ""
        lines.append(f"{entry}{computation.name}: {', '.join(instructions)}")
    return "\n".join(lines)


P_PLUS_P = "*e: p = parameter(), *a = add(p p)"

WRITTEN_BY_HAND = [
    Case(
        "as the compiler prints it",
        """HloModule m, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

%f (p.1: f32[2]) -> f32[2] {
  %p.1 = f32[2]{0} parameter(0)
  ROOT %n = f32[2]{0} negate(%p.1)
}

ENTRY %e (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0), metadata={op_name="p"}
  ROOT %c = f32[2]{0} call(%p), to_apply=%f
}
""",
        "f: p.1 = parameter(), *n = negate(p.1)\n*e: p = parameter(), *c = call(p)",
    ),
    Case(
        "no percent signs, layouts and signatures",
        "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT a = f32[2] add(p, p)\n}\n",
        P_PLUS_P,
    ),
    Case(
        "no header",
        "ENTRY e {\n  p = f32[2] parameter(0)\n  ROOT a = f32[2] add(p, p)\n}\n",
        P_PLUS_P,
    ),
    Case(
        "one line",
        "HloModule m ENTRY e { p = f32[2] parameter(0) ROOT a = f32[2] add(p, p) }",
        P_PLUS_P,
    ),
    Case(
        "no space that can be missed",
        "HloModule m\nENTRY e{p = f32[2]parameter(0)ROOT a = f32[2]add(p,p)}",
        P_PLUS_P,
    ),
    Case(
        "no space before a percent sign",
        "HloModule m\n\nENTRY%e {\n  %p = f32[2] parameter(0)\n  ROOT%a = f32[2] add(%p, %p)\n}\n",
        P_PLUS_P,
    ),
    Case(
        "two instructions on a line",
        "HloModule m\nENTRY e {\n  p = f32[2] parameter(0) "
        'a = f32[2] add(p, p), metadata={op_name="x = f32[] y"}\n}\n',
        P_PLUS_P,
    ),
    Case(
        "two instructions on a line, the first with groups of replicas",
        """HloModule m
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }
ENTRY e {
  p = f32[8] parameter(0) a = f32[8] all-reduce(p), replica_groups=[2,4]<=[4,2]T(1,0), to_apply=add
  ROOT b = f32[8] all-reduce(p), to_apply=add, replica_groups={} }
""",
        "add: x = parameter(), y = parameter(), *z = add(x y)\n"
        "*e: p = parameter(), a = all-reduce(p), *b = all-reduce(p)",
    ),
    Case(
        "one instruction on many lines",
        """HloModule
  m
ENTRY
e
{
  p
   =
   f32[2]
   {0}
   parameter(
   0
   )
  ROOT
   a = f32[2]
   add(p,
     p),
   metadata={
    op_name="a"
}
}
""",
        P_PLUS_P,
    ),
    Case(
        "lines that end as on Windows",
        "HloModule m\r\n\r\nENTRY e {\r\n  p = f32[2] parameter(0)\r\n"
        "  ROOT a = f32[2] add(p, p)\r\n}\r\n",
        P_PLUS_P,
    ),
    Case(
        "lines that end as on old machines",
        "HloModule m\r\rENTRY e {\r  p = f32[2] parameter(0)\r  ROOT a = f32[2] add(p, p)\r}\r",
        P_PLUS_P,
    ),
    Case(
        "tabs",
        "HloModule m\n\nENTRY e {\n\tp = f32[2]\tparameter(0)\n\tROOT\ta = f32[2] add(p,\tp)\n}\n",
        P_PLUS_P,
    ),
    Case(
        "comments",
        """// first
HloModule m /* here */, is_scheduled=false // x
/* over
lines { */
ENTRY e { // e
  p = f32[2] parameter(0) // p = f32[2]
  // q = nothing
  ROOT a = f32[2] add(/* x */ p, /*y*/p), metadata={/* c */ op_name="/* no */ // no"}
} // e
// end
""",
        P_PLUS_P,
    ),
    Case(
        "bare names and footers, as up to jaxlib 0.4",
        """HloModule jit_f, entry_computation_layout={(f32[8]{0})->f32[]}

region_0.1 {
  Arg_0.2 = f32[] parameter(0)
  Arg_1.3 = f32[] parameter(1)
  ROOT add.4 = f32[] add(Arg_0.2, Arg_1.3), metadata={source_file="a.py" source_line=3}
} // region_0.1

ENTRY main.7 {
  Arg_0.1 = f32[8]{0} parameter(0)
  constant.2 = f32[] constant(0)
  ROOT reduce.6 = f32[] reduce(Arg_0.1, constant.2), dimensions={0}, to_apply=region_0.1
} // main.7
""",
        "region_0.1: Arg_0.2 = parameter(), Arg_1.3 = parameter(), *add.4 = add(Arg_0.2 Arg_1.3)\n"
        "*main.7: Arg_0.1 = parameter(), constant.2 = constant(), "
        "*reduce.6 = reduce(Arg_0.1 constant.2)",
    ),
    Case(
        "shapes before operands",
        """HloModule m
ENTRY %e (p: f32[2], q: (f32[2], s32[])) -> f32[2] {
  %p = f32[2]{0:T(128)} parameter(0)
  %q = (f32[2]{0}, s32[]) parameter(1)
  %g = f32[2]{0} get-tuple-element((f32[2]{0}, s32[]) %q), index=0
  ROOT %a = f32[2]{0} add(f32[2]{0:T(128)} %p, f32[2] g)
}
""",
        "*e: p = parameter(), q = parameter(), g = get-tuple-element(q), *a = add(p g)",
    ),
    Case(
        "more commas than needed between operands",
        "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT a = f32[2] add(,p,, p,)\n}\n",
        P_PLUS_P,
    ),
    Case(
        "no ENTRY: the last computation is the entry",
        """HloModule m
f { ROOT p = f32[2] parameter(0) }
g {
  p = f32[2] parameter(0)
  ROOT c = f32[2] call(p), to_apply=f
}
""",
        "f: *p = parameter()\n*g: p = parameter(), *c = call(p)",
    ),
    Case(
        "ENTRY before another computation",
        """HloModule m
ENTRY e { ROOT p = f32[2] parameter(0) }
f { ROOT q = f32[2] parameter(0) }
""",
        "*e: *p = parameter()\nf: *q = parameter()",
    ),
    Case(
        "ROOT in the middle",
        """HloModule m
ENTRY e {
  p = f32[2] parameter(0)
  ROOT a = f32[2] add(p, p)
  n = f32[2] negate(p)
}
""",
        "*e: p = parameter(), *a = add(p p), n = negate(p)",
    ),
    Case(
        "no ROOT: the last instruction is the root",
        "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  a = f32[2] add(p, p)\n}\n",
        P_PLUS_P,
    ),
    Case(
        "parameters in any order",
        """HloModule m
ENTRY e {
  q = f32[3] parameter(1)
  p = f32[2] parameter(0)
  ROOT t = (f32[2], f32[3]) tuple(p, q)
}
""",
        "*e: q = parameter(), p = parameter(), *t = tuple(p q)",
    ),
    Case(
        "names with dots, dashes and percent signs; words as names",
        """HloModule jit__lambda_.1-x
ENTRY %main.1-a_b.c-2 {
  %p.1-2_x = f32[8] parameter(0)
  add = f32[8] negate(p.1-2_x)
  constant = f32[8] negate(add)
  %while.body = f32[8] negate(constant)
  ROOT %parameter = f32[8] add(%while.body, %add)
}
""",
        "*main.1-a_b.c-2: p.1-2_x = parameter(), add = negate(p.1-2_x), constant = negate(add), "
        "while.body = negate(constant), *parameter = add(while.body add)",
    ),
    Case(
        "an instruction as an operand",
        """HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  y = f32[2] parameter(1)
  ROOT r = f32[2] add(f32[2] maximum(x, maximum(y, x)), negate(x)), metadata={op_name="a"}
}
""",
        "*e: x = parameter(), y = parameter(), maximum.anon = maximum(y x), "
        "maximum.anon.1 = maximum(x maximum.anon), negate.anon = negate(x), "
        "*r = add(maximum.anon.1 negate.anon)",
    ),
    Case(
        "all in one instruction",
        "HloModule m\nENTRY e { ROOT r = f32[] add(f32[] constant(1), f32[] parameter(0)) }",
        "*e: constant.anon = constant(), parameter.anon = parameter(), "
        "*r = add(constant.anon parameter.anon)",
    ),
    Case(
        "a computation where it is called",
        """HloModule m
ENTRY e {
  p = f32[2] parameter(0)
  z = f32[] constant(0)
  r = f32[] reduce(p, z), dimensions={0}, to_apply={
    a = f32[] parameter(0)
    b = f32[] parameter(1)
    ROOT s = f32[] add(a, b)
  }
  ROOT q = f32[] fusion(p, z), kind=kLoop, calls={
    a = f32[2] parameter(0)
    b = f32[] parameter(1)
    ROOT r = f32[] reduce(a, b), dimensions={0}, to_apply={
      a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT s = f32[] add(a, b)
    }
  }, metadata={op_name="b"}
}
""",
        "_: a = parameter(), b = parameter(), *s = add(a b)\n"
        "_.1: a = parameter(), b = parameter(), *s = add(a b)\n"
        "_.2: a = parameter(), b = parameter(), *r = reduce(a b)\n"
        "*e: p = parameter(), z = constant(), r = reduce(p z), *q = fusion(p z)",
    ),
    Case(
        "branches where they are called",
        """HloModule m
ENTRY e {
  i = s32[] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[] conditional(i, z, z), branch_computations={
    { ROOT a = f32[] parameter(0) }, { ROOT b = f32[] parameter(0) }}
}
""",
        "_: *a = parameter()\n_.1: *b = parameter()\n"
        "*e: i = parameter(), z = constant(), *r = conditional(i z z)",
    ),
]

ELEMENTS_OF_TUPLES = [
    Case(
        "elements without an instruction",
        """HloModule m
ENTRY e {
  %p = (f32[2], (s32[], pred[3,4]), ()) parameter(0)
  %n = s32[] add(%p#1#0, s32[] %p#1#0)
  ROOT t = (f32[2], s32[]) tuple(p#0, %n)
}
""",
        "*e: p = parameter(), p#1 = get-tuple-element(p), p#1#0 = get-tuple-element(p#1), "
        "n = add(p#1#0 p#1#0), p#0 = get-tuple-element(p), *t = tuple(p#0 n)",
    ),
    Case(
        "elements with an instruction",
        """HloModule m
ENTRY e {
  p = (f32[2], (s32[], pred[3,4]{0,1}), ()) parameter(0)
  g = (s32[], pred[3,4]{0,1}) get-tuple-element(p), index=1
  ROOT h = s32[] get-tuple-element(g), index=0
}
""",
        "*e: p = parameter(), g = get-tuple-element(p), *h = get-tuple-element(g)",
    ),
]

CALLS = [
    Case(
        "a fusion of nothing",
        """HloModule m
f { ROOT c = f32[] constant(1) }
ENTRY e { ROOT h = f32[] fusion(), kind=kLoop, calls=f }
""",
        "f: *c = constant()\n*e: *h = fusion()",
    ),
    Case(
        "conditionals of both kinds",
        """HloModule m
t { ROOT a = f32[8] parameter(0) }
f { a = f32[8] parameter(0) ROOT b = f32[8] negate(a) }
ENTRY e {
  p = pred[] parameter(0)
  i = s32[] parameter(1)
  x = f32[8] parameter(2)
  c = f32[8] conditional(p, x, x), true_computation=t, false_computation=f
  ROOT d = f32[8] conditional(i, x, c), branch_computations={t, %f}
}
""",
        "t: *a = parameter()\nf: a = parameter(), *b = negate(a)\n"
        "*e: p = parameter(), i = parameter(), x = parameter(), c = conditional(p x x), "
        "*d = conditional(i x c)",
    ),
    Case(
        "what looks like a call inside a string",
        """HloModule m
ENTRY e {
  ROOT x = f32[8] custom-call(), custom_call_target="a}\\"b\\\\",
    backend_config="calls=%f, to_apply=%g", frontend_attributes={calls="y"},
    metadata={op_name="} , calls=%x"}
}
""",
        "*e: *x = custom-call()",
    ),
    Case(
        "asynchronous, in full",
        """HloModule m
w { p = f32[2] parameter(0) ROOT x = f32[2] negate(p) }, execution_thread="t"
ENTRY e {
  x = f32[2] parameter(0)
  s = ((f32[2]), f32[2], s32[]) async-start(x), async_execution_thread="t", calls=w
  u = ((f32[2]), f32[2], s32[]) async-update(s)
  ROOT d = f32[2] async-done(u)
}
""",
        "w: p = parameter(), *x = negate(p)\n"
        "*e: x = parameter(), s = async-start(x), u = async-update(s), *d = async-done(u)",
    ),
    Case(
        "asynchronous, as as_text() prints it",
        """HloModule m
f { p = f32[2] parameter(0) ROOT x = f32[2] negate(p) }
ENTRY e {
  x = f32[2] parameter(0)
  s = ((f32[2]), f32[2], s32[]) fusion-start(x), kind=kLoop, calls=f, metadata={op_name="q"}
  u = ((f32[2]), f32[2], s32[]) fusion-update(s)
  d = f32[2] fusion-done(u)
  c = ((f32[2], f32[2]), (f32[2], s32[]), s32[]) custom-call-start(x, d),
    custom_call_target="foo", async_execution_thread="host", backend_config={"a":1}
  ROOT g = (f32[2], s32[]) custom-call-done(c)
}
""",
        "f: p = parameter(), *x = negate(p)\n"
        "async_wrapped: async_param = parameter(), *fusion = fusion(async_param)\n"
        "async_wrapped.1: async_param = parameter(), async_param.1 = parameter(), "
        "*custom-call = custom-call(async_param async_param.1)\n"
        "*e: x = parameter(), s = async-start(x), u = async-update(s), d = async-done(u), "
        "c = async-start(x d), *g = async-done(c)",
    ),
    Case(
        "asynchronous, with operands that come late",
        """HloModule m
f { p = f32[2] parameter(0) q = f32[2] parameter(1) ROOT x = f32[2] add(p, q) }
ENTRY e {
  x = f32[2] parameter(0)
  s = ((f32[2]), (), s32[]) call-start(x), to_apply=f
  u = ((f32[2], f32[2]), f32[2], s32[]) call-update(s, x)
  d = f32[2] call-done(u)
  t = ((), (), s32[]) add-start()
  v = ((f32[2]), (), s32[]) add-update(t, x)
  w = ((f32[2], f32[2]), f32[2], s32[]) add-update(v, d)
  ROOT r = f32[2] add-done(w)
}
""",
        "f: p = parameter(), q = parameter(), *x = add(p q)\n"
        "async_wrapped: async_param = parameter(), async_param.1 = parameter(), "
        "*call = call(async_param async_param.1)\n"
        "async_wrapped.1: async_param = parameter(), async_param.1 = parameter(), "
        "*add = add(async_param async_param.1)\n"
        "*e: x = parameter(), s = async-start(x), u = async-update(s x), d = async-done(u), "
        "t = async-start(), v = async-update(t x), w = async-update(v d), *r = async-done(w)",
    ),
    Case(
        "collectives that start and end",
        """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[2] parameter(0)
  s = f32[2] all-reduce-start(x), replica_groups={}, to_apply=add
  d = f32[2] all-reduce-done(s)
  c = (f32[2], f32[2], u32[]) copy-start(x)
  f = f32[2] copy-done(c), control-predecessors={s, d}
  g = (f32[2], f32[4]) all-gather-start(x), replica_groups={{0,1}}, dimensions={0}
  h = f32[4] all-gather-done(g)
  i = (f32[2], f32[2]) collective-permute-start(x), source_target_pairs={{0,1}}
  ROOT j = f32[2] collective-permute-done(i)
}
""",
        "add: a = parameter(), b = parameter(), *c = add(a b)\n"
        "*e: x = parameter(), s = all-reduce-start(x), d = all-reduce-done(s), c = copy-start(x), "
        "f = copy-done(c), g = all-gather-start(x), h = all-gather-done(g), "
        "i = collective-permute-start(x), *j = collective-permute-done(i)",
    ),
]


def of_one(lines: str) -> str:
    """A module of one computation."""
    return f"HloModule m\nENTRY e {{\n{lines}\n}}\n"


def parameters(shapes_and_attributes: list[str]) -> Case:
    """A module of parameters, one for each shape with attributes."""
    lines = []
    for number, output in enumerate(shapes_and_attributes):
        shape, _, attributes = output.partition("; ")
        lines.append(f"  p.{number} = {shape} parameter({number}){attributes and ', '}{attributes}")
    names = [f"p.{number} = parameter()" for number in range(len(lines))]
    text = of_one("\n".join(lines))
    return Case(text, text, f"*e: {', '.join([*names[:-1], '*' + names[-1]])}")


ATTRIBUTES = [
    parameters(["f32[4,4]; sharding=" + sharding])
    for sharding in (
        "{replicated}",
        "{manual}",
        "{unknown}",
        "{unreduced}",
        "{maximal device=3}",
        "{devices=[2,2]0,1,2,3}",
        "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}",
        "{devices=[2,1,2]0,1,2,3 last_tile_dims={manual}}",
        "{devices=[2,2]<=[4]}",
        "{devices=[2,2]<=[2,2]T(1,0)}",
        "{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
        "{devices=[1,1,2,2]<=[4] last_tile_dims={manual, replicated}}",
        "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}",
        '{replicated metadata={op_name="a" source_file="b" source_line=3}}',
        '{devices=[4,1]<=[4] metadata={op_name="x"}}',
        "{devices=[2,2]<=[4] shard_as 1}",
        "{mesh['x'=1], [{}, {}]}",
        "{mesh['x'=2,'y'=2], [{'x'}, {'y'}]}",
        "{mesh['x'=2,'y'=2], [{'x','y'}, {?}]}",
    )
] + [
    parameters(["(f32[4,4], f32[4]); sharding={{replicated}, {devices=[4]<=[4]}}"]),
    parameters(
        [
            "(f32[], f32[], f32[], f32[], f32[], f32[]); sharding={{replicated}, {replicated}, "
            "{replicated}, {replicated}, {replicated}, /*index=5*/{replicated}}"
        ]
    ),
    parameters(['f32[8]; metadata={op_type="T" op_name="a/b" source_file="y.py" source_line=1}']),
    parameters(
        ['f32[8]; metadata={op_name="a" source_file="b" source_line=1 source_end_line=2 '
         "source_column=3 source_end_column=4}"]
    ),
    parameters(['f32[8]; frontend_attributes={a="}{",b="x=y",_xla_c="1"}']),
    parameters(["f32[8]; frontend_attributes={}"]),
    parameters(["f32[8]; statistics={visualizing_index=0, stat-1=33.0, stat-2=-1e3}"]),
    parameters(['f32[8]; origin={{"x"}}', '(f32[], f32[]); origin={({"v1"}, {"v2" {1}})}']),
    parameters(["f32[8]; parameter_replication={true}"]),
    parameters(['f32[8]; backend_config={"a":{"}":[1,-2.5e3,true,null]},"b":""}']),
    parameters(['f32[8]; backend_config="{\\"a\\":{\\"}\\":[1,2]}}"']),
    parameters(['f32[8]; backend_config="\\000\\020\\377"']),
    parameters(["f32[8]; backend_config={}"]),
    parameters(["f32[8]; backend_config={a = 1 : i32, b = \"x\"}"]),
]  # fmt: skip

SHAPES = [
    parameters([shape])
    for shape in (
        "f32[]",
        "f32[ 2 , 3 ]{ 1 , 0 }",
        "f32 [2,3] {0,1}",
        "()",
        "((), (f32[2], ()))",
        "token[]",
        "opaque[]",
        "pred[1]",
        "s4[8,16]{1,0:T(8,128)E(4)}",
        "f8e4m3fn[3]",
        "f8e5m2fnuz[3]",
        "c128[2]",
        "f32[<=8,16]",
        "f32[?,16]",
        "f32[8,16]{1,0:T(8,128)}",
        "bf16[8,16]{1,0:T(8,128)(2,1)}",
        "f32[8,16]{0,1:T(8,128)S(1)}",
        "f32[]{:T(128)}",
        "u32[]{:S(2)}",
        "f32[8,16]{1,0:S(5)}",
        "f32[8,16]{1,0:T(2,*)}",
        "f32[8,16]{1,0:L(128)}",
        "f32[8,16]{1,0:M(10)}",
        "f32[8,16]{1,0:#(u32)*(u16)}",
        "f32[8,16]{1,0:SC(1:200)}",
        "f32[9999999999]",
        "((((((((((((((((((((f32[8]))))))))))))))))))))",
    )
]

LITERALS = [
    Case(literal, of_one(f"  ROOT c = {literal}"), "*e: *c = constant()")
    for literal in (
        "f32[] constant(1)",
        "f32[] constant(-4.5e-3)",
        "f32[] constant(1.)",
        "f32[] constant(-.5)",
        "f32[2] constant({1E5, 1.0e+5})",
        "f32[] constant(inf)",
        "f32[] constant(-inf)",
        "f32[] constant(nan)",
        "f32[] constant(-nan)",
        "f32[] constant(nan(0x400000))",
        "f32[] constant(-3.40282347e+38)",
        "f64[] constant(1e-300)",
        "bf16[] constant(3.39e+38)",
        "f8e4m3fn[] constant(448)",
        "s32[] constant(-0)",
        "u8[] constant(255)",
        "s64[] constant(-9223372036854775808)",
        "u64[] constant(18446744073709551615)",
        "u64[] constant(-1)",
        "s4[2] constant({7, -8})",
        "pred[] constant(true)",
        "pred[] constant(2)",
        "pred[3] constant({1, 0, false})",
        "c64[] constant((1, -2.5))",
        "c64[2] constant({(1, 2), (nan, -inf)})",
        "c128[] constant( ( 1.5 , nan ) )",
        "f32[2,2] constant({ { 1, 2 }, { 3, 4 } })",
        "f32[2,2]{0,1} constant({ /*i0=0*/ {1, 2}, /*i0=1*/ {3, 4} })",
        "f32[3] constant({1,2,3,})",
        "f32[2] constant({1,,2})",
        "f32[2] constant({1 2})",
        "f32[2,0] constant({ {}, {} })",
        "f32[0] constant({})",
        "f32[1000] constant({...})",
        "f32[10,10] constant({...})",
        "(f32[], s32[2]) constant((1.5, {1, 2}))",
        "(f32[], (s32[2], pred[])) constant(( 1.5, ({1, 2}, true) ))",
    )
]

OPERATIONS = [
    Case(
        "left out shapes",
        of_one("""
  x = f32[2]{0:T(128)} parameter(0)
  a = add(x, x)
  c = compare(a, x), direction=EQ
  t = tuple(a, c)
  g = get-tuple-element(t), index=1
  s = select(g, x, a)
  k = f32[2,3] parameter(1)
  y = transpose(k), dimensions={1,0}
  ROOT i = partition-id()"""),
        "*e: x = parameter(), a = add(x x), c = compare(a x), t = tuple(a c), "
        "g = get-tuple-element(t), s = select(g x a), k = parameter(), y = transpose(k), "
        "*i = partition-id()",
    ),
    Case(
        "dot",
        of_one("""
  x = f32[2,3,4] parameter(0)
  y = f32[2,4,5] parameter(1)
  ROOT d = f32[2,3,5] dot(x, y), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0},
    rhs_contracting_dims={1}, operand_precision={highest,default}, algorithm=dot_tf32_tf32_f32"""),
        "*e: x = parameter(), y = parameter(), *d = dot(x y)",
    ),
    Case(
        "convolution",
        of_one("""
  x = f32[1,8,8,3] parameter(0)
  y = f32[3,3,3,4] parameter(1)
  ROOT c = f32[1,8,8,4] convolution(x, y), window={size=3x3 pad=1_1x1_1 rhs_reversal=0x0},
    dim_labels=b01f_01io->b01f, operand_precision={highest,default}"""),
        "*e: x = parameter(), y = parameter(), *c = convolution(x y)",
    ),
    Case(
        "slice, pad",
        of_one("""
  x = f32[8,9] parameter(0)
  s = f32[2,3] slice(x), slice={[0:4:2], [0:3]}
  z = f32[] constant(0)
  ROOT p = f32[4,6] pad(s, z), padding=1_1x0_1_1"""),
        "*e: x = parameter(), s = slice(x), z = constant(), *p = pad(s z)",
    ),
    Case(
        "custom call",
        of_one("""
  x = f32[8,9]{1,0} parameter(0)
  ROOT c = (f32[8,9]{1,0}, u8[10]{0}) custom-call(x), custom_call_target="foo$bar",
    operand_layout_constraints={f32[8,9]{1,0}}, custom_call_has_side_effect=true,
    output_to_operand_aliasing={{0}: (0, {})}, api_version=API_VERSION_STATUS_RETURNING"""),
        "*e: x = parameter(), *c = custom-call(x)",
    ),
    Case(
        "buffers",
        of_one("""
  a = f32[8] parameter(0)
  h = b(f32[8]) custom-call(a), custom_call_target="Pin"
  ROOT c = f32[8] custom-call(h), custom_call_target="Unpin\""""),
        "*e: a = parameter(), h = custom-call(a), *c = custom-call(h)",
    ),
    Case(
        "in and out",
        of_one("""
  t = token[] after-all()
  i = ((f32[8], pred[]), token[]) infeed(t), infeed_config="abc"
  d = (f32[8], pred[]) get-tuple-element(i), index=0
  ROOT o = token[] outfeed(d, t), outfeed_config="x", outfeed_shape=(f32[8], pred[])"""),
        "*e: t = after-all(), i = infeed(t), d = get-tuple-element(i), *o = outfeed(d t)",
    ),
    Case(
        "result accuracy",
        of_one("""
  x = f32[8] parameter(0)
  a = f32[8] exponential(x), result_accuracy={mode=highest}
  ROOT b = f32[8] tanh(a), result_accuracy={tolerance={atol=1e-5, rtol=1e-5, ulps=2}}"""),
        "*e: x = parameter(), a = exponential(x), *b = tanh(a)",
    ),
    Case(
        "groups of replicas",
        """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[8] parameter(0)
  a = f32[8] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=add, channel_id=1,
    use_global_device_ids=true
  b = f32[8] all-reduce(x), replica_groups=[2,4]<=[8], to_apply=add
  c = f32[8] all-reduce(x), replica_groups=[2,4]<=[4,2]T(1,0), to_apply=add
  ROOT d = f32[8] all-reduce(x), replica_groups=mesh['d'=4,'m'=2] {'d'}, to_apply=add
}
""",
        "add: a = parameter(), b = parameter(), *c = add(a b)\n"
        "*e: x = parameter(), a = all-reduce(x), b = all-reduce(x), c = all-reduce(x), "
        "*d = all-reduce(x)",
    ),
]

HEADERS = [
    Case(
        header[:60],
        f"HloModule m, {header}\nENTRY e {{\n  p = f32[2] parameter(0)\n"
        "  s = (f32[2]) tuple(p)\n  ROOT t = (f32[2], (f32[2])) tuple(p, s)\n}\n",
        "*e: p = parameter(), s = tuple(p), *t = tuple(p s)",
    )
    for header in (
        "is_scheduled=true, replica_count=2, num_partitions=4",
        "input_output_alias={ {0}: (0, {}, may-alias), {1,0}: (0, {}, must-alias) }",
        "input_output_alias={ {0}: (0, {}) }",
        "buffer_donor={ (0, {}) }",
        "alias_passthrough_params=true, allow_spmd_sharding_propagation_to_output={true, false}",
        'frontend_attributes={a="b",c="}{"}',
        "entry_computation_layout={(f32[2]{0:T(128)})->(f32[2]{0}, /*index=1*/(f32[2]{0}))}",
    )
] + [
    Case(
        "tables of stack frames",
        """HloModule m

FileNames
1 "a \\"b\\" .py"
2 "c.py"

FunctionNames
1 "<lambda>"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=2}
2 {file_name_id=2 function_name_id=1 line=7 end_line=7 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

ENTRY e {
  ROOT a = f32[8] parameter(0), metadata={op_name="x" stack_frame_id=2}
}
""",
        "*e: *a = parameter()",
    )
]  # fmt: skip

INFERRED = [
    Case(
        "shapes left out of binary and ternary operations",
        of_one("""
  x = f32[2,3] parameter(0)
  y = f16[2,3] parameter(1)
  z = f32[] constant(0)
  a = add(x, y)
  c = clamp(z, a, z)
  k = complex(c, x)
  r = real(k)
  ROOT i = is-finite(r)"""),
        "*e: x = parameter(), y = parameter(), z = constant(), a = add(x y), c = clamp(z a z), "
        "k = complex(c x), r = real(k), *i = is-finite(r)",
    ),
    Case(
        "shapes left out of products",
        of_one("""
  x = f32[5,4,8] parameter(0)
  y = bf16[5,8,2] parameter(1)
  d = dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={1}
  i = f32[1,9,9,6] parameter(2)
  f = f32[3,3,3,4] parameter(3)
  ROOT c = convolution(i, f), window={size=3x3 pad=1_1x0_2 stride=2x1 rhs_dilate=1x2},
    dim_labels=b01f_01io->bf01, feature_group_count=2"""),
        "*e: x = parameter(), y = parameter(), d = dot(x y), i = parameter(), f = parameter(), "
        "*c = convolution(i f)",
    ),
    Case(
        "shapes left out of operations that move",
        of_one("""
  x = f32[4,6] parameter(0)
  z = f32[] constant(0)
  p = pad(x, z), padding=1_1_2x0_-2
  c = concatenate(p, p), dimensions={1}
  v = reverse(c), dimensions={0}
  i = s32[3,1] parameter(1)
  g = gather(v, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,8}
  s = s32[] get-dimension-size(g), dimensions={0}
  ROOT t = topk(g), k=2"""),
        "*e: x = parameter(), z = constant(), p = pad(x z), c = concatenate(p p), v = reverse(c), "
        "i = parameter(), g = gather(v i), s = get-dimension-size(g), *t = topk(g)",
    ),
    Case(
        "shapes left out of reductions",
        """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ge { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=GE }
two {
  a = f32[] parameter(0) b = s32[] parameter(1) c = f32[] parameter(2) d = s32[] parameter(3)
  ROOT t = (f32[], s32[]) tuple(a, d)
}
ENTRY e {
  x = f32[8,9] parameter(0)
  y = s32[8,9] parameter(1)
  z = f32[] constant(0)
  n = s32[] constant(0)
  r = reduce(x, z), dimensions={1}, to_apply=add
  q = reduce(x, y, z, n), dimensions={0}, to_apply=two
  w = reduce-window(x, z), window={size=2x3 stride=2x3}, to_apply=add
  s = select-and-scatter(x, w, z), window={size=2x3 stride=2x3}, select=ge, scatter=add
  ROOT m = map(s, x), dimensions={0,1}, to_apply=add
}
""",
        "add: a = parameter(), b = parameter(), *c = add(a b)\n"
        "ge: a = parameter(), b = parameter(), *c = compare(a b)\n"
        "two: a = parameter(), b = parameter(), c = parameter(), d = parameter(), *t = tuple(a d)\n"
        "*e: x = parameter(), y = parameter(), z = constant(), n = constant(), r = reduce(x z), "
        "q = reduce(x y z n), w = reduce-window(x z), s = select-and-scatter(x w z), *m = map(s x)",
    ),
    Case(
        "shapes left out of calls and tokens",
        """HloModule m
neg { a = f32[8] parameter(0) ROOT n = f32[8] negate(a) }
id { ROOT a = f32[8] parameter(0) }
ENTRY e {
  p = pred[] parameter(0)
  x = f32[8] parameter(1)
  c = conditional(p, x, x), true_computation=neg, false_computation=id
  d = call(c), to_apply=neg
  t = after-all()
  u = after-all(t, t)
  f = fft(d), fft_type=RFFT, fft_length={8}
  ROOT y = add-dependency(f, u)
}
""",
        "neg: a = parameter(), *n = negate(a)\nid: *a = parameter()\n"
        "*e: p = parameter(), x = parameter(), c = conditional(p x x), d = call(c), "
        "t = after-all(), u = after-all(t t), f = fft(d), "
        "*y = add-dependency(f u)",
    ),
    Case(
        "shapes left out of scatters, solvers and normalisation",
        """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[4,4] parameter(0)
  i = s32[2,1] parameter(1)
  u = f32[2,4] parameter(2)
  s = scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
  c = cholesky(s), lower=true
  t = triangular-solve(c, s), left_side=true, lower=true, unit_diagonal=false,
    transpose_a=NO_TRANSPOSE
  o = f32[4] parameter(3)
  n = batch-norm-training(t, o, o), epsilon=0.1, feature_index=1
  g = get-tuple-element(n), index=0
  z = s32[] constant(3)
  ROOT d = set-dimension-size(g, z), dimensions={0}
}
""",
        "add: a = parameter(), b = parameter(), *c = add(a b)\n"
        "*e: x = parameter(), i = parameter(), u = parameter(), s = scatter(x i u), "
        "c = cholesky(s), t = triangular-solve(c s), o = parameter(), "
        "n = batch-norm-training(t o o), g = get-tuple-element(n), z = constant(), "
        "*d = set-dimension-size(g z)",
    ),
]

ODD_BUT_READ = [
    Case(
        "one value for an array",
        of_one(
            "  a = f32[2,3] constant(1.5)\n  b = pred[4] constant(true)\n"
            "  ROOT t = (f32[2,3], pred[4]) tuple(a, b)"
        ),
        "*e: a = constant(), b = constant(), *t = tuple(a b)",
    ),
    Case(
        "commas between shapes and operands, and none of any kind",
        of_one(
            "  a = (f32[], f32[]) parameter(0)\n  b = f32[] get-tuple-element((f32[], f32[])%a),"
            " index=1\n  ROOT c = f32[] add(f32[] %b, f32[], %b)"
        ),
        "*e: a = parameter(), b = get-tuple-element(a), *c = add(b b)",
    ),
    Case(
        "comments in the place of spaces",
        of_one(
            '  p /*{*/= f32[8] parameter(0)\n  t = token[] after-all(/*c*/)\n  q /*"*/= f32[8] '
            "add(p, p), sharding={devices=[2]/*,*/<=[2]}\n  ROOT n = f32[8] negate(f32[8]q)"
        ),
        "*e: p = parameter(), t = after-all(), q = add(p p), *n = negate(q)",
    ),
    Case(
        "spaces in shapes, beside numbers",
        of_one("  p = f32[ 64 , 48 ]{ 1 , 0 } parameter(0) ROOT n = f32[64 ,48] negate(p)"),
        "*e: p = parameter(), *n = negate(p)",
    ),
    Case(
        "shapes of transfers, which follow from their operands",
        of_one(
            "  p = f32[8] parameter(0)\n  t = token[] after-all()\n"
            "  s = (f32[2], token[]) send(p, t), channel_id=1\n"
            "  d = (f32[8], token[]) send-done(s), channel_id=1\n"
            "  r = (f32[3], f32[3]) recv(t), channel_id=2\n"
            "  ROOT e = f32[3] recv-done(r), channel_id=2"
        ),
        "*e: p = parameter(), t = after-all(), s = send(p t), d = send-done(s), r = recv(t), "
        "*e = recv-done(r)",
    ),
]

READ = (
    WRITTEN_BY_HAND + ELEMENTS_OF_TUPLES + CALLS + ATTRIBUTES + SHAPES + LITERALS + OPERATIONS
    + INFERRED + ODD_BUT_READ + HEADERS
)  # fmt: skip

# What fusionscope reads and the compiler's parser of jaxlib 0.12 does not, each for a reason that
# docs/hlo.md has.
READ_BY_FUSIONSCOPE_ALONE = [
    Case(
        "attributes that are not known yet",
        "HloModule m, brand_new=1\nENTRY e {\n  p = f32[2] parameter(0), brand_new={1, {x=2}}\n"
        '  ROOT a = f32[2] add(p, p), metadata={op_name="a" brand_new="b"}\n}\n',
        "*e: p = parameter(), *a = add(p p)",
    ),
    Case(
        "a name that is an element type",
        of_one("  s32 = f32[2] parameter(0)\n  ROOT c64 = f32[2] add(s32, s32)"),
        "*e: s32 = parameter(), *c64 = add(s32 s32)",
    ),
]


# Whole files, each of a kind that was once read wrongly.
CASES = sorted((Path(__file__).parent / "cases").glob("*.hlo"))
READ_FILES = [file for file in CASES if not file.name.startswith("refuse_")]


@pytest.mark.parametrize("case", READ + READ_BY_FUSIONSCOPE_ALONE, ids=lambda case: case.name)
def test_it_says_what_it_says(case: Case) -> None:
    module = parse(case.text)
    assert says(module) == case.says
    assert parse(to_text(module)) == module


@pytest.mark.parametrize("case", READ, ids=lambda case: case.name)
def test_the_compiler_reads_the_same(case: Case, oracle: ModuleType) -> None:
    assert list(oracle.differences(case.text)) == []


@pytest.mark.parametrize("case", READ_BY_FUSIONSCOPE_ALONE, ids=lambda case: case.name)
def test_the_compiler_refuses_what_fusionscope_alone_reads(case: Case, oracle: ModuleType) -> None:
    assert oracle.oracle(case.text) is None


@pytest.mark.parametrize("file", READ_FILES, ids=lambda file: file.stem)
def test_a_file_is_read_as_the_compiler_reads_it(file: Path, oracle: ModuleType) -> None:
    assert list(oracle.differences(file.read_text())) == []


@pytest.mark.parametrize("file", READ_FILES, ids=lambda file: file.stem)
def test_a_file_is_read(file: Path) -> None:
    module = parse(file.read_text(), file=str(file))
    assert parse(to_text(module)) == module
