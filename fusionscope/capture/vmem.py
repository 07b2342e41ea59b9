"""Reads what the TPU compiler says if a kernel takes too much of the vector memory.

Like ``child.py``, it runs under any Python. The messages are those of libtpu 0.0.52.
"""

from __future__ import annotations

import re

# Over the whole of the memory: the allocations follow, the largest first.
_WHOLE = re.compile(r"memory space vmem\. Used (\S+) of (\S+) vmem")
_ALLOCATION = re.compile(r"\n +\d+\. Size: (\S+)\n(.*?)=====", re.DOTALL)
_LABEL = re.compile(r"XLA label: (?:([\w.-]+) = |(register allocator spill slots) in HLO :: (\S+))")
_WINDOW = re.compile(
    r"Tag: (input|output) window allocation for operator \w+ (\d+)\. The window shape is"
    r" (\w+\[[\d,]*\])(?:.*?has (\d+) buffering levels)?",
    re.DOTALL,
)
# Over what one kernel may take of it.
_SCOPED = re.compile(
    r"vmem while allocating on stack for %?(?P<kernel>[\w.-]+) = .*?"
    r"size (?P<size>\S+) and limit (?P<limit>\S+) exceeded",
    re.DOTALL,
)
_NAME = re.compile(r'op_name="([^"]*)"')
_MOST = 3  # allocations in the line


def vmem_problem(message: str) -> str:
    """Return in one line which kernel takes too much of the vector memory, and for what. Empty for
    another message.
    """
    if scoped := _SCOPED.search(message):
        return (
            f"out of vector memory: {_kernel(scoped['kernel'], scoped[0])} takes {scoped['size']}, "
            f"and a kernel may take {scoped['limit']}"
        )
    if whole := _WHOLE.search(message):
        allocations = _ALLOCATION.findall(message)
        labels = [_LABEL.search(text) for _, text in allocations]
        names = [label[1] or label[3] for label in labels if label is not None]
        what = _kernel(names[0], allocations[0][1]) if names else "the program"
        parts = [_words(size, text) for size, text in allocations[:_MOST]]
        of = f": {', '.join(parts)}" if parts else ""
        return f"out of vector memory: {what} takes {whole[1]}, and there are {whole[2]}{of}"
    return ""


def _kernel(name: str, text: str) -> str:
    op_name = _NAME.search(text)
    return f"{name} ({op_name[1]})" if op_name is not None else name


def _words(size: str, text: str) -> str:
    """Return what an allocation is for."""
    window, label = _WINDOW.search(text), _LABEL.search(text)
    if window is not None:
        side = "operand" if window[1] == "input" else "result"
        times = f" in {window[4]} buffers" if window[4] else ""
        return f"the window {window[3]} of {side} {window[2]}{times} {size}"
    return f"spilled registers {size}" if label is not None and label[2] else f"other {size}"
