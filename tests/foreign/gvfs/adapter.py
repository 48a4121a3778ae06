"""GNOME's virtual file system by `gio`, a process an operation, in a session bus of its own."""
import os
import subprocess
import urllib.parse

REFUSED = "(?i)asks for another password|Permission denied|LOGON"
ROUNDS = 5


def location(share, name):
    return f"smb://{os.environ['FOREIGN_USER']}@{os.environ['FOREIGN_HOST']}/{share}/{urllib.parse.quote(name)}"


def run(*arguments, data=None):
    ended = subprocess.run(["gio", *arguments], input=data, capture_output=True, timeout=120)
    if ended.returncode != 0:
        raise RuntimeError((ended.stderr or ended.stdout).decode(errors="replace").strip()[-300:])
    return ended.stdout


def connect(share, password):
    at = location(share, "")
    # Every connect mounts anew, so that a password that is refused is asked for again.
    if password != os.environ["FOREIGN_PASSWORD"]:
        subprocess.run(["gio", "mount", "--unmount", at], capture_output=True, timeout=60)
    elif share in mounted:
        return Client(share)
    # gio asks for what the location lacks: the domain and the password. An answer too few ends it.
    ended = subprocess.run(["gio", "mount", at], input=f"WORKGROUP\n{password}\n".encode(), capture_output=True, timeout=60)
    if ended.returncode != 0:
        raise RuntimeError("asks for another password: " + (ended.stderr + ended.stdout).decode(errors="replace")[-300:])
    mounted.add(share)
    return Client(share)


mounted = set()


class Client:
    def __init__(self, share):
        self.share = share

    def at(self, name):
        return location(self.share, name)

    def list(self, directory):
        return run("list", "--hidden", self.at(directory)).decode().splitlines()

    def mkdir(self, name):
        run("mkdir", self.at(name))

    def rmdir(self, name):
        run("remove", self.at(name))

    def write(self, name, data):
        run("save", self.at(name), data=data)

    def read(self, name):
        return run("cat", self.at(name))

    def rename(self, old, new):
        run("move", self.at(old), self.at(new))

    def append(self, name, data):
        run("save", "--append", self.at(name), data=data)

    def truncate(self, name, size):
        raise NotImplementedError("gio truncates nothing")

    def delete(self, name):
        run("remove", self.at(name))

    def write_many(self, directory, names):
        # `gio copy` takes many sources for one directory.
        local = f"{os.environ['FOREIGN_WORK']}/gvfs-many"
        os.makedirs(local, exist_ok=True)
        for name in names:
            with open(f"{local}/{name}", "wb") as file:
                file.write(b"x")
        run("copy", *[f"{local}/{name}" for name in names], self.at(directory))
