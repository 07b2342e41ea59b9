"""``python -m fusionscope``, and the console script."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Runs the command line. A package that is not installed, click included, is one line."""
    gc.disable()  # a command ends soon, and a quarter of its time would go into looking for garbage
    try:
        from fusionscope.cli.main import main as run_command

        run_command()
    except ModuleNotFoundError as error:
        if error.name is None or "--debug" in sys.argv:
            raise
        module = error.name.partition(".")[0]
        problem = f"the package {module} is not installed"
        sys.stderr.write(f"fusionscope: {problem}; {sys.executable} -m pip install {module}\n")
        sys.exit(2)
    finally:
        gc.freeze()  # or Python looks through all objects once more as it ends


if __name__ == "__main__":
    main()
