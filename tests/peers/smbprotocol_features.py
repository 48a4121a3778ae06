"""Features of the server as Python's smbprotocol drives them. Prints `ok NAME` or `not ok NAME` a line; exit status 1 if any was not."""
import os, sys, uuid

import smbclient
import smbclient.path
import smbclient.shutil
from smbprotocol.connection import Connection, Dialects
from smbprotocol.exceptions import SMBAuthenticationError, SMBOSError, SMBResponseException
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

from peer_tests import run, test

PORT = int(os.environ["SMB_PORT"])
USER, PASSWORD, SHARE = os.environ["SMB_USER"], os.environ["SMB_PASSWORD"], os.environ["SMB_SHARE"]
ROOT = rf"\\127.0.0.1\{SHARE}"


def session(dialect=None, encrypt=False, password=PASSWORD):
    connection = Connection(uuid.uuid4(), "127.0.0.1", PORT, require_signing=True)
    connection.connect(dialect, timeout=20)
    made = Session(connection, USER, password, require_encryption=encrypt)
    made.connect()
    return connection, made


@test
def every_dialect_negotiates_logs_on_and_connects():
    for dialect in (Dialects.SMB_2_0_2, Dialects.SMB_2_1_0, Dialects.SMB_3_0_0, Dialects.SMB_3_0_2, Dialects.SMB_3_1_1):
        connection, made = session(dialect)
        tree = TreeConnect(made, ROOT)
        tree.connect(require_secure_negotiate=dialect >= Dialects.SMB_3_0_0 and dialect != Dialects.SMB_3_1_1)
        assert connection.dialect == dialect, hex(connection.dialect)
        connection.disconnect()


@test
def an_encrypted_session_works():
    connection, made = session(encrypt=True)
    TreeConnect(made, ROOT).connect()
    connection.disconnect()


@test
def a_wrong_password_is_refused():
    try:
        session(password="wrong")
    except (SMBAuthenticationError, SMBResponseException):
        return
    raise AssertionError("it was let in")


@test
def content_written_is_read_and_appended_to():
    path = rf"{ROOT}\content.txt"
    with smbclient.open_file(path, "w", port=PORT) as file:
        file.write("one\n")
    with smbclient.open_file(path, "a", port=PORT) as file:
        file.write("two\n")
    with smbclient.open_file(path, port=PORT) as file:
        assert file.read() == "one\ntwo\n"
    assert smbclient.stat(path, port=PORT).st_size == 8


@test
def random_writes_and_truncation_leave_what_they_should():
    path = rf"{ROOT}\random.bin"
    want = bytearray()
    with smbclient.open_file(path, "wb", port=PORT, buffering=0) as file:
        for number in range(100):
            at = number * 7919 % 300_000
            data = bytes([number + 1]) * (number * 97 % 9000 + 1)
            file.seek(at)
            file.write(data)
            want.extend(bytes(max(0, at + len(data) - len(want))))
            want[at:at + len(data)] = data
        file.truncate(200_000)
        del want[200_000:]
        file.truncate(250_000)
        want.extend(bytes(50_000))
    with smbclient.open_file(path, "rb", port=PORT) as file:
        assert file.read() == bytes(want)


@test
def directories_are_made_walked_and_removed():
    top = rf"{ROOT}\tree"
    smbclient.makedirs(rf"{top}\a\b\c", port=PORT)
    for name in ("a\\1", "a\\b\\2", "a\\b\\c\\3"):
        with smbclient.open_file(rf"{top}\{name}", "w", port=PORT) as file:
            file.write(name)
    walked = sorted(name for _, _, files in smbclient.walk(top, port=PORT) for name in files)
    assert walked == ["1", "2", "3"], walked
    smbclient.shutil.rmtree(top, port=PORT)
    assert not smbclient.path.exists(top, port=PORT)


@test
def a_directory_of_3000_files_lists_each_once():
    top = rf"{ROOT}\many"
    smbclient.mkdir(top, port=PORT)
    for number in range(3000):
        with smbclient.open_file(rf"{top}\file-{number}", "w", port=PORT):
            pass
    names = smbclient.listdir(top, port=PORT)
    assert len(names) == 3000 and len(set(names)) == 3000, len(names)
    assert sorted(smbclient.listdir(top, search_pattern="*-299?", port=PORT)) == [f"file-299{d}" for d in range(10)]
    smbclient.shutil.rmtree(top, port=PORT)


@test
def renames_replace_only_when_told_to():
    for name in ("x", "y"):
        with smbclient.open_file(rf"{ROOT}\{name}", "w", port=PORT) as file:
            file.write(name)
    try:
        smbclient.rename(rf"{ROOT}\x", rf"{ROOT}\y", port=PORT)
        raise AssertionError("it replaced")
    except SMBOSError as error:
        assert error.ntstatus == 0xC0000035, hex(error.ntstatus)
    smbclient.replace(rf"{ROOT}\x", rf"{ROOT}\y", port=PORT)
    with smbclient.open_file(rf"{ROOT}\y", port=PORT) as file:
        assert file.read() == "x"
    smbclient.remove(rf"{ROOT}\y", port=PORT)


@test
def hard_links_share_content():
    with smbclient.open_file(rf"{ROOT}\first", "w", port=PORT) as file:
        file.write("shared")
    smbclient.link(rf"{ROOT}\first", rf"{ROOT}\second", port=PORT)
    assert smbclient.stat(rf"{ROOT}\first", port=PORT).st_nlink == 2
    smbclient.remove(rf"{ROOT}\first", port=PORT)
    with smbclient.open_file(rf"{ROOT}\second", port=PORT) as file:
        assert file.read() == "shared"
    smbclient.remove(rf"{ROOT}\second", port=PORT)


@test
def a_symbolic_link_is_kept_and_reads_back():
    with smbclient.open_file(rf"{ROOT}\target", "w", port=PORT):
        pass
    smbclient.symlink("target", rf"{ROOT}\link", port=PORT)
    assert smbclient.readlink(rf"{ROOT}\link", port=PORT).endswith("target")
    assert smbclient.path.islink(rf"{ROOT}\link", port=PORT)
    smbclient.remove(rf"{ROOT}\link", port=PORT)
    smbclient.remove(rf"{ROOT}\target", port=PORT)


@test
def symbolic_links_are_followed_to_files_and_directories_and_through_the_middle_of_a_path():
    directory = rf"{ROOT}\linked"
    smbclient.makedirs(rf"{directory}\sub", port=PORT)
    with smbclient.open_file(rf"{directory}\sub\file", "w", port=PORT) as file:
        file.write("content")
    smbclient.symlink(r"sub\file", rf"{directory}\relative", port=PORT)
    smbclient.symlink(rf"{directory}\sub", rf"{directory}\absolute", target_is_directory=True, port=PORT)
    smbclient.symlink(r"..\linked\sub", rf"{directory}\up", target_is_directory=True, port=PORT)
    for path in ("relative", r"absolute\file", r"up\file"):
        with smbclient.open_file(rf"{directory}\{path}", port=PORT) as file:
            assert file.read() == "content", path
    assert smbclient.listdir(rf"{directory}\up", port=PORT) == ["file"]
    # The server follows nothing: a new name below a link is refused, and what was to get it is still there.
    for change in (smbclient.link, smbclient.rename):
        try:
            change(rf"{directory}\sub\file", rf"{directory}\up\new", port=PORT)
        except (SMBOSError, ValueError):
            continue  # ValueError: smbprotocol looks for the CREATE to send anew in any request that stopped on a link.
        raise AssertionError("a name below a link was made")
    with smbclient.open_file(rf"{directory}\sub\file", port=PORT) as file:
        assert file.read() == "content"
    for path in ("relative", "sub\\file"):
        smbclient.remove(rf"{directory}\{path}", port=PORT)
    for path in ("absolute", "up", "sub"):
        smbclient.rmdir(rf"{directory}\{path}", port=PORT)
    smbclient.rmdir(directory, port=PORT)


@test
def extended_attributes_are_kept():
    path = rf"{ROOT}\attributed"
    with smbclient.open_file(path, "w", port=PORT):
        pass
    smbclient.setxattr(path, b"ONE", b"first", port=PORT)
    smbclient.setxattr(path, b"TWO", b"\0\1\2", port=PORT)
    assert smbclient.getxattr(path, b"ONE", port=PORT) == b"first"
    assert sorted(smbclient.listxattr(path, port=PORT)) == [b"ONE", b"TWO"]
    smbclient.removexattr(path, b"ONE", port=PORT)
    assert smbclient.listxattr(path, port=PORT) == [b"TWO"]
    smbclient.remove(path, port=PORT)


@test
def streams_have_their_own_content():
    path = rf"{ROOT}\streamed"
    for name, content in ((path, "main"), (f"{path}:extra", "other")):
        with smbclient.open_file(name, "w", port=PORT) as file:
            file.write(content)
    with smbclient.open_file(f"{path}:extra", port=PORT) as file:
        assert file.read() == "other"
    with smbclient.open_file(path, port=PORT) as file:
        assert file.read() == "main"
    smbclient.remove(path, port=PORT)


@test
def times_set_are_times_read():
    path = rf"{ROOT}\timed"
    with smbclient.open_file(path, "w", port=PORT):
        pass
    smbclient.utime(path, times=(1_000_000_000, 1_100_000_000), port=PORT)
    found = smbclient.stat(path, port=PORT)
    assert (found.st_atime, found.st_mtime) == (1_000_000_000, 1_100_000_000), found
    smbclient.remove(path, port=PORT)


@test
def share_modes_keep_others_out():
    path = rf"{ROOT}\exclusive"
    with smbclient.open_file(path, "w", port=PORT, share_access=None) as first:
        first.write("x")
        try:
            smbclient.open_file(path, "r", port=PORT)
            raise AssertionError("it was opened twice")
        except SMBOSError as error:
            assert error.ntstatus == 0xC0000043, hex(error.ntstatus)
    smbclient.remove(path, port=PORT)


@test
def bad_names_get_their_status():
    for name, statuses in (
        ("none", {0xC0000034}),
        (r"none\none", {0xC000003A}),
        (r"..\..\etc\passwd", {0xC0000033, 0xC0000039, 0xC000003A, 0xC000003B}),
        ("bad|name", {0xC0000033}),
        ("a" * 300, {0xC0000033, 0xC0000034}),
    ):
        try:
            smbclient.open_file(rf"{ROOT}\{name}", port=PORT)
            raise AssertionError(name)
        except SMBOSError as error:
            assert error.ntstatus in statuses, (name, hex(error.ntstatus))


@test
def a_server_side_copy_copies():
    content = os.urandom(3 << 20)
    with smbclient.open_file(rf"{ROOT}\source", "wb", port=PORT) as file:
        file.write(content)
    smbclient.copyfile(rf"{ROOT}\source", rf"{ROOT}\copy", port=PORT)
    with smbclient.open_file(rf"{ROOT}\copy", "rb", port=PORT) as file:
        assert file.read() == content
    for name in ("source", "copy"):
        smbclient.remove(rf"{ROOT}\{name}", port=PORT)


if __name__ == "__main__":
    smbclient.register_session("127.0.0.1", username=USER, password=PASSWORD, port=PORT)
    sys.exit(run("smbprotocol"))
