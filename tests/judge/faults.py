"""Faults of one disk that a round may strike with. Each is made for a disk, and decides by the round's random numbers where it strikes."""
import re

EIO, ENOSPC = 5, 28
# Issues that tell that a disk is not used, or that something on it was damaged.
DISK_OUT = {"disk_lost", "volume_degraded", "disk_unrecorded"}
DAMAGE = {"disk_medium_errors", "disk_corrupt_blocks", "disk_lost_writes", "disk_went_back"} | DISK_OUT


class Layout:
    """Where the structures of a disk lie, as `cenote disk inspect` says: pairs of offset and length in bytes by name."""

    def __init__(self, inspected, size_bytes):
        def number(pattern):
            found = re.search(pattern, inspected, re.MULTILINE)
            return int(found.group(1)) if found else None

        journal, slabs = number(r"^journal +\d+ KiB at (\d+)"), number(r"^slabs .* at (\d+)")
        journal_bytes = number(r"^journal +(\d+) KiB at") * 1024
        # The places of the slab metadata and of the second tables were not always told.
        metadata = number(r"^metadata +at (\d+)") or journal + journal_bytes
        tables = number(r"^tables +at \d+ and (\d+)") or size_bytes - (2 << 20)
        self.regions = {
            "front": (0, 1 << 20),
            "tables": (1 << 20, journal - (1 << 20)),
            "journal": (journal, journal_bytes),
            "metadata": (metadata, slabs - metadata),
            "slabs": (slabs, tables - slabs),
        }


class Fault:
    """`told` are the codes of issues, one of which must be told if the disk met the fault; none if health need not tell it."""
    told = DAMAGE
    regions = ["slabs", "slabs", "slabs", "slabs", "metadata", "metadata", "journal", "tables", "front"]
    # The server is ended before it strikes, and started afterwards.
    while_down = False
    # The server is started anew between `prepare` and the strike.
    restart_before = False

    def __init__(self, disks, disk, layout, random):
        self.disks, self.disk, self.random = disks, disk, random
        self.region = random.choice(self.regions)
        self.offset, self.bytes = layout.regions[self.region]
        self.times = random.choice([1, 1, 3, 0])

    def tell(self, command, *numbers):
        return self.disks.tell(" ".join([command, self.disk, *map(str, numbers)]))

    def seed(self):
        return self.random.randrange(1 << 32)

    def places(self, most):
        """Offsets of blocks in the region that hold something; now and then of those that were written last."""
        count = self.random.randint(1, most)
        if self.region == "slabs" and self.random.random() < 0.3:
            found = self.tell("recent", count, self.seed())
        else:
            found = self.tell("pick", count, self.seed(), self.offset, self.bytes)
        return sorted(set(map(int, found.split())))

    def prepare(self):
        """Some time before it strikes."""

    def strike(self):
        raise NotImplementedError

    def name(self):
        return f"{type(self).__name__} of {self.disk}'s {self.region}"


class Unreadable(Fault):
    def strike(self):
        for offset in self.places(24):
            self.tell("unreadable", offset, 4096 * self.random.choice([1, 1, 1, 8]))


class ReadErrors(Fault):
    def strike(self):
        self.tell("fail", "read", self.offset, self.bytes, self.times, EIO)


class WriteErrors(Fault):
    def strike(self):
        self.tell("fail", "write", self.offset, self.bytes, self.times, EIO)


class FlushErrors(Fault):
    def strike(self):
        self.tell("fail", "flush", 0, 1 << 40, self.times, EIO)


class LostWrites(Fault):
    def strike(self):
        self.tell("lose", self.offset, self.bytes, self.times)


class MisdirectedWrite(Fault):
    def strike(self):
        self.tell("misdirect", self.offset, self.bytes, 1, 4096 * self.random.randint(1, 8192))


class TornWrite(Fault):
    def strike(self):
        self.tell("tear", self.offset, self.bytes, self.times or 5)


class Rot(Fault):
    def strike(self):
        for offset in self.places(64):
            self.tell("rot", offset, 4096, self.seed())


class RottenRange(Fault):
    """Everything in a mebibyte or more."""

    def strike(self):
        for offset in self.places(1):
            self.tell("rot", offset, self.random.choice([1 << 20, 64 << 20]), self.seed())


class Wiped(Fault):
    """A range is zeroes, as after a discard of the wrong place."""

    def strike(self):
        for offset in self.places(2):
            self.tell("wipe", offset, self.random.choice([4096, 1 << 20, 64 << 20]))


class Rollback(Fault):
    """An older image of the disk was put back while the server was down. It is one from before the server's last start: that a younger one
    is noticed is not promised (docs/PROTOCOL.md, Limits)."""
    while_down = True
    restart_before = True

    def prepare(self):
        self.tell("snapshot")

    def strike(self):
        self.tell("rollback")


class NoSpace(Fault):
    told = DISK_OUT

    def strike(self):
        self.tell("fail", "write", self.offset, self.bytes, self.times, ENOSPC)


class Slow(Fault):
    told = set()

    def strike(self):
        self.tell("slow", self.random.choice([5, 50, 300]))


class Hang(Fault):
    told = DISK_OUT

    def strike(self):
        self.tell("hang")


class Gone(Fault):
    told = DISK_OUT

    def strike(self):
        self.tell("gone")


class Reset(Fault):
    """The disk goes and loses its cache."""
    told = DISK_OUT

    def strike(self):
        self.tell("gone")
        self.tell("cut", self.seed())


class NoFault(Fault):
    """The power cuts and kills of the round are all that happens."""
    told = set()

    def strike(self):
        pass


# A fault that has many forms has more places.
ALL = [Unreadable, Unreadable, ReadErrors, WriteErrors, FlushErrors, LostWrites, LostWrites, MisdirectedWrite, TornWrite, Rot, Rot,
       RottenRange, Wiped, Wiped, Rollback, Rollback, NoSpace, Slow, Hang, Gone, Reset, NoFault]
