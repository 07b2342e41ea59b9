"""The costs of the example of each recipe before and after the edit, as compiled and run.

``tools/conformance/recipe_proofs.py`` writes the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fusionscope.system.files import read_text, write_file

PROOFS = Path(__file__).parent / "proofs.json"
_SMALLEST_GAIN = 0.99  # of the time before
_BACKENDS = {"cpu": "cpu", "v5e": "tpu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The costs of one program.

    ``time_us`` is in microseconds: the measured median on a CPU, the compiler's own estimate for a
    GPU or TPU. ``ratio`` is the median of measured times relative to the program before the edit,
    which ran beside it, between the ends of a 95 % confidence interval of the median; None for a
    GPU or TPU, which was not present. ``difference`` is the largest difference between its results
    and those before the edit, as a share of the largest magnitude.
    """

    launches: int
    bytes_moved: int
    time_us: float | None
    ratio: tuple[float, float, float] | None = None
    difference: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """An example before and ``after`` the edit, compiled for ``target`` by ``jaxlib``.

    ``rewritten`` is the result of the recipe on the HLO of ``before``; None for an edit without a
    recipe.
    """

    jaxlib: str
    target: str
    before: Side
    after: Side
    rewritten: Side | None

    @property
    def backend(self) -> str:
        return _BACKENDS.get(self.target, "gpu")

    @property
    def helps(self) -> bool:
        """Return whether the program takes less time after the edit."""
        if self.after.ratio is not None:
            return self.after.ratio[2] < _SMALLEST_GAIN
        if self.before.time_us is None or self.after.time_us is None:
            return False
        return self.after.time_us < _SMALLEST_GAIN * self.before.time_us


Proofs = dict[str, tuple[Proof, ...]]


def read_proofs(file: Path = PROOFS) -> Proofs:
    """Return the proofs by the id of the recipe, empty if there is no such file. Raises
    ``UnusableInput``.
    """
    if not file.exists():
        return {}
    return msgspec.json.decode(read_text(file), type=Proofs)


def write_proofs(file: Path, proofs: Mapping[str, tuple[Proof, ...]]) -> None:
    """Write the proofs. Raises ``UnusableInput`` if the file cannot be written."""
    text = msgspec.json.format(msgspec.json.encode(dict(sorted(proofs.items()))), indent=1)
    write_file(file, text.decode() + "\n")
