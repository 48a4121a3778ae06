"""The cells of the side-by-side table: what is measured, by name, and which of them each mode runs."""

import dataclasses
import itertools

BLOCKS = {"4k": 4096, "64k": 65536, "1m": 1 << 20}
DEPTHS = (1, 32)
CONNECTIONS = (1, 4, 16)
SECURITIES = ("plain", "signed", "encrypted")

# Share of writes in percent, and whether the server's caches are emptied before.
OPERATIONS = {
    "read-cached": (0, False),
    "read-uncached": (0, True),
    "write": (100, False),
    "write-through": (100, False),
    "mixed-67-33": (33, False),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One load: block size, operation, requests in flight on each connection, connections, and the session's protection."""

    block: str
    operation: str
    depth: int = 32
    connections: int = 1
    security: str = "plain"

    @property
    def name(self):
        return f"{self.block}-{self.operation}-qd{self.depth}-c{self.connections}-{self.security}"

    @property
    def block_bytes(self):
        return BLOCKS[self.block]

    @property
    def write_percent(self):
        return OPERATIONS[self.operation][0]

    @property
    def cold(self):
        return OPERATIONS[self.operation][1]

    @property
    def writes(self):
        return self.write_percent > 0


QUICK = [
    Cell("4k", "read-cached", 1),
    Cell("4k", "read-cached"),
    Cell("4k", "read-cached", connections=4),
    Cell("64k", "read-cached"),
    Cell("64k", "read-cached", security="signed"),
    Cell("64k", "read-cached", security="encrypted"),
    Cell("1m", "read-cached"),
    Cell("4k", "read-uncached"),
    Cell("4k", "write"),
    Cell("1m", "write"),
    Cell("4k", "write-through", 1),
    Cell("4k", "mixed-67-33"),
]


def default():
    """48 cells: every operation and size, one and many deep, then protection and connections on the commonest."""
    cells = [Cell(block, operation, depth) for block, operation, depth in itertools.product(BLOCKS, OPERATIONS, DEPTHS)]
    cells += [
        Cell(block, operation, security=security)
        for block, operation, security in itertools.product(BLOCKS, ("read-cached", "write"), SECURITIES[1:])
    ]
    cells += [
        Cell(block, operation, connections=connections)
        for (block, operation), connections in itertools.product(
            (("4k", "read-cached"), ("64k", "read-cached"), ("4k", "write")), CONNECTIONS[1:]
        )
    ]
    return cells


def direct():
    """SMB Direct beside TCP: 36 cells of reads and writes of memory, since the disks are the same on both sides."""
    return [
        Cell(block, operation, depth, connections)
        for block, operation, depth, connections in itertools.product(BLOCKS, ("read-cached", "write"), DEPTHS, CONNECTIONS)
    ]


def every():
    return [
        Cell(*values)
        for values in itertools.product(BLOCKS, OPERATIONS, DEPTHS, CONNECTIONS, SECURITIES)
    ]
