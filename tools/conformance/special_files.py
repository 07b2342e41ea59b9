"""Makes files that are not regular, which tests put where fusionscope expects others."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def make_socket(path: Path) -> None:
    """Make a socket, whose path may be longer than the system allows when it is bound."""
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)
        try:
            listener.bind("s")
            Path("s").rename(path.name)
        finally:
            os.chdir(here)
