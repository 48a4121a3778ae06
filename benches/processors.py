"""Which processors servers and clients run on: apart, as on two machines, or shared."""

import os

# Of servers, once they are parted from everything else.
_servers = None


def part():
    """Servers get the first half of the processors that this process may use; this process, and what it starts otherwise, the second.
    A single processor is shared, by all."""
    global _servers
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < 2:
        return
    half = len(mine) // 2
    _servers = mine[:half]
    os.sched_setaffinity(0, mine[half:])


def as_server():
    """For a new process, before it becomes a server (`preexec_fn`)."""
    if _servers:
        os.sched_setaffinity(0, _servers)


def told():
    """In words, for a report."""
    if not _servers:
        return "client and server share the processors"
    clients = sorted(os.sched_getaffinity(0))
    return f"servers on {_span(_servers)}, clients on {_span(clients)}"


def _span(processors):
    first, last = processors[0], processors[-1]
    if last - first + 1 != len(processors):
        return "processors " + ", ".join(map(str, processors))
    return f"processor {first}" if first == last else f"processors {first} to {last}"
