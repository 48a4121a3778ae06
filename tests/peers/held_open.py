"""A client that works on while its server changes: it writes and flushes in a loop, and holds a file open with a byte-range lock.

Neither handle is durable: whatever cuts the connection, or closes what is open on it, shows as an error. Says `working` when it is at work, and goes on
until the file STOP_FILE is there. Then it reads back what it wrote, and has another client find the lock still held. Prints `ok NAME` or `not ok NAME` a line,
and the longest wait for an answer.
"""
import os, struct, time, uuid

from smbprotocol.connection import Connection
from smbprotocol.exceptions import SMBResponseException
from smbprotocol.open import (CreateDisposition, CreateOptions, FileAttributes, FilePipePrinterAccessMask, ImpersonationLevel, Open,
                              SMB2LockElement, SMB2LockRequest, LockFlags, ShareAccess)
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

ADDRESS, PORT = os.environ["SMB_ADDRESS"], int(os.environ["SMB_PORT"])
USER, PASSWORD, SHARE = os.environ["SMB_USER"], os.environ["SMB_PASSWORD"], os.environ["SMB_SHARE"]
STOP_FILE = os.environ["STOP_FILE"]
LOCK_NOT_GRANTED = 0xC0000055
BLOCK = 4096


def connect():
    connection = Connection(uuid.uuid4(), ADDRESS, PORT, require_signing=True)
    connection.connect(timeout=20)
    session = Session(connection, USER, PASSWORD, require_encryption=False)
    session.connect()
    tree = TreeConnect(session, rf"\\{ADDRESS}\{SHARE}")
    tree.connect()
    return connection, tree


def opened(tree, name):
    handle = Open(tree, name)
    handle.create(ImpersonationLevel.Impersonation, FilePipePrinterAccessMask.GENERIC_READ | FilePipePrinterAccessMask.GENERIC_WRITE,
                  FileAttributes.FILE_ATTRIBUTE_NORMAL, ShareAccess.FILE_SHARE_READ | ShareAccess.FILE_SHARE_WRITE,
                  CreateDisposition.FILE_OPEN_IF, CreateOptions.FILE_NON_DIRECTORY_FILE)
    return handle


def lock(handle, flags):
    element = SMB2LockElement()
    element["offset"], element["length"], element["flags"] = 0, 10, flags | LockFlags.SMB2_LOCKFLAG_FAIL_IMMEDIATELY
    request = SMB2LockRequest()
    request["file_id"] = handle.file_id
    request["locks"] = [element]
    connection, session = handle.connection, handle.tree_connect.session
    sent = connection.send(request, session.session_id, handle.tree_connect.tree_connect_id)
    connection.receive(sent, timeout=30)


def say(is_ok, name):
    print(("ok " if is_ok else "not ok ") + name, flush=True)


def main():
    connection, tree = connect()
    written, held = opened(tree, "written"), opened(tree, "held")
    lock(held, LockFlags.SMB2_LOCKFLAG_EXCLUSIVE_LOCK)
    place = connection.transport._sock.getsockname()
    print("working", flush=True)
    count, longest, error = 0, 0.0, None
    while not os.path.exists(STOP_FILE):
        began = time.monotonic()
        try:
            written.write(struct.pack("<Q", count) * (BLOCK // 8), count % 256 * BLOCK)
            written.flush()
        except Exception as failed:
            error = repr(failed)
            break
        longest = max(longest, time.monotonic() - began)
        count += 1
    say(error is None, f"a client writes and flushes on over its connection ({count} times)" + (f": {error}" if error else ""))
    if error is not None:
        raise SystemExit(1)
    say(place == connection.transport._sock.getsockname(), "... which is the same one")
    first = max(0, count - 256)
    wrong = [at for at in range(first, count) if written.read(at % 256 * BLOCK, BLOCK) != struct.pack("<Q", at) * (BLOCK // 8)]
    say(not wrong, "it reads back what it wrote")
    say(held.write(b"held", 0) == 4, "the file that it held open is open")
    _, other = connect()
    intruder = opened(other, "held")
    try:
        lock(intruder, LockFlags.SMB2_LOCKFLAG_EXCLUSIVE_LOCK)
        say(False, "the lock is held against others")
    except SMBResponseException as refused:
        say(refused.status & 0xFFFFFFFF == LOCK_NOT_GRANTED, "the lock is held against others")
    print(f"longest wait {longest * 1000:.0f} ms", flush=True)


main()
