"""A client that works on while its server changes: it writes and flushes in a loop, and holds a file open with a byte-range lock.

Neither handle is durable: whatever cuts the connection, or closes what is open on it, shows as an error. Says `working` when it is at work, and goes on
until the file STOP_FILE is there. Then it reads back what it wrote, and has another client find the lock still held. Prints `ok NAME` or `not ok NAME` a line,
and the longest wait for an answer.
"""
import os, struct, time

import smb2

ADDRESS = os.environ["SMB_ADDRESS"], int(os.environ["SMB_PORT"])
STOP_FILE = os.environ["STOP_FILE"]
LOCK_NOT_GRANTED = 0xC0000055
BLOCK = 4096


def connect():
    link = smb2.Connection(ADDRESS, os.environ["SMB_USER"], os.environ["SMB_PASSWORD"], 30, dialect=0x0311)
    link.connect_share(os.environ["SMB_SHARE"])
    return link


def say(is_ok, name):
    print(("ok " if is_ok else "not ok ") + name, flush=True)


def main():
    link = connect()
    written, held = link.create("written", smb2.OPEN_IF), link.create("held", smb2.OPEN_IF)
    link.lock(held, 0, 10)
    print("working", flush=True)
    count, longest, error = 0, 0.0, None
    while not os.path.exists(STOP_FILE):
        began = time.monotonic()
        try:
            link.write(written, count % 256 * BLOCK, struct.pack("<Q", count) * (BLOCK // 8), flags=0)
            link.flush(written)
        except Exception as failed:
            error = repr(failed)
            break
        longest = max(longest, time.monotonic() - began)
        count += 1
    say(error is None, f"a client writes and flushes on over its connection ({count} times)" + (f": {error}" if error else ""))
    if error is not None:
        raise SystemExit(1)
    first = max(0, count - 256)
    wrong = [at for at in range(first, count) if link.read(written, at % 256 * BLOCK, BLOCK) != struct.pack("<Q", at) * (BLOCK // 8)]
    say(not wrong, "it reads back what it wrote")
    link.write(held, 0, b"held")
    say(True, "the file that it held open is open")
    other = connect()
    try:
        other.lock(other.create("held"), 0, 10)
        say(False, "the lock is held against others")
    except smb2.Refused as refused:
        say(refused.status == LOCK_NOT_GRANTED, "the lock is held against others")
    print(f"longest wait {longest * 1000:.0f} ms", flush=True)


main()
