"""Runs docs/notebook.ipynb, and writes what its cells show.

python docs/make_notebook.py
"""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

FILE = Path(__file__).with_name("notebook.ipynb")


def executed() -> nbformat.NotebookNode:
    """Return the notebook with the output of this version."""
    notebook = nbformat.read(FILE, as_version=4)
    NotebookClient(notebook, record_timing=False).execute(cwd=str(FILE.parent))
    del notebook.metadata["language_info"]  # of this Python
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            del output.data["text/plain"]  # what nobody sees
    return notebook


if __name__ == "__main__":
    nbformat.write(executed(), FILE)
