"""The cells of the side-by-side table: what is measured, by name, and which of them each mode runs."""

import dataclasses
import itertools

BLOCKS = {"4k": 4096, "64k": 65536, "1m": 1 << 20}
DEPTHS = (1, 32)
CONNECTIONS = (1, 4, 16)
# Clients of Windows 11 24H2 and Server 2025 require signing by default: signed is what a client gets that sets nothing.
SECURITIES = ("signed", "plain", "encrypted")
USUAL = SECURITIES[0]

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
    security: str = USUAL

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


def others(protection):
    return [security for security in SECURITIES if security != protection]


def under(protection, cells):
    return [dataclasses.replace(cell, security=protection) for cell in cells]


def quick(protection=USUAL):
    """12 cells: the commonest with the usual protection, and one of them with each of the others."""
    usual = [
        Cell("4k", "read-cached", 1),
        Cell("4k", "read-cached"),
        Cell("4k", "read-cached", connections=4),
        Cell("64k", "read-cached"),
        Cell("1m", "read-cached"),
        Cell("4k", "read-uncached"),
        Cell("4k", "write"),
        Cell("1m", "write"),
        Cell("4k", "write-through", 1),
        Cell("4k", "mixed-67-33"),
    ]
    return under(protection, usual) + [Cell("64k", "read-cached", security=security) for security in others(protection)]


def default(protection=USUAL):
    """48 cells: every operation and size, one and many deep, then other protection and more connections on the commonest."""
    cells = [Cell(block, operation, depth) for block, operation, depth in itertools.product(BLOCKS, OPERATIONS, DEPTHS)]
    more = [
        Cell(block, operation, connections=connections)
        for (block, operation), connections in itertools.product(
            (("4k", "read-cached"), ("64k", "read-cached"), ("4k", "write")), CONNECTIONS[1:]
        )
    ]
    protected = [
        Cell(block, operation, security=security)
        for block, operation, security in itertools.product(BLOCKS, ("read-cached", "write"), others(protection))
    ]
    return under(protection, cells) + protected + under(protection, more)


def direct(protection="plain"):
    """SMB Direct beside TCP: 36 cells of reads and writes of memory, since the disks are the same on both sides. Plain, as it is transports
    that are compared: what is signed is touched by processors on either of them."""
    return [
        Cell(block, operation, depth, connections, protection)
        for block, operation, depth, connections in itertools.product(BLOCKS, ("read-cached", "write"), DEPTHS, CONNECTIONS)
    ]


def every():
    return [
        Cell(*values)
        for values in itertools.product(BLOCKS, OPERATIONS, DEPTHS, CONNECTIONS, SECURITIES)
    ]
