"""rclone's smb backend, a process an operation."""
import os
import subprocess
import tempfile

REFUSED = "(?i)logon|invalid.*username|bad user name"
ROUNDS = 5


def connect(share, password):
    obscured = subprocess.run(["rclone", "obscure", password], capture_output=True, text=True, check=True).stdout.strip()
    environment = os.environ | {"RCLONE_CONFIG": os.environ["FOREIGN_WORK"] + "/rclone.conf", "RCLONE_CONFIG_HERE_TYPE": "smb",
        "RCLONE_CONFIG_HERE_HOST": os.environ["FOREIGN_HOST"], "RCLONE_CONFIG_HERE_PORT": os.environ["FOREIGN_PORT"],
        "RCLONE_CONFIG_HERE_USER": os.environ["FOREIGN_USER"], "RCLONE_CONFIG_HERE_PASS": obscured}
    return Client(share, environment)


class Client:
    def __init__(self, share, environment):
        self.share, self.environment = share, environment

    def at(self, name):
        return f"here:{self.share}/{name}"

    def run(self, *arguments, data=None):
        ended = subprocess.run(["rclone", "--retries", "1", "--low-level-retries", "1", *arguments], input=data, capture_output=True, env=self.environment)
        if ended.returncode != 0:
            raise RuntimeError(ended.stderr.decode(errors="replace").strip()[-300:])
        return ended.stdout

    def list(self, directory):
        return [line.rstrip("/") for line in self.run("lsf", self.at(directory)).decode().splitlines()]

    def mkdir(self, name):
        self.run("mkdir", self.at(name))

    def rmdir(self, name):
        self.run("rmdir", self.at(name))

    def write(self, name, data):
        with tempfile.NamedTemporaryFile() as local:
            local.write(data)
            local.flush()
            self.run("copyto", local.name, self.at(name))

    def read(self, name):
        return self.run("cat", self.at(name))

    def rename(self, old, new):
        self.run("moveto", self.at(old), self.at(new))

    def append(self, name, data):
        raise NotImplementedError("rclone appends to nothing")

    def truncate(self, name, size):
        raise NotImplementedError("rclone truncates nothing")

    def delete(self, name):
        self.run("deletefile", self.at(name))

    def write_many(self, directory, names):
        with tempfile.TemporaryDirectory() as local:
            for name in names:
                with open(f"{local}/{name}", "wb") as file:
                    file.write(b"x")
            self.run("copy", "--transfers", "8", local, self.at(directory))
