#!/usr/bin/env python3
"""Reads every iWARP stream of a capture from its first byte to its last: fpdus.py CAPTURE PORT [FRAME:LENGTH...]

Each FPDU of the TCP connections to PORT is taken apart: MPA's length, padding and CRC (RFC 5044), DDP's and RDMAP's versions, opcodes,
queues, message sequence numbers and offsets (RFC 5041, RFC 5040), and in the messages SMB Direct's header, lengths and credits (MS-SMBD 2.2).
Prints what is wrong, a line each, which of the named frames hold a part of an FPDU whose ULPDU has that length (where another reader
found one there, it was in step), and at the end how much was read. Status 0: nothing wrong. The capture is a classic pcap of Ethernet
frames with IPv4, as QEMU writes it.
"""

import struct
import sys
from collections import defaultdict

from rdma_peer import READ_REQUEST, READ_RESPONSE, REPLY, REQUEST, SENDS, TERMINATE, WRITE, crc32c

UNTAGGED_HEADER, TAGGED_HEADER = 18, 14
MOST_REPORTED = 20


def segments(path, port):
    """(frame, source, target, sequence number, flags, payload) of each TCP segment to or from `port`."""
    with open(path, "rb") as file:
        order = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">"}[file.read(24)[:4]]
        number = 0
        while len(head := file.read(16)) == 16:
            number += 1
            frame = file.read(struct.unpack_from(order + "I", head, 8)[0])
            if frame[12:14] != b"\x08\x00" or frame[23] != 6:
                continue
            (total,) = struct.unpack_from(">H", frame, 16)
            packet = frame[14 : 14 + total]
            tcp = packet[(packet[0] & 15) * 4 :]
            source, target, sequence = struct.unpack_from(">HHI", tcp)
            if port in (source, target):
                ends = (packet[12:16], source), (packet[16:20], target)
                yield number, *ends, sequence, tcp[13], tcp[(tcp[12] >> 4) * 4 :]


class Stream:
    """The bytes of one direction, put together from segments that may come twice or out of order."""

    def __init__(self, first):
        self.first, self.data, self.early = first, bytearray(), {}
        # (first byte, byte behind the last, frame, length) of what is asked about.
        self.asked = []

    def place(self, sequence):
        at = (sequence - self.first) & 0xFFFFFFFF
        return at - (1 << 32) if at >= 1 << 31 else at

    def take(self, sequence, payload):
        at = self.place(sequence)
        if len(payload) > len(self.early.get(at, b"")):
            self.early[at] = payload
        while ready := [at for at in self.early if at <= len(self.data)]:
            for at in ready:
                self.data += self.early.pop(at)[len(self.data) - at :]


class Direction:
    """The bytes that one end has sent so far."""

    def __init__(self, name, report):
        self.name, self.report = name, report
        self.fpdus = self.messages = 0
        self.sequence = {0: 1, 1: 1, 2: 1}
        self.offset = defaultdict(int)
        self.message = bytearray()
        self.credits = self.remaining = 0
        self.is_ended = False

    def wrong(self, at, what):
        self.report(f"{self.name}, byte {at}: {what}")


def smb_direct(here, there, at, message):
    """One message of MS-SMBD: credits go from its receiver's account to its sender's."""
    if here.messages == 0:
        here.messages = 1
        if len(message) not in (20, 32):
            here.wrong(at, f"a negotiation of {len(message)} bytes")
        elif len(message) == 32:
            (there.credits,) = struct.unpack_from("<H", message, 10)
        return
    here.messages += 1
    if len(message) < 20:
        here.wrong(at, f"a data transfer message of {len(message)} bytes")
        return
    _, granted, _, _, remaining, offset, length = struct.unpack_from("<HHHHIII", message)
    # The client's credits for the server's first message come with the client's own first.
    there.credits += granted
    here.credits -= 1
    if here.credits < 0:
        here.wrong(at, "a message without a credit")
    # Without data it only carries credits, also between the parts of what another thread sends.
    if not length:
        return
    if offset < 24 or offset % 8 or offset + length != len(message):
        here.wrong(at, f"{length} bytes of data at {offset} of {len(message)}")
    if here.remaining and here.remaining != length + remaining:
        here.wrong(at, f"{length} bytes and {remaining} to come, where {here.remaining} were missing")
    here.remaining = remaining


def segment(here, there, at, length, ulpdu):
    """One DDP segment; of a tagged one only the header is there."""
    if length < TAGGED_HEADER:
        here.wrong(at, f"a segment of {length} bytes")
        return
    ddp, rdmap = ulpdu[0], ulpdu[1]
    is_tagged, is_last, opcode = bool(ddp & 0x80), bool(ddp & 0x40), rdmap & 15
    if ddp & 0x3F != 1 or rdmap & 0xF0 != 0x40 or opcode > TERMINATE:
        here.wrong(at, f"control fields {ddp:02x} {rdmap:02x}")
        return
    if is_tagged != (opcode in (WRITE, READ_RESPONSE)):
        here.wrong(at, f"opcode {opcode} in a segment of the other kind")
        return
    if is_tagged:
        stag, offset = struct.unpack_from(">IQ", ulpdu, 2)
        if here.offset[stag, opcode] not in (0, offset):
            here.wrong(at, f"offset {offset} of STag {stag:08x} in the middle of a message")
        here.offset[stag, opcode] = 0 if is_last else offset + length - TAGGED_HEADER
        return
    if length < UNTAGGED_HEADER:
        here.wrong(at, f"an untagged segment of {length} bytes")
        return
    queue, sequence, offset = struct.unpack_from(">III", ulpdu, 6)
    if queue != {READ_REQUEST: 1, TERMINATE: 2}.get(opcode, 0):
        here.wrong(at, f"opcode {opcode} in queue {queue}")
        return
    if sequence != here.sequence[queue] or offset != here.offset[queue]:
        here.wrong(at, f"message {sequence} from {offset} on in queue {queue}, not {here.sequence[queue]} from {here.offset[queue]}")
    body = ulpdu[UNTAGGED_HEADER:]
    here.offset[queue] = 0 if is_last else offset + len(body)
    here.sequence[queue] = sequence + 1 if is_last else sequence
    if opcode == TERMINATE:
        here.wrong(at, f"Terminate {body[:4].hex()}")
    elif opcode == READ_REQUEST and len(body) != 28:
        here.wrong(at, f"a Read Request of {len(body)} bytes")
    elif opcode in SENDS:
        here.message += body
        if is_last:
            message, here.message = bytes(here.message), bytearray()
            smb_direct(here, there, at, message)


def fpdus(here, data, has_crc):
    """(end, start, length of the ULPDU, ULPDU) of each FPDU; what is left at the end is a connection's that was cut."""
    (private,) = struct.unpack_from(">H", data, 18)
    at = 20 + private
    while at + 2 <= len(data):
        (length,) = struct.unpack_from(">H", data, at)
        end = at + 2 + length + -(2 + length) % 4 + 4
        if end > len(data):
            if not here.is_ended:
                here.wrong(at, f"an FPDU of {length} bytes, of which {len(data) - at} came")
            return
        if has_crc and struct.unpack_from("<I", data, end - 4)[0] != crc32c(memoryview(data)[at : end - 4]):
            here.wrong(at, f"the CRC of an FPDU of {length} bytes")
        here.fpdus += 1
        is_tagged = length and data[at + 2] & 0x80
        yield end, at, length, bytes(data[at + 2 : at + 2 + (min(length, TAGGED_HEADER) if is_tagged else length)])
        at = end


def main():
    path, port = sys.argv[1], int(sys.argv[2])
    asked = dict(map(int, each.split(":")) for each in sys.argv[3:])
    streams, clocks, ends = {}, defaultdict(list), set()
    found = []
    for frame, source, target, sequence, flags, payload in segments(path, port):
        way = source, target
        if flags & 2 and (way not in streams or streams[way].first != (sequence + 1) & 0xFFFFFFFF):
            streams[way] = Stream((sequence + 1) & 0xFFFFFFFF)
            clocks[way] = []
        if way not in streams:
            continue
        if flags & 5:
            ends.update((way, way[::-1]))
        if payload:
            streams[way].take(sequence, payload)
            clocks[way].append((len(streams[way].data), frame))
            if frame in asked:
                at = streams[way].place(sequence)
                streams[way].asked.append((at, at + len(payload), frame, asked[frame]))
    total = messages = connections = 0
    for way in [way for way in streams if way[1][1] == port]:
        back = way[::-1]
        request, reply = streams[way].data, streams.get(back, Stream(0)).data
        name = f"{way[0][1]}"
        if not request and not reply:
            continue
        if request[:16] != REQUEST or reply[:16] != REPLY:
            found.append(f"{name}: no negotiation of MPA")
            continue
        connections += 1
        has_crc = bool((request[16] | reply[16]) & 0x40)
        if (request[16] | reply[16]) & 0x80:
            found.append(f"{name}: markers, which this reader does not know")
            continue
        pair = Direction(f"{name}, from the client", found.append), Direction(f"{name}, from the server", found.append)
        timed = []
        for index, (here, key) in enumerate(zip(pair, (way, back))):
            here.is_ended = key in ends
            came = iter(clocks[key])
            reached, frame = 0, 0
            for end, start, length, ulpdu in fpdus(here, streams[key].data, has_crc):
                while reached < end:
                    reached, frame = next(came)
                timed.append((frame, index, start, length, ulpdu))
                for first, behind, one, of_length in streams[key].asked:
                    if first < end and start < behind and length == of_length:
                        print(f"frame {one} is read in step")
        # Credits are counted in the order in which both ends' messages passed by.
        for _, index, start, length, ulpdu in sorted(timed, key=lambda each: each[:3]):
            segment(pair[index], pair[1 - index], start, length, ulpdu)
        total += sum(here.fpdus for here in pair)
        messages += sum(here.messages for here in pair)
    for line in found[:MOST_REPORTED]:
        print(line)
    if len(found) > MOST_REPORTED:
        print(f"and {len(found) - MOST_REPORTED} more")
    print(f"{connections} connections, {total} FPDUs, {messages} messages of SMB Direct, {len(found)} faults")
    sys.exit(0 if connections and not found else 1)


main()
