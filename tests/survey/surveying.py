"""What the tests of surveys share: a survey in this process, and the rows that it leaves."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fusionscope.survey.engines import Processes
from fusionscope.survey.questions import connected
from fusionscope.survey.store import open_store
from fusionscope.survey.survey import Options, Surveyed, survey
from fusionscope.survey.tables import TABLES

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
FEW = (
    "cpu/concatenate",
    "cpu/loop",
    "h100/softmax",
    "h100-jaxlib-0.10/softmax",
    "tpu-v5e/concatenate",
)


def run(
    paths: Sequence[object], into: Path, *, jobs: int = 1, resumes: bool = False, **options: Any
) -> Surveyed:
    return survey(map(str, paths), into, Processes(jobs), Options(**options), resumes=resumes)


def rows(directory: Path, question: str, *values: object) -> list[tuple[Any, ...]]:
    with connected(open_store(directory)) as tables:
        return list(tables.ask(question, values).rows)


def everything(directory: Path) -> dict[str, list[str]]:
    """All rows of all tables as they are stored, in no order."""
    return {name: sorted(map(repr, rows(directory, f"FROM once.{name}"))) for name in TABLES}


def copies(dump: Path, into: Path, hosts: int) -> Iterator[Path]:
    """The same dump as several hosts write it: the flags name the place."""
    for host in range(hosts):
        local = into / f"host-{host}"
        local.mkdir(parents=True)
        for file in dump.iterdir():
            data = file.read_bytes()
            if file.name.endswith("debug_options"):
                data = b'xla_dump_to: "/host/%d"\n' % host + data
            (local / file.name).write_bytes(data)
        yield local
