"""An honest client beside the adversary: victim.py PORT SOURCE SHARE FILE, USER and PASSWORD in the environment.

Round after round it connects anew, negotiates, logs on, connects the share, writes and reads 4 KiB and 1 MiB of a file of its
own, compares every byte and goes. A line for each step on standard output: `done BEGAN SECONDS STEP` or `fail BEGAN SECONDS STEP WHY`
(BEGAN by time.monotonic(), which all processes of a machine share). Ends when standard input does.
"""
import os, random, select, sys, time

import smb2

PORT, SOURCE, SHARE, FILE = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
USER, KEY = os.environ["USER"], smb2.response_key(os.environ["USER"], os.environ["PASSWORD"])
# A step that takes longer has failed.
STEP_SECONDS_MAX = 10
PAUSE_SECONDS = 0.01
SMALL, LARGE = 4096, 1 << 20
RANDOM = random.Random(1)
POOL = RANDOM.randbytes(2 * LARGE)


def some(length):
    at = RANDOM.randrange(len(POOL) - length)
    return POOL[at:at + length]


class Round:
    """One logon and what is done with it."""

    def __init__(self):
        self.client, self.file, self.small, self.large = None, None, some(SMALL), some(LARGE)

    def connect(self):
        self.client = smb2.Client(("127.0.0.1", PORT), SOURCE, STEP_SECONDS_MAX)
        self.client.signs = True
        self.client.negotiate()

    def log_on(self):
        if status := self.client.log_on(USER, KEY):
            raise smb2.Refused("logon", status)

    def open(self):
        self.client.connect_share(SHARE)
        self.file = self.client.create(FILE)

    def write_small(self):
        self.client.write(self.file, LARGE, self.small)

    def read_small(self):
        assert self.client.read(self.file, LARGE, SMALL) == self.small, "4 KiB are not what was written"

    def write_large(self):
        self.client.write(self.file, 0, self.large)

    def read_large(self):
        assert self.client.read(self.file, 0, LARGE) == self.large, "1 MiB is not what was written"

    def close(self):
        self.client.close_file(self.file)

    def steps(self):
        return (self.connect, self.log_on, self.open, self.write_small, self.read_small, self.write_large, self.read_large, self.close)


def run_round():
    this = Round()
    try:
        for step in this.steps():
            began = time.monotonic()
            try:
                step()
            except Exception as error:
                print(f"fail {began} {time.monotonic() - began} {step.__name__} {type(error).__name__}: {error}", flush=True)
                return
            print(f"done {began} {time.monotonic() - began} {step.__name__}", flush=True)
    finally:
        if this.client:
            this.client.socket.close()


while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
    run_round()
