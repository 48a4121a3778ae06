"""Judges whether the operations of clients on blocks of files can have happened: each block is one register that all clients read and write.

An operation takes effect at one moment between its start and its end; one that was not answered may take effect at any moment until its bound,
or never. A history that fits no order of such moments has a loss, an old read or two owners in it. All values are different, so the check is that
of Gibbons and Korach (Testing Shared Memories, 1997, section 4): operations on one value make a cluster, whose zone reaches from the first end
to the last start (forward, if the first end comes first), or the other way round (backward). There is an order if and only if no read ends before
its write starts, no two forward zones overlap, and no backward zone lies within a forward one.
"""
import bisect, struct

BLOCK = 4096
# A request that nobody waits for any more cannot take effect after so many seconds: the longest that a server works on one.
PENDING_S = 90.0
START = float("-inf")


def content(stamp, file, number):
    """The bytes of a block that have the stamp; a block that was never written has zeroes."""
    return struct.pack("<QII", stamp, file, number) * (BLOCK // 16) if stamp else bytes(BLOCK)


def stamp_of(data, file, number):
    """None if the bytes are not those of one write to this block."""
    stamp, = struct.unpack_from("<Q", data)
    return stamp if data == content(stamp, file, number) else None


def check_register(initial, operations):
    """The fault in the history of one block that had the value `initial` before; each operation is (start, end, is_write, value), of a
    write that was not answered with the bound of its effect as its end."""
    # By value: start of its write, first end and last start of all that is done with it.
    clusters = {initial: [START, START, START]}
    for start, end, is_write, value in operations:
        if is_write:
            clusters[value] = [start, end, start]
    for start, end, is_write, value in operations:
        if is_write:
            continue
        cluster = clusters.get(value)
        if cluster is None:
            return [f"a read answered at {end:.3f} found {value:#x}, which was never written or was overwritten before"]
        if end < cluster[0]:
            return [f"a read answered at {end:.3f} found {value:#x}, whose write began at {cluster[0]:.3f}"]
        cluster[1], cluster[2] = min(cluster[1], end), max(cluster[2], start)
    forward, backward = [], []
    for value, (_, first_end, last_start) in clusters.items():
        zone = (min(first_end, last_start), max(first_end, last_start), value)
        (forward if first_end < last_start else backward).append(zone)
    forward.sort()
    for one, two in zip(forward, forward[1:]):
        if two[0] < one[1]:
            return [f"{one[2]:#x} is still read at {one[1]:.3f}, after {two[2]:#x} was acknowledged or read at {two[0]:.3f}"]
    starts = [zone[0] for zone in forward]
    for low, high, value in backward:
        at = bisect.bisect_left(starts, low) - 1
        if at >= 0 and high < forward[at][1]:
            zone = forward[at]
            return [f"{value:#x} was written between {low:.3f} and {high:.3f}, while {zone[2]:#x} is read from {zone[0]:.3f} to {zone[1]:.3f}"]
    return []


class History:
    """The operations since the last time that all blocks were read, and what was found then."""

    def __init__(self):
        # By (file, number): the value found last.
        self.found = {}
        # By (file, number): writes that were not answered and may still take effect: (start, bound, value).
        self.pending = {}
        self.operations = self.checks = 0

    def close_segment(self, records, final, now, deaths=()):
        """Checks all records, and that what was found at the end fits; `final`: by block, (start, end, value). Returns what is wrong.

        A record is (start, end, node, is_write, file, first block, values, is_answered). `deaths` has pairs of a node that died and a moment
        from which on nothing that it was told before can take effect any more."""
        registers = {}
        for start, end, node, is_write, file, first, values, answered in records:
            self.operations += 1
            if not answered:
                end = min([end, *(moment for dead, moment in deaths if dead == node and start < moment)])
            for at, value in enumerate(values):
                registers.setdefault((file, first + at), []).append((start, end, is_write, value, answered))
        wrong = []
        for place in registers.keys() | final.keys():
            operations = [(start, end, True, value, False) for start, end, value in self.pending.pop(place, [])]
            operations += registers.get(place, [])
            if place in final:
                start, end, value = final[place]
                operations.append((start, end, False, value, True))
            seen = {value for _, _, is_write, value, _ in operations if not is_write}
            used = []
            for start, end, is_write, value, answered in operations:
                if answered or value in seen:
                    used.append((start, end, is_write, value))
                elif end > now:
                    # It may take effect yet.
                    self.pending.setdefault(place, []).append((start, end, value))
            wrong += [f"file {place[0]} block {place[1]}: {what}" for what in check_register(self.found.get(place, 0), used)]
            self.checks += 1
            if place in final:
                self.found[place] = final[place][2]
        return wrong


def self_test():
    """Histories that are known to be right and wrong."""
    write, read = True, False
    right = [
        [(1, 2, write, 1), (3, 4, read, 1)],
        [(1, 5, write, 1), (2, 3, read, 0), (4, 6, read, 1)],
        [(1, 5, write, 1), (2, 3, read, 1), (3, 4, read, 1)],
        [(1, 5, write, 1), (1, 5, write, 2), (6, 7, read, 1), (8, 9, read, 1)],
        # It was not answered, and is seen late.
        [(1, 90, write, 1), (2, 3, read, 0), (10, 11, read, 1)],
    ]
    wrong = [
        # Lost.
        [(1, 2, write, 1), (3, 4, read, 0)],
        # Old after new.
        [(1, 9, write, 1), (2, 3, read, 1), (4, 5, read, 0)],
        # Two owners: each reads its own.
        [(1, 2, write, 1), (3, 4, write, 2), (5, 6, read, 1)],
        [(1, 2, write, 1), (1, 2, write, 2), (3, 4, read, 1), (5, 6, read, 2), (7, 8, read, 1)],
        # From the future, and from nowhere.
        [(1, 2, read, 1), (3, 4, write, 1)],
        [(1, 2, read, 7)],
        # An unanswered write took effect after its bound.
        [(1, 3, write, 1), (4, 5, write, 2), (6, 7, read, 2), (8, 9, read, 1)],
    ]
    for history in right:
        assert check_register(0, history) == [], history
    for history in wrong:
        assert check_register(0, history), history


self_test()
