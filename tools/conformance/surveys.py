"""Surveys a fleet in an object store by one process, by two, and by two workers of Dask; kills a
run and resumes it; and compares the tables with each other and with `explain`.

    python tools/conformance/surveys.py fleet DUMPS... --work DIR [--most-bytes N] [--hosts N]
    python tools/conformance/surveys.py questions DIR/one --pairs 10000000 --work DIR

The first needs `pip install 'moto[server]' s3fs` beside the extras `survey` and `dask`: the object
store is moto's server on this machine. DUMPS are folders, in which every folder with dump files is
uploaded: as a folder, or as an archive of each kind by turns. Damaged archives, damaged dumps, and
copies of one dump as of many hosts are added. The second repeats the rows of a survey until there
are that many pairs, and asks the questions of docs/survey.md.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow
import pyarrow.compute
import pyarrow.parquet

from fusionscope.dump.names import read_name
from fusionscope.survey.questions import connected
from fusionscope.survey.store import open_store
from fusionscope.survey.tables import TABLES

ROOT = Path(__file__).resolve().parents[2]
PORT, SCHEDULER = 5555, 8899
ENVIRONMENT = os.environ | {
    "AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}",
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
COMMAND = [sys.executable, "-m", "fusionscope", "survey"]
BUCKET = "s3://fleet"
KINDS = ("folder", ".tar.gz", ".zip", ".tar.zst")
DAYS = ("2026-11-21", "2026-11-22", "2026-11-23", "2026-11-24")
COMPARED = 50  # dumps whose tables are compared with `explain`
DAMAGED = 10


def find_dumps(roots: list[Path], most_bytes: int) -> Iterator[Path]:
    """Each folder that directly holds stages, if its dump files are not too large."""
    for root in roots:
        for folder, _, names in sorted(os.walk(root)):
            own = [name for name in names if read_name(name.removesuffix(".gz"))]
            total = sum(Path(folder, name).stat().st_size for name in own)
            if any("before_optimizations" in name for name in own) and total < most_bytes:
                yield Path(folder)


def files_of(dump: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(dump.iterdir())
        if path.is_file() and read_name(path.name.removesuffix(".gz"))
    }


def packed(files: dict[str, bytes], kind: str) -> bytes:
    """An archive of one folder."""
    buffer = io.BytesIO()
    if kind == ".zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    if kind == ".tar.gz":
        return gzip.compress(buffer.getvalue(), 1)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(buffer.getvalue())
    return sink.getvalue().to_pybytes()


def damaged(files: dict[str, bytes], draw: random.Random) -> dict[str, bytes]:
    """A dump whose final stage, or a file about its memory, is cut, filled with noise, or empty."""
    finals = sorted(name for name in files if "after_optimizations" in name)
    name = draw.choice(finals or sorted(files))
    content = files[name]
    cut = content[: draw.randrange(len(content) // 2)]
    return files | {name: draw.choice((cut, draw.randbytes(len(content)), b""))}


def upload(dumps: list[Path], hosts: int) -> dict[str, Path]:
    """Fill the store. Returns the addresses of the dumps that are neither damaged nor copies."""
    import s3fs

    store = s3fs.S3FileSystem()
    store.mkdir("fleet")
    draw = random.Random(7)
    whole: dict[str, Path] = {}
    for number, dump in enumerate(dumps):
        files = files_of(dump)
        kind = KINDS[0 if number % 40 == 0 else 1 + number % 3]  # a folder is many requests
        place = f"fleet/{DAYS[day_of(dump)]}/job-{number:04}"
        if kind == "folder":
            store.pipe({f"{place}/{name}": content for name, content in files.items()})
        else:
            place += kind
            store.pipe(place, packed(files, kind))
        whole[f"s3://{place}"] = dump
    first = files_of(dumps[0])
    for host in range(hosts):
        own = {
            name: re.sub(rb"xla_dump_to: .*", b'xla_dump_to: "/host/%d"' % host, content)
            for name, content in first.items()
        }
        store.pipe(f"fleet/{DAYS[-1]}/hosts/host-{host:04}.tar.gz", packed(own, ".tar.gz"))
    for number in range(DAMAGED):
        files = damaged(files_of(dumps[(number * 37 + 11) % len(dumps)]), draw)
        store.pipe(f"fleet/{DAYS[-1]}/damaged-{number}.zip", packed(files, ".zip"))
    archive = packed(first, ".tar.gz")
    store.pipe(f"fleet/{DAYS[-1]}/cut.tar.gz", archive[: len(archive) // 2])
    store.pipe(f"fleet/{DAYS[-1]}/noise.tar.zst", draw.randbytes(10_000))
    return whole


def day_of(dump: Path) -> int:
    """Older versions of jaxlib are older days; what is unknown is of the last one."""
    order = ("0.5", "0.9", "0.10")
    return next((day for day, version in enumerate(order) if f"/{version}" in str(dump)), 3)


@contextmanager
def running(*command: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server, once it listens."""
    import socket

    child = subprocess.Popen(
        [sys.executable, "-m", *command],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if port == 0 or probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield child
    finally:
        child.terminate()
        child.wait()


def children() -> tuple[float, int]:
    """Processor seconds of all children that ended, and the largest memory of one, in kB."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, used.ru_maxrss


def run(into: Path, *options: str, kill_after: float | None = None) -> int:
    """Survey the store. Returns the exit code, negative if it was killed."""
    command = [*COMMAND, BUCKET, "-o", str(into), *options]
    child = subprocess.Popen(command, env=ENVIRONMENT, start_new_session=True)
    try:
        return child.wait(kill_after)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        return child.wait()


def fingerprint(directory: Path) -> dict[str, tuple[int, str]]:
    """Of each table the number of rows and a digest of them, in no order."""
    found = {}
    with connected(open_store(directory)) as tables:
        for name in TABLES:
            rows = tables.ask(f"FROM once.{name}").rows
            lines = sorted(map(repr, rows))
            found[name] = len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
    return found


Facts = dict[str, list[tuple[object, ...]]]  # by the number and the name of a module
_PAIR = (
    "producer, consumer, computation, outcome, kernel, stage, reason, message, evidence, "
    "decided_by, bytes_saved"
)


def explained(dump: Path) -> Facts:
    """What `explain` says of the modules of a dump: totals, pairs and kernels."""
    found: Facts = {}
    command = [sys.executable, "-m", "fusionscope", "explain", str(dump), "--all", "--no-try"]
    done = subprocess.run(
        [*command, "--no-cache", "--format", "json"], capture_output=True, check=True
    )
    for module in json.loads(done.stdout)["modules"]:
        summary = module["summary"]
        time_us = summary["time"] and summary["time"]["microseconds"]
        rows: list[tuple[object, ...]] = [(summary["launches"], summary["bytes_moved"], time_us)]
        for pair in module["pairs"]:
            names = (pair["producer"]["name"], pair["consumer"]["name"])
            keys = "computation outcome kernel stage reason message evidence pass bytes_saved"
            rows.append((*names, *(pair[key] for key in keys.split())))
        for kernel in module["kernels"]:
            rows.append((kernel["name"], kernel["kind"], kernel["emitter"], kernel["runs"]))
        found[f"{module['number']} {module['name']}"] = sorted(rows, key=repr)
    return found


def tabled(directory: Path, address: str) -> Facts:
    """The same by the tables."""
    found: Facts = {}
    with connected(open_store(directory)) as tables:
        modules = tables.ask(
            "SELECT number, module, content, launches, bytes_moved, time_us FROM modules "
            "WHERE dump = ?",
            [address],
        )
        for number, name, content, *totals in modules.rows:
            pairs = tables.ask(f"SELECT {_PAIR} FROM once.pairs WHERE content = ?", [content])
            kernels = tables.ask(
                "SELECT kernel, kind, emitter, launches FROM once.kernels WHERE content = ?",
                [content],
            )
            rows = [tuple(totals), *pairs.rows, *kernels.rows]
            found[f"{number} {name}"] = sorted(rows, key=repr)
    return found


def fleet(options: argparse.Namespace) -> int:
    work: Path = options.work
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    os.environ.update(ENVIRONMENT)
    dumps = list(find_dumps(options.dumps, options.most_bytes))
    failures: list[str] = []
    with running("moto.server", "-p", str(PORT), "-H", "127.0.0.1", port=PORT):
        whole = upload(dumps, options.hosts)
        print(f"{len(dumps)} dumps, {options.hosts} copies as of hosts, {DAMAGED} damaged dumps")
        print("and 2 damaged archives are in the store", flush=True)
        prints = {}
        for name, flags in {"one": (), "two": ("--jobs", "2")}.items():
            prints[name] = measured(name, work, *flags)
        prints["dask"] = with_dask(work)
        prints["killed"] = killed_and_resumed(work)
        failures += [
            f"the tables of {name} differ from those of one: {found}"
            for name, found in prints.items()
            if found != prints["one"]
        ]
        for table, (rows, digest) in prints["one"].items():
            same = all(found[table] == (rows, digest) for found in prints.values())
            print(f"  {table:12} {rows:9,} rows  {digest}  {'all the same' if same else 'DIFFER'}")
    chosen = random.Random(3).sample(sorted(whole), min(COMPARED, len(whole)))
    for address in chosen:
        if explained(whole[address]) != tabled(work / "one", address):
            failures.append(f"{address}: not what `explain {whole[address]}` says")
    print(f"{len(chosen)} dumps compared with explain, {len(failures)} failures")
    print("\n".join(failures))
    return int(bool(failures))


def measured(name: str, work: Path, *flags: str) -> dict[str, tuple[int, str]]:
    before, _ = children()
    begin = time.monotonic()
    code = run(work / name, *flags)
    used, peak = children()
    print(
        f"{name}: exit code {code}, {used - before:.0f} s of processor time in "
        f"{time.monotonic() - begin:.0f} s, at most {peak / 1000:.0f} MB in a process",
        flush=True,
    )
    return fingerprint(work / name)


def with_dask(work: Path) -> dict[str, tuple[int, str]]:
    address = f"tcp://127.0.0.1:{SCHEDULER}"
    worker = ("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard")
    scheduler = ("distributed.cli.dask_scheduler", "--port", str(SCHEDULER), "--no-dashboard")
    before, _ = children()
    with (
        running(*scheduler, "--host", "127.0.0.1", port=SCHEDULER),
        running(*worker, port=0),
        running(*worker, port=0),
    ):
        code = run(work / "dask", "--scheduler", address)
    used, peak = children()
    print(
        f"dask, two workers: exit code {code}, {used - before:.0f} s of processor time with those "
        f"of Dask's own processes, at most {peak / 1000:.0f} MB in a process so far",
        flush=True,
    )
    return fingerprint(work / "dask")


def killed_and_resumed(work: Path) -> dict[str, tuple[int, str]]:
    draw = random.Random()
    for _ in range(3):
        seconds = draw.uniform(40, 150)
        code = run(work / "killed", "--jobs", "2", "--resume", kill_after=seconds)
        files = len(list((work / "killed").rglob("*.parquet")))
        print(f"killed after {seconds:.1f} s: exit code {code}, {files} files", flush=True)
    print(f"resumed: exit code {run(work / 'killed', '--jobs', '2', '--resume')}")
    return fingerprint(work / "killed")


def questions(options: argparse.Namespace) -> int:
    into: Path = options.work / "repeated"
    shutil.rmtree(into, ignore_errors=True)
    store = open_store(options.directory)
    with connected(store) as tables:
        ((pairs,),) = tables.ask("SELECT count(*) FROM once.pairs").rows
    times = -(-options.pairs // pairs)
    shutil.copytree(store.directory / "done", into / "done")
    for table in TABLES:
        for path in store.files(table):
            target = into / path.relative_to(store.directory)
            target.parent.mkdir(parents=True, exist_ok=True)
            rows = pyarrow.parquet.ParquetFile(path).read()
            writer = pyarrow.parquet.ParquetWriter(target, rows.schema, compression="zstd")
            for turn in range(times):
                writer.write_table(renamed(rows, turn))
            writer.close()
    repeated = open_store(into)
    with connected(repeated) as tables:
        for name in ("pairs", "kernels", "refusals", "dumps"):
            ((count,),) = tables.ask(f"SELECT count(*) FROM {name}").rows
            print(f"{name}: {count:,} rows, each of {times} copies under names of its own")
    page = (ROOT / "docs" / "survey.md").read_text()
    asked = re.findall(r"^\*\*([^*]+\?)\*\*[^`]*?^```sql\n(.*?)^```$", page, re.M | re.S)
    for title, question in asked:
        used, begin = time.process_time(), time.monotonic()
        with connected(repeated) as tables:
            found = tables.ask(question)
        print(
            f"{time.monotonic() - begin:6.2f} s ({time.process_time() - used:6.2f} s of processor "
            f"time)  {len(found.rows):2} rows  {title}"
        )
    print(
        f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f} MB, DuckDB ",
        end="",
    )
    print(duckdb.__version__)
    return 0


def renamed(rows: pyarrow.Table, turn: int) -> pyarrow.Table:
    """The same rows, as of other contents and dumps."""
    names = {"content", "dump"} if "dump" in rows.column_names else {"content"}
    for name in names:
        place = rows.column_names.index(name)
        column = pyarrow.compute.binary_join_element_wise(rows[name], str(turn), "#")
        rows = rows.set_column(place, rows.schema.field(name), column)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("fleet")
    one.add_argument("dumps", type=Path, nargs="+")
    one.add_argument("--work", type=Path, required=True)
    one.add_argument("--most-bytes", type=int, default=2_000_000)
    one.add_argument("--hosts", type=int, default=50)
    one.set_defaults(run=fleet)
    other = commands.add_parser("questions")
    other.add_argument("directory", type=Path)
    other.add_argument("--pairs", type=int, default=10_000_000)
    other.add_argument("--work", type=Path, required=True)
    other.set_defaults(run=questions)
    options = parser.parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
