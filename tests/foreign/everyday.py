"""The everyday of a client on a share, for clients that Python drives: everyday.py ADAPTER prints "ok STEP", "not ok STEP: reason" or
"skip STEP: reason" for each step.

The adapter is a module with `connect(share, password)`, whose result has the methods that are called below; a method that the client lacks
raises NotImplementedError with the reason. REFUSED is a pattern for what the client says when the server refuses a password."""
import concurrent.futures
import importlib.util
import os
import random
import re
import sys

SHARE = os.environ["FOREIGN_SHARE"]
SEALED = os.environ["FOREIGN_SEALED"]
PASSWORD = os.environ["FOREIGN_PASSWORD"]


def random_bytes(size):
    return random.Random(size).randbytes(size)


def expect(condition, reason):
    if not condition:
        raise AssertionError(reason)


def write_and_compare(client, name, data):
    client.write(name, data)
    expect(client.read(name) == data, f"{name} does not hold what was written")


def directories(client):
    client.mkdir("directory")
    client.mkdir("directory/inner")
    expect(client.list("directory") == ["inner"], f"the listing is {client.list('directory')}")
    client.rmdir("directory/inner")
    client.rmdir("directory")
    expect("directory" not in client.list(""), "the directory is still there")


def rename_file(client):
    client.rename("file", "renamed")
    names = client.list("")
    expect("file" not in names and "renamed" in names, f"the listing is {names}")
    expect(client.read("renamed") == random_bytes(100_000), "the renamed file does not hold what was written")


def rename_directory(client):
    client.mkdir("old")
    client.write("old/inside", b"inside")
    client.rename("old", "new")
    expect(client.read("new/inside") == b"inside", "the file inside does not hold what was written")
    expect("old" not in client.list(""), "the old name is still there")


def append(client):
    client.write("log", b"first\n")
    client.append("log", b"second\n")
    expect(client.read("log") == b"first\nsecond\n", f"the file holds {client.read('log')}")


def truncate(client):
    client.write("cut", b"123456")
    client.truncate("cut", 3)
    expect(client.read("cut") == b"123", f"the file holds {client.read('cut')}")


def delete(client):
    client.write("gone", b"gone")
    client.delete("gone")
    expect("gone" not in client.list(""), "the file is still there")


def unicode_names(client):
    names = ["Übergrößenträger", "日本語のファイル", "Ελληνικά и русский", "emoji 🦀"]
    client.mkdir("unicode")
    for name in names:
        write_and_compare(client, f"unicode/{name}", name.encode())
    expect(sorted(client.list("unicode")) == sorted(names), f"the listing is {client.list('unicode')}")


def many_names(client):
    client.mkdir("many")
    names = [f"name-{number:04}" for number in range(2000)]
    client.write_many("many", names)
    listed = client.list("many")
    expect(len(listed) == 2000 and sorted(listed) == names, f"{len(listed)} entries, {len(set(listed))} names")


def encrypted(adapter):
    write_and_compare(adapter.connect(SEALED, PASSWORD), "sealed", random_bytes(1_000_000))


def wrong_password(adapter):
    try:
        adapter.connect(SHARE, PASSWORD + "x").list("")
    except Exception as error:
        expect(re.search(adapter.REFUSED, f"{type(error).__name__} {error}"), f"not a refused password: {error!r}")
    else:
        raise AssertionError("was accepted")


def one_of_two(adapter, number):
    client = adapter.connect(SHARE, PASSWORD)
    for round_number in range(getattr(adapter, "ROUNDS", 50)):
        write_and_compare(client, f"client-{number}", random_bytes(10_000 * (number + 1) + round_number))


def two_clients(adapter):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for result in [pool.submit(one_of_two, adapter, number) for number in range(2)]:
            result.result()


def step(name, run, *arguments):
    try:
        run(*arguments)
        line = f"ok {name}"
    except NotImplementedError as reason:
        line = f"skip {name}: {reason}"
    except Exception as error:
        line = f"not ok {name}: {type(error).__name__} {error}".replace("\n", " ")[:400]
    print(line, flush=True)


def main():
    sys.path.insert(0, os.path.dirname(sys.argv[1]))
    spec = importlib.util.spec_from_file_location("adapter", sys.argv[1])
    adapter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(adapter)
    client = adapter.connect(SHARE, PASSWORD)
    step("connect", client.list, "")
    step("directories", directories, client)
    step("write and read back", write_and_compare, client, "file", random_bytes(100_000))
    step("rename a file", rename_file, client)
    step("rename a directory", rename_directory, client)
    step("append", append, client)
    step("truncate", truncate, client)
    step("delete", delete, client)
    step("Unicode names", unicode_names, client)
    step("64 MiB", write_and_compare, client, "large", random_bytes(64 << 20))
    step("2,000 names", many_names, client)
    step("encrypted", encrypted, adapter)
    step("two clients", two_clients, adapter)
    step("wrong password", wrong_password, adapter)


main()
