"""Strangers and hogs cost the dashboard little: PORT TOKEN-FILE CENOTE DATA PID."""
import re
import socket
import subprocess
import sys
import time

from peer_tests import run, test

PORT, TOKEN = int(sys.argv[1]), open(sys.argv[2]).read().strip()
CENOTE, DATA, PID = sys.argv[3:6]


def connect():
    connection = socket.create_connection(("127.0.0.1", PORT), timeout=10)
    return connection


def status(connection):
    head = b""
    while b"\r\n" not in head:
        received = connection.recv(4096)
        if not received:
            return 0
        head += received
    return int(head.split()[1])


def events(token=TOKEN):
    connection = connect()
    connection.sendall(f"GET /api/v1/dashboard/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    return connection


def memory_kib():
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{PID}/status").read())[1])


def served():
    """The command line gets its answer, and how long it took."""
    began = time.monotonic()
    done = subprocess.run([CENOTE, "--data", DATA, "disk", "list"], capture_output=True, timeout=20)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


@test
def a_wrong_token_is_refused():
    for token in ["0" * 64, "", TOKEN[:-1], TOKEN + "0"]:
        assert status(events(token)) == 401, token


@test
def a_token_in_a_query_is_none():
    connection = connect()
    connection.sendall(f"GET /api/v1/dashboard/events?token={TOKEN} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert status(connection) == 401


@test
def a_huge_header_is_refused():
    connection = connect()
    try:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n")
        assert status(connection) in (0, 431)
    except ConnectionError:
        pass
    served()


@test
def a_thousand_streams_are_bounded_and_the_command_line_gets_in():
    before = memory_kib()
    held, answers = [], {}
    for _ in range(1000):
        try:
            connection = events()
            answer = status(connection)
        except ConnectionError:
            answer = 0
        answers[answer] = answers.get(answer, 0) + 1
        held.append(connection)
    assert answers.get(200) == 32, answers
    assert set(answers) <= {200, 503, 0}, answers
    took = max(served() for _ in range(3))
    assert took < 2, took
    # They take nothing meanwhile.
    time.sleep(3)
    took = served()
    grown = memory_kib() - before
    assert took < 2 and grown < 32 << 10, (took, grown)
    for connection in held:
        connection.close()
    for _ in range(50):
        connection = events()
        if status(connection) == 200:
            connection.close()
            return
        connection.close()
        time.sleep(0.1)
    raise AssertionError("streams that ended leave no room")


@test
def rubbish_for_the_fleet_is_refused():
    for body in [b"{}", b"[1]", b"{\"nodes\": 1}", b"\xff" * 100, b"{\"label\":\"" + b"a" * 100_000 + b"\"}"]:
        connection = connect()
        head = f"POST /api/v1/dashboard/fleet HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        assert status(connection) in (400, 413), body[:20]


sys.exit(run("hogs"))
