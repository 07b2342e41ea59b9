"""Other texts of an HLO module that say the same in another notation, and attributes that say
something else.

As ``mutations.py``, this knows nothing of how modules are compared. Every function reads a text and
gives one in which each place that allows it is written in another way, as the ``Random`` that is
passed in chooses; it gives None where there is no such place.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from random import Random

from conformance import mutations
from conformance.mutations import Injected
from fusionscope.errors import UnusableInput
from fusionscope.hlo import Instruction, Module, parse
from fusionscope.hlo.attributes import CALLS
from fusionscope.hlo.grammar import grammar_file
from fusionscope.hlo.model import Statement

_ARRAY = re.compile(r"([a-z]\w*\[([^\[\]]*)\])(\{[^{}]*\})?")
_IOTA = r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?"
_COMMUTATIVE = frozenset({"add", "and", "maximum", "minimum", "multiply", "or", "xor"})


def grammar_keys() -> dict[str, tuple[str, ...]]:
    """The keys of attributes that the grammar knows by name, by the name of their terminal."""
    matches = re.findall(
        r"^(\w+_KEY)\.3: /(?:\(\?:)?([^)/]+?)\)?=/$", grammar_file().read_text(), re.M
    )
    return {terminal: tuple(keys.split("|")) for terminal, keys in matches}


# What says the same.


def _changed(text: str, change: Callable[[Statement], Statement]) -> str | None:
    """The text with every statement changed; None where nothing is another one."""
    draft = mutations._Draft(parse(text))
    is_changed = False
    for body in draft.bodies.values():
        statements = [change(statement) for statement in body.statements]
        is_changed = is_changed or statements != body.statements
        body.statements = statements
    return draft.text() if is_changed else None


def _with_attributes(statement: Statement, pieces: dict[str, str]) -> Statement:
    return statement._replace(attributes="".join(pieces.values()))


def default_layouts(text: str, random: Random) -> str | None:
    """A default layout is left out, or written where there is none; in tuples, too."""

    def other(array: re.Match[str]) -> str:
        bare, dimensions, layout = array.groups()
        rank = len(dimensions.split(",")) if dimensions else 0
        usual = "{" + ",".join(str(n) for n in reversed(range(rank))) + "}" if rank else ""
        if random.random() < 0.5 or (layout or usual) != usual:
            return array[0]
        return bare + (usual if layout is None else "")

    return _changed(text, lambda s: s._replace(shape=_ARRAY.sub(other, s.shape)))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _in_order(sizes: list[int], order: list[int]) -> list[int]:
    """The numbers of a transposed iota, element by element."""
    elements = []
    for place in product(*(range(sizes[dimension]) for dimension in order)):
        number = 0
        for dimension, size in enumerate(sizes):
            number = number * size + place[order.index(dimension)]
        elements.append(number)
    return elements


def _lists(numbers: list[int], size: int) -> str:
    groups = [numbers[start : start + size] for start in range(0, len(numbers), size)]
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


def replica_groups(text: str, random: Random) -> str | None:
    """Groups as explicit lists, as an iota, and along the axes of a mesh."""

    def other(value: str) -> str:
        if iota := re.fullmatch(_IOTA, value):
            sizes = _numbers(iota[2])
            order = _numbers(iota[3]) if iota[3] else [*range(len(sizes))]
            return _lists(_in_order(sizes, order), _numbers(iota[1])[1])
        if mesh := re.fullmatch(r"mesh\[([^\]]*)\] \{('[^',]*')\}", value):
            axes = [axis.split("=") for axis in mesh[1].split(",")]
            names, sizes = [name for name, _ in axes], [int(size) for _, size in axes]
            along = names.index(mesh[2])
            order = [n for n in range(len(names)) if n != along] + [along]
            groups = [len(_in_order(sizes, order)) // sizes[along], sizes[along]]
            if random.random() < 0.5:
                return _lists(_in_order(sizes, order), sizes[along])
            turned = f"T({','.join(map(str, order))})" if order != sorted(order) else ""
            listed = ",".join(map(str, sizes)) if turned else str(groups[0] * groups[1])
            return f"[{groups[0]},{groups[1]}]<=[{listed}]{turned}"
        if re.fullmatch(r"\{\{[\d,]+\}(,\{[\d,]+\})*\}", value):
            groups = [_numbers(group) for group in re.findall(r"\{([\d,]+)\}", value)]
            flat = [number for group in groups for number in group]
            if flat == [*range(len(flat))]:
                if random.random() < 0.5 and len(groups[0]) > 1:
                    return f"mesh['a'={len(groups)},'b'={len(groups[0])}] {{'b'}}"
                return f"[{len(groups)},{len(groups[0])}]<=[{len(flat)}]"
        return value

    def change(statement: Statement) -> Statement:
        pieces = mutations._attributes(statement)
        if "replica_groups" in pieces:
            value = pieces["replica_groups"].partition("=")[2].strip()
            pieces["replica_groups"] = f", replica_groups={other(value)}"
        return _with_attributes(statement, pieces)

    return _changed(text, change)


def listed_sharding(text: str, random: Random) -> str | None:
    """Every device of a sharding written out."""

    def lists(iota: re.Match[str]) -> str:
        sizes = _numbers(iota[2])
        order = _numbers(iota[3]) if iota[3] else [*range(len(sizes))]
        return f"[{iota[1]}]{','.join(map(str, _in_order(sizes, order)))}"

    def change(statement: Statement) -> Statement:
        pieces = mutations._attributes(statement)
        if "sharding" in pieces:
            pieces["sharding"] = re.sub(_IOTA, lists, pieces["sharding"])
        return _with_attributes(statement, pieces)

    return _changed(text, change)


def sharding_of_a_mesh(text: str, random: Random) -> str | None:
    """Shardings by the axes of a mesh, and metadata in them that mean nothing."""

    def other(tiles: re.Match[str]) -> str:
        sizes, whole = _numbers(tiles[1]), tiles[2]
        if len(_in_order(sizes, [*range(len(sizes))])) != int(whole):
            return tiles[0]
        data = sizes[:-1] if tiles[3] else sizes
        axes = ",".join(f"'a{number}'={size}" for number, size in enumerate(sizes))
        places = ", ".join(f"{{'a{number}'}}" for number in range(len(data)))
        return f"{{mesh[{axes}], [{places}]}}"

    def change(statement: Statement) -> Statement:
        pieces = mutations._attributes(statement)
        if "sharding" in pieces:
            value = re.sub(
                r"\{devices=\[([\d,]+)\]<=\[(\d+)\]( last_tile_dim_replicate)?\}",
                other,
                pieces["sharding"],
            )
            note = ' metadata={op_type="t" op_name="n"}}'
            pieces["sharding"] = re.sub(r"(?<=\{replicated)\}", note, value)
        return _with_attributes(statement, pieces)

    return _changed(text, change)


def numbers_spelled_otherwise(text: str, random: Random) -> str | None:
    """Floating-point literals with all of their digits, and truth as a number."""

    def change(statement: Statement) -> Statement:
        if statement.opcode != "constant" or "..." in statement.inside:
            return statement
        inside = statement.inside
        if statement.shape.startswith("pred"):
            inside = inside.replace("true", "1").replace("false", "0")
        elif statement.shape.startswith(("f", "bf")):
            number = re.compile(r"(?<![\w.(+\-])-?\d+(?:\.\d*)?(?:e[+\-]?\d+)?(?![\w.])")
            inside = number.sub(lambda number_found: f"{float(number_found[0]):.20e}", inside)
        return statement._replace(inside=inside)

    return _changed(text, change)


def constants_elided(text: str, random: Random) -> str | None:
    """Constants whose values are omitted, where no other one has the same shape."""
    module = parse(text)
    shapes = Counter(
        mutations._without_layouts(i.statement.shape) for i in module.walk() if i.literal
    )

    def change(statement: Statement) -> Statement:
        shape = mutations._without_layouts(statement.shape)
        if statement.opcode == "constant" and "[]" not in shape and shapes[shape] == 1:
            return statement._replace(inside="{...}")
        return statement

    return _changed(text, change)


def usual_properties(text: str, random: Random) -> str | None:
    """Layouts that name the memory space and the alignment that hold without it."""

    def other(array: re.Match[str]) -> str:
        bare, _, layout = array.groups()
        if not layout or ":" in layout or random.random() < 0.5:
            return array[0]
        return f"{bare}{layout[:-1]}:{random.choice(('S(0)', 'L(1)', 'L(1)S(0)', ''))}}}"

    return _changed(text, lambda s: s._replace(shape=_ARRAY.sub(other, s.shape)))


def dimensions_written_out(text: str, random: Random) -> str | None:
    """Windows, slices and paddings with the strides, dilations and paddings that they have."""

    def window(value: str) -> str:
        fields = dict(re.findall(r"(\w+)=([\w\-]+)", value))
        rank = fields.get("size", "").count("x") + 1
        usual = {"stride": "1", "lhs_dilate": "1", "rhs_dilate": "1", "pad": "0_0"}
        fields_written = {
            key: "x".join([default] * rank) for key, default in usual.items()
        } | fields
        order = random.sample([*fields_written], len(fields_written))
        return f"{{{' '.join(f'{key}={fields_written[key]}' for key in order)}}}"

    def change(statement: Statement) -> Statement:
        pieces = mutations._attributes(statement)
        for key, write in (
            ("window", window),
            ("slice", lambda value: re.sub(r"\[(\d+):(\d+)\]", r"[\1:\2:1]", value)),
            ("padding", lambda value: re.sub(r"\b(-?\d+)_(-?\d+)(?=x|$)", r"\1_\2_0", value)),
        ):
            if key in pieces and not (key == "padding" and statement.opcode != "pad"):
                value = pieces[key].partition("=")[2].strip()
                if not (key == "padding" and re.search(r"\d_-?\d+_\d", value)):
                    pieces[key] = f", {key}={write(value)}"
        return _with_attributes(statement, pieces)

    return _changed(text, change)


def header_written_out(text: str, random: Random) -> str | None:
    """A header that says what holds without it, and leaves out that aliases are optional."""
    line, body = text.split("\n", 1)
    header = line.replace(", may-alias)", ")")
    for key, value in (
        ("allow_spmd_sharding_propagation_to_output", "{false}"),
        ("allow_spmd_sharding_propagation_to_parameters", "{false}"),
        ("replica_count", "1"),
        ("num_partitions", "1"),
    ):
        if f" {key}=" not in header:
            header += f", {key}={value}"
    return f"{header}\n{body}"


def computation_apart(text: str, random: Random) -> str | None:
    """One of the callers that share a computation calls an equal one of its own."""
    module = parse(text)
    callers = [
        (caller, callee)
        for computation in module.computations
        for caller in computation.instructions
        for callee in caller.called
        if sum(callee.name in i.statement.calls for i in module.walk()) > 1
        and "channel_id=" not in "".join(i.statement.attributes for i in callee.instructions)
    ]
    if not callers:
        return None
    caller, callee = random.choice(callers)
    draft = mutations._Draft(module)
    body = draft.bodies[callee.name]
    name = draft.fresh(callee.name)
    names = {s.name: draft.fresh(s.name) for s in body.statements}
    copies = [mutations._naming(mutations._named(s, names), {}, names) for s in body.statements]
    draft.put(name, mutations._Body(copies, names[body.root], body.footer), caller.computation.name)
    draft.replace(caller, mutations._naming(caller.statement, {callee.name: name}, {}))
    return draft.text()


def commutative_swapped(text: str, random: Random) -> str | None:
    """Operations that do not care for the order of their two operands read them swapped."""

    def change(statement: Statement) -> Statement:
        is_equality = statement.opcode == "compare" and re.search(
            r"direction=(EQ|NE)", statement.attributes
        )
        operands = statement.operands
        is_commutative = statement.opcode in _COMMUTATIVE or is_equality
        if is_commutative and len(operands) == 2 and random.random() < 0.5:
            return mutations._with_operands(statement, operands[::-1])
        return statement

    return _changed(text, change)


def attributes_in_another_order(text: str, random: Random) -> str | None:
    def change(statement: Statement) -> Statement:
        pieces = [*mutations._attributes(statement).items()]
        random.shuffle(pieces)
        return _with_attributes(statement, dict(pieces))

    return _changed(text, change)


def fields_in_another_order(text: str, random: Random) -> str | None:
    """JSON with its fields in another order."""

    def change(statement: Statement) -> Statement:
        pieces = mutations._attributes(statement)
        value = pieces.get("backend_config", "").partition("=")[2].strip()
        if value.startswith('{"'):
            fields = [*json.loads(value).items()]
            random.shuffle(fields)
            json_text = json.dumps(dict(fields))
            if random.random() < 0.5:
                json_text = f"{{ {json_text[1:]}"
            pieces["backend_config"] = f", backend_config={json_text}"
        return _with_attributes(statement, pieces)

    return _changed(text, change)


def channels_renumbered(text: str, random: Random) -> str | None:
    offset = random.randrange(1, 1000)
    return _changed(
        text,
        lambda s: s._replace(
            attributes=re.sub(
                r"channel_id=(\d+)", lambda n: f"channel_id={int(n[1]) + offset}", s.attributes
            )
        ),
    )


def usual_written_out(text: str, random: Random) -> str | None:
    """Attributes that say what holds without them, too."""

    def change(statement: Statement) -> Statement:
        more = {
            "all-reduce": "use_global_device_ids=false",
            "convolution": "feature_group_count=1",
            "custom-call": "custom_call_has_side_effect=false",
            "dot": "operand_precision={default,default}",
            "gather": "indices_are_sorted=false",
            "scatter": "unique_indices=false",
            "sort": "is_stable=false",
        }.get(statement.opcode)
        if more is None or more.partition("=")[0] in mutations._attributes(statement):
            return statement
        return statement._replace(attributes=f"{statement.attributes}, {more}")

    return _changed(text, change)


def typed_operands(text: str, random: Random) -> str | None:
    """Operands with their shapes, as the compiler also prints them, and comments between them."""
    draft = mutations._Draft(parse(text))
    for body in draft.bodies.values():
        shapes = {s.name: s.shape for s in body.statements}
        for index, statement in enumerate(body.statements):
            if statement.operands and all(name in shapes for name in statement.operands):
                inside = ", ".join(f"{shapes[name]} %{name}" for name in statement.operands)
                body.statements[index] = statement._replace(inside=f"/*first*/{inside}")
    return draft.text()


def short_elements(text: str, random: Random) -> str | None:
    """Elements of tuples as ``%tuple#1``: those that stand in no other attribute's list and are no
    root."""
    draft = mutations._Draft(parse(text))
    is_changed = False
    for body in draft.bodies.values():
        waited = {name for s in body.statements for name in mutations._waits_for(s)}
        short: dict[str, str] = {}
        statements_kept: list[Statement] = []
        elements_taken: set[str] = set()
        for statement in body.statements:
            index = re.fullmatch(r", index=(\d+)", statement.attributes.split(", metadata=")[0])
            statement = mutations._reading(statement, short)
            if (
                statement.opcode == "get-tuple-element"
                and index
                and statement.name != body.root
                and statement.name not in waited
                and (element := f"{statement.operands[0]}#{index[1]}") not in elements_taken
                and any(statement.name in reader.operands for reader in body.statements)
            ):
                short[statement.name] = element
                elements_taken.add(element)
            else:
                statements_kept.append(statement)
        is_changed = is_changed or bool(short)
        body.statements = statements_kept
    return draft.text() if is_changed else None


def notes_changed(text: str, random: Random) -> str | None:
    """Other names and lines of the user's program."""

    def change(statement: Statement) -> Statement:
        pieces = mutations._attributes(statement)
        number = random.randrange(1000)
        pieces["metadata"] = f', metadata={{op_name="other/{number}" source_line={number}}}'
        return _with_attributes(statement, pieces)

    return _changed(text, change)


HARMLESS = (
    default_layouts,
    replica_groups,
    listed_sharding,
    sharding_of_a_mesh,
    numbers_spelled_otherwise,
    constants_elided,
    usual_properties,
    dimensions_written_out,
    header_written_out,
    computation_apart,
    commutative_swapped,
    attributes_in_another_order,
    fields_in_another_order,
    channels_renumbered,
    usual_written_out,
    typed_operands,
    short_elements,
    notes_changed,
)


# What says something else.


def element_changed(text: str, random: Random) -> Injected | None:
    """Another element of the same shape is read. Names: the element, and its readers."""
    module = parse(text)
    values = mutations._values(module)
    places = []
    for instruction in mutations._live(module):
        if instruction.opcode == "get-tuple-element":
            (whole,) = instruction.operands
            old_index = instruction.attribute("index")
            producer = whole.called[0].root if whole.opcode == "fusion" else whole
            value_numbers = (
                [values[operand] for operand in producer.operands]
                if producer.opcode == "tuple"
                else None
            )
            other_indices = [
                index
                for index, shape in enumerate(whole.shape.elements)
                if index != old_index
                and shape == whole.shape.elements[old_index]
                and (value_numbers is None or value_numbers[index] != value_numbers[old_index])
            ]
            if other_indices:
                places.append((instruction, other_indices))
    if not places:
        return None
    choice, other_indices = random.choice(places)
    index = random.choice(other_indices)
    draft = mutations._Draft(module)
    attributes = re.sub(r"\bindex=\d+", f"index={index}", choice.statement.attributes)
    if "#" in choice.name:  # a short element has no statement: its readers name it
        body = draft.bodies[choice.computation.name]
        short_name = f"{choice.operands[0].name}#{index}"
        body.statements = [
            mutations._reading(s, {choice.name: short_name}) for s in body.statements
        ]
        body.statements = [
            mutations._with_operands(
                s, [short_name if name == choice.name else name for name in s.operands]
            )
            if choice.name in s.operands
            else s
            for s in body.statements
        ]
    else:
        draft.replace(choice, choice.statement._replace(attributes=attributes))
    what = f"{choice.name} of {choice.computation.name} is element {index}"
    names = tuple(reader.name for reader in _readers(module, [choice]))
    return Injected(draft.text(), what, names, names)


def _readers(module: Module, pending: list[Instruction]) -> dict[Instruction, None]:
    """The instructions themselves, and what reads their values: through tuples, fusions, calls."""
    readers: dict[Instruction, None] = {}
    while pending:
        reader = pending.pop()
        if reader in readers:
            continue
        readers[reader] = None
        for callee in reader.called:
            readers.update(
                (user, None) for parameter in callee.parameters for user in parameter.users
            )
        if reader.opcode in ("call", "copy", "fusion", "get-tuple-element", "tuple"):
            pending += reader.users
        if reader.is_root:
            pending += [
                instruction
                for instruction in module.walk()
                if reader.computation in instruction.called
            ]
    return readers


def root_changed(text: str, random: Random) -> Injected | None:
    """Another instruction of the same shape is the root. Names: the old one, the new one."""
    module = parse(text)
    values = mutations._values(module)
    live = {instruction.computation for instruction in mutations._live(module)}
    places = [
        instruction
        for computation in module.computations
        if computation in live
        for instruction in computation.instructions
        if instruction.statement.shape == computation.root.statement.shape
        and values[instruction] != values[computation.root]
        and "#" not in instruction.name
    ]
    if not places:
        return None
    choice = random.choice(places)
    computation = choice.computation
    draft = mutations._Draft(module)
    draft.bodies[computation.name].root = choice.name
    what = f"{choice.name} is the root of {computation.name}, was {computation.root.name}"
    instructions_told = dict.fromkeys((computation.root, choice))
    for root in (computation.root, choice):  # what gives the elements of a tuple
        gives = [*root.operands, *(callee.root for callee in root.called)]
        instructions_told.update(
            (element, None) for source in gives for element in (source, *source.operands)
        )
    instructions_told |= _readers(
        module, [instruction for instruction in module.walk() if computation in instruction.called]
    )
    names = tuple(root.name for root in instructions_told)
    return Injected(draft.text(), what, names, names)


def sharding_changed(text: str, random: Random) -> Injected | None:
    """A parameter of the entry, or another instruction of it, is distributed in another way."""
    module = parse(text)
    places = [
        parameter
        for parameter in (
            module.entry.parameters if random.random() < 0.5 else module.entry.instructions
        )
        if "#" not in parameter.name
    ]
    if not places:
        return None
    choice = random.choice(places)
    pieces = mutations._attributes(choice.statement)
    shardings = [
        "{manual}",
        "{maximal device=0}",
        "{maximal device=1}",
        *(
            f'{{unreduced metadata={{op_type="sdy::reduction_op" op_name="{name}"}}}}'
            for name in ("MAX", "MIN")
        ),
    ]
    value = random.choice([o for o in shardings if o[1:-1] not in pieces.get("sharding", "")])
    pieces["sharding"] = f", sharding={value}"
    return _attribute_injected(module, choice, "sharding", pieces)


def _attribute_injected(
    module: Module, instruction: Instruction, key: str, pieces: dict[str, str]
) -> Injected:
    draft = mutations._Draft(module)
    draft.replace(instruction, _with_attributes(instruction.statement, pieces))
    place = f"{instruction.name} of {instruction.computation.name}"
    what = f"{key} of {place} is {pieces[key].strip(', ')}"
    return Injected(draft.text(), what, (instruction.name,), (instruction.name,))


def changeable_keys(text: str) -> list[str]:
    """Keys of attributes of instructions that the result depends on, and that say something."""
    keys: dict[str, None] = {}
    for instruction in mutations._live(parse(text)):
        if "#" not in instruction.name:
            keys.update(dict.fromkeys(mutations._attributes(instruction.statement)))
    left_out = CALLS | {"index", "metadata", "origin", "sharding", "statistics"}
    return [key for key in keys if key not in left_out]


def attribute_changed(text: str, random: Random, key: str) -> Injected | None:
    """An attribute of one instruction says something else. Names: the instruction."""
    module = parse(text)
    fused = {
        fusion for fusion in mutations._live(module) if fusion.computation.name != module.entry.name
    }
    places = []
    for instruction in mutations._live(module):
        if "#" in instruction.name:
            continue
        pieces = mutations._attributes(instruction.statement)
        if key in pieces and not (key == "kind" and instruction in fused):
            value = pieces[key].partition("=")[2].strip()
            other_values = [o for o in _other_values(key, value, instruction) if o != value]
            places += [(instruction, pieces, other_value) for other_value in other_values]
    random.shuffle(places)
    for choice, pieces, other_value in places[:_MOST_TRIED]:
        changed = {**pieces, key: f", {key}={other_value}" if other_value else ""}
        injected = _attribute_injected(module, choice, key, changed)
        try:
            parse(injected.text)
        except UnusableInput:  # no value that it could have
            continue
        return injected
    return None


_MOST_TRIED = 10


_WORDS = {
    "api_version": ("API_VERSION_STATUS_RETURNING", "API_VERSION_TYPED_FFI"),
    "direction": ("EQ", "NE", "LT", "GT", "LE", "GE"),
    "distribution": ("rng_uniform", "rng_normal"),
    "fft_type": ("FFT", "IFFT", "RFFT", "IRFFT"),
    "kind": ("kLoop", "kInput"),
    "operand_precision": ("{high,high}", "{highest,default}"),
    "algorithm": ("dot_tf32_tf32_f32", "dot_bf16_bf16_f32", "rng_philox", "rng_three_fry"),
}


def _other_values(key: str, value: str, instruction: Instruction) -> Iterator[str]:
    """Other values that the attribute could have; an empty one leaves it out."""
    terminal = next((t for t, keys in grammar_keys().items() if key in keys), "KEY")
    if key in _WORDS:
        yield from _WORDS[key]
    elif key == "channel_id" or key == "control-predecessors":
        yield ""
    elif key == "backend_config" and value.startswith('{"'):
        yield json.dumps({**json.loads(value), "another_field": "1"})
    elif key == "frontend_attributes":
        yield value[:-1] + (',another="1"}' if len(value) > 2 else 'another="1"}')
    elif key == "replica_groups":
        yield "{}"
    elif terminal == "FLAG_KEY":
        yield "false" if value == "true" else "true"
    elif terminal == "INTEGER_KEY":
        yield str(int(value) + 1)
    elif terminal == "STRING_KEY" or value.startswith('"'):
        yield value[:-1] + "_another" + value[-1]
    elif terminal == "INTEGERS_KEY":
        numbers = [int(number) for number in re.findall(r"\d+", value)]
        if len({*numbers}) > 1 and key not in ("fft_length", "dynamic_slice_sizes"):
            yield "{" + ",".join(map(str, numbers[::-1])) + "}"
        elif len(numbers) == 1:
            yield "{" + str(numbers[0] + 1 if numbers[0] == 0 else numbers[0] - 1) + "}"
    else:
        for digit in re.finditer(r"(?<![\w.])\d+(?![\w.])", value):
            yield value[: digit.start()] + str(int(digit[0]) + 1) + value[digit.end() :]


def computation_exchanged(text: str, random: Random) -> Injected | None:
    """Another computation of the same type is called. Names: the caller."""
    module = parse(text)
    values = mutations._numbers(module, {})
    signatures = {
        c: (tuple(p.statement.shape for p in c.parameters), c.root.statement.shape)
        for c in module.computations
    }
    places = [
        (caller, callee, replacement)
        for caller in mutations._live(module)
        if caller.opcode not in ("fusion", "call", "async-start")
        for callee in caller.called
        for replacement in module.computations
        if signatures[replacement] == signatures[callee]
        and values[replacement.root] != values[callee.root]
        and replacement not in caller.called
        and module.computations.index(replacement) < module.computations.index(caller.computation)
    ]
    if not places:
        return None
    caller, callee, replacement = random.choice(places)
    draft = mutations._Draft(module)
    draft.replace(caller, mutations._naming(caller.statement, {callee.name: replacement.name}, {}))
    what = f"{caller.name} calls {replacement.name}, not {callee.name}"
    names = (caller.name, *(i.name for c in (callee, replacement) for i in c.instructions))
    return Injected(draft.text(), what, names, names)


def header_changed(text: str, random: Random) -> tuple[str, str]:
    """The header says something else: the text, and the key that differs."""
    line, body = text.split("\n", 1)
    key = random.choice(("num_partitions", "replica_count", "is_scheduled", "buffer_donor"))
    values = {
        "num_partitions": "16",
        "replica_count": "16",
        "buffer_donor": "{ (0, {}) }",
        "is_scheduled": "false" if "is_scheduled=true" in line else "true",
    }
    line = re.sub(rf", {key}=(\{{(?:[^{{}}]|\{{[^}}]*\}})*\}}|[^,]*)", "", line)
    return f"{line}, {key}={values[key]}\n{body}", key


CHANGES = (element_changed, root_changed, sharding_changed, computation_exchanged)
