"""Makes one file that can be attached to a report: what the compiler did, and how to repeat it."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from fusionscope.advise.suggest import suggester
from fusionscope.bundle.issue import issue_text, reproducer
from fusionscope.bundle.names import plain_names
from fusionscope.bundle.redaction import MODULE, Redaction
from fusionscope.bundle.side_files import device_text, flags_text, plain_flags, record_text
from fusionscope.dump import Dump, DumpedModule, Stage, open_dump
from fusionscope.dump.names import Role, tpu_build
from fusionscope.dump.stage import BEFORE_OPTIMIZATIONS
from fusionscope.dump.text_proto import Message, parse
from fusionscope.errors import UnusableInput, quoted
from fusionscope.explain.modules import rank_modules
from fusionscope.explain.selection import Selection
from fusionscope.hlo import Module
from fusionscope.page.report_facts import ReportFacts, report_facts
from fusionscope.progress import Progress, counted, silent
from fusionscope.report.html.page import report_page
from fusionscope.system.files import make_directory, write_file
from fusionscope.system.roots import Roots
from fusionscope.words.text import plural, size

_LABEL = re.compile(r"[\w.\-]{1,200}")
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest of a zip
_FOLDER, _TARGET = "dump", "device.txtpb"
# The side files that are in it, by the ends of their names.
_SIDE = {
    Role.PRIORITY_FUSION: "priority_fusion_dump.txt",
    Role.DEVICE: "gpu_target_config.pbtxt",
    Role.TPU_TARGET: "target_arguments.txt",
    Role.FLAGS: "debug_options",
}
_ABOUT = {
    "ISSUE.md": "a text for the report: fill in what you expected",
    "report.html": "the page about the dump",
    "before.hlo": "the program before optimizations",
    "after.hlo": "the program after optimizations",
    "reproduce.sh": "compiles it again, and compares",
    _TARGET: "the GPU that it was compiled for",
}


@dataclass(frozen=True, slots=True)
class Bundle:
    """``files`` are the contents by their names in the bundle. ``left_out`` counts, by kind, what
    of the dump is not in it, or only with other names and numbers.
    """

    files: Mapping[str, str]
    left_out: Mapping[str, int]

    @property
    def contents(self) -> Iterator[str]:
        """Lines on what is in it, and on what is not."""
        stages = [name for name in self.files if name.startswith(_FOLDER)]
        for name, text in self.files.items():
            if name not in stages:
                yield f"{size(len(text.encode())):>8}  {name}  {_ABOUT[name]}"
        total = size(sum(len(self.files[name].encode()) for name in stages))
        yield f"{total:>8}  {_FOLDER}/  {plural(len(stages), 'file')} that explain reads"
        for what, count in sorted(self.left_out.items()):
            yield f"left out or replaced: {count:,} x {what}"

    @property
    def data(self) -> bytes:
        """The files as a zip, the same for equal files."""
        stream = BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in self.files.items():
                archive.writestr(
                    zipfile.ZipInfo(name, _DATE), text, compress_type=zipfile.ZIP_DEFLATED
                )
        return stream.getvalue()


def make_bundle(dump: Dump, name: str | None = None, progress: Progress = silent) -> Bundle:
    """Return a bundle about the costliest module of ``dump``, or the one that ``name`` (a glob, or
    a number) names. Everything in it is made from the module without names, paths and constants.

    Raises ``UnusableInput`` if no module can be read, or a link leads out of the dump.
    """
    if dump.path.is_dir():
        Roots.read([dump.path]).find(".")
    ranked, problems = rank_modules(dump, name, progress=progress)
    if not ranked:
        raise UnusableInput(problems[0])
    module = ranked[0]
    files, left_out = _redacted(module, progress)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve() / _FOLDER
        make_directory(folder)
        for file_name, text in files.items():
            write_file(folder / file_name, text)
        facts = _facts(folder, progress)
    progress("writing the page")
    prefix = _prefix(module)
    device = files.get(f"{prefix}.{_SIDE[Role.DEVICE]}")
    flags = files.get(f"{prefix}.{_SIDE[Role.FLAGS]}", "")
    target = _TARGET if device is not None else f"tpu:{module.tpu.topology}" if module.tpu else ""
    top = {
        "ISSUE.md": issue_text(facts.explanation),
        "report.html": report_page(facts),
        "before.hlo": files[_name_of(module.stages[0], prefix)],
        "after.hlo": files[_name_of(module.last, prefix)],
        "reproduce.sh": reproducer(flags, target),
    }
    if device is not None:
        top[_TARGET] = device
    in_folder = {f"{_FOLDER}/{file_name}": text for file_name, text in files.items()}
    return Bundle({**top, **in_folder}, left_out)


def _facts(folder: Path, progress: Progress) -> ReportFacts:
    """Return what the page shows about the dump in ``folder``, without the path of that."""
    selection = Selection(compiler="none")
    facts = report_facts(
        replace(open_dump(folder), path=Path(_FOLDER)),
        selection,
        folder / "no-sources",
        suggest=suggester(selection),
        progress=progress,
    )

    def relative(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(text.replace(str(folder), _FOLDER) for text in texts)

    explanation = facts.explanation
    modules = (replace(module, notes=relative(module.notes)) for module in explanation.modules)
    return replace(
        facts,
        explanation=replace(
            explanation, modules=tuple(modules), problems=relative(explanation.problems)
        ),
        problems=relative(facts.problems),
    )


def _redacted(module: DumpedModule, progress: Progress) -> tuple[dict[str, str], dict[str, int]]:
    """Return the files of a dump without what is only the user's, and counts of that."""
    prefix = _prefix(module)
    modules: dict[str, Module] = {}
    for stage in counted(module.stages, "reading stage", progress):
        modules[_name_of(stage, prefix)] = module.read(stage)
    redaction = Redaction(plain_names(modules.values()))
    files = {name: redaction.module(read) for name, read in modules.items()}
    before = files[_name_of(module.pre_fusion or module.stages[0], prefix)]
    for role in (Role.DEVICE, Role.TPU_TARGET, Role.PRIORITY_FUSION):
        if (message := _message(module, role)) is not None:
            is_record = role is Role.PRIORITY_FUSION
            text = record_text(message, before, redaction) if is_record else device_text(message)
            files[f"{prefix}.{_SIDE[role]}"] = text
    if module.flags is not None:
        text = flags_text(plain_flags(module.flags, redaction))
        files[f"{prefix}.{_SIDE[Role.FLAGS]}"] = text
    left_out = Counter({what: count for what, count in redaction.left_out.items() if count})
    left_out["name"] = sum(old != new for old, new in redaction.names.items())
    for role, role_files in module.files.items():
        if role not in _SIDE:
            left_out[f"file: {role.value}"] = len(role_files)
    return files, left_out


def _prefix(module: DumpedModule) -> str:
    build = tpu_build(module.name)
    return f"module_0001.{MODULE}" + (f".cl_{build}" if build is not None else "")


def _name_of(stage: Stage, prefix: str) -> str:
    """Return the name of the file of a stage. Raises ``UnusableInput`` for one that XLA does not
    give.
    """
    label, counter = stage.label, stage.name.counter
    if label == stage.file.name:  # one file alone
        label = BEFORE_OPTIMIZATIONS
    if not _LABEL.fullmatch(label):
        raise UnusableInput(f"{quoted(label)} is no name of a stage", file=str(stage.file))
    return f"{prefix}.{label}.txt" if counter is None else f"{prefix}.{counter:04}.{label}.txt"


def _message(module: DumpedModule, role: Role) -> Message | None:
    for file in module.files.get(role, ())[:1]:
        return parse(file.read(), str(file))
    return None
