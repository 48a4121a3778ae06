"""Runs the command line on a terminal: terminal.py WORK. The server's data are in WORK/data."""
import os, pty, re, select, struct, sys, termios, time, fcntl

from peer_tests import run, test

WORK = sys.argv[1]
CENOTE, PORT = os.environ["CENOTE"], os.environ["SMB_PORT"]
os.environ["CENOTE_SMB_USER"], os.environ["CENOTE_SMB_PASSWORD"] = os.environ["SMB_USER"], os.environ["SMB_PASSWORD"]
PLACE = f"smb://127.0.0.1:{PORT}/demo"


class Terminal:
    """A command on a terminal of so many columns."""

    def __init__(self, columns, *words):
        self.child, self.side = pty.fork()
        if self.child == 0:
            os.environ["TERM"] = "xterm"
            os.execv(CENOTE, [CENOTE, "--data", f"{WORK}/data", *words])
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.text = ""

    def read(self, seconds):
        """Returns the output until the program ends, or until the time is over."""
        end = time.time() + seconds
        while (left := end - time.time()) > 0:
            if not select.select([self.side], [], [], left)[0]:
                break
            try:
                data = os.read(self.side, 65536)
            except OSError:
                return True
            if not data:
                return True
            self.text += data.decode(errors="replace")
        return False

    def wait_for(self, words, seconds=20):
        end = time.time() + seconds
        while words not in self.text:
            assert time.time() < end, f"'{words}' does not come: {self.text!r}"
            self.read(0.1)

    def type(self, text):
        os.write(self.side, text.encode())

    def end(self, seconds=120):
        assert self.read(seconds), f"it does not end: {self.text[-500:]!r}"
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


def screen(text, columns):
    """The lines that a terminal shows in the end, and the most lines that it showed at a time."""
    rows, row, column, most = [[]], 0, 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", text, re.S):
        if part.startswith("\x1b["):
            count = int(re.sub(r"\D", "", part) or 1)
            if part.endswith("A"):
                row = max(row - count, 0)
            elif part.endswith("B"):
                row += count
            elif part.endswith("K"):
                rows[row] = [] if part == "\x1b[2K" else rows[row][:column]
            elif part.endswith("J"):
                del rows[row + 1 :]
                rows[row] = rows[row][:column]
        elif part == "\r":
            column = 0
        elif part == "\n":
            row += 1
        elif part >= " ":
            if column == columns:
                row, column = row + 1, 0
            while len(rows) <= row:
                rows.append([])
            rows[row] = rows[row][:column] + [" "] * (column - len(rows[row])) + [part] + rows[row][column + 1 :]
            column += 1
        while len(rows) <= row:
            rows.append([])
        most = max(most, sum(1 for line in rows if "".join(line).strip()))
    return ["".join(line).rstrip() for line in rows if "".join(line).strip()], most


@test
def a_password_is_asked_for_twice_and_not_shown():
    terminal = Terminal(80, "user", "add", "tess", "--password-stdin")
    terminal.wait_for("Password: ")
    terminal.type("Secret.Word.1\n")
    terminal.wait_for("Once more: ")
    terminal.type("Secret.Word.1\n")
    assert terminal.end() == 0 and "user 'tess' was added" in terminal.text, terminal.text
    assert "Secret" not in terminal.text, terminal.text


@test
def two_passwords_that_differ_change_nothing():
    terminal = Terminal(80, "user", "set", "tess", "--password-stdin")
    for question, word in [("Password: ", "Secret.Word.1\n"), ("Once more: ", "Secret.Word.2\n")]:
        terminal.wait_for(question)
        terminal.type(word)
    assert terminal.end() == 1 and "the two passwords differ" in terminal.text, terminal.text


@test
def a_copy_shows_its_progress_in_one_line_and_leaves_what_it_did():
    with open(f"{WORK}/a-file-with-a-name-that-is-longer-than-a-narrow-terminal-is-wide", "wb") as out:
        out.truncate(300 << 20)
    for columns in (80, 40):
        source = f"{WORK}/a-file-with-a-name-that-is-longer-than-a-narrow-terminal-is-wide"
        terminal = Terminal(columns, "smb", "put", source, f"{PLACE}/a-copy-with-a-name-that-is-longer-than-that", "--transport", "tcp")
        assert terminal.end() == 0, terminal.text
        assert "%" in terminal.text or "MiB of" in terminal.text, f"no progress was shown: {terminal.text!r}"
        lines, most = screen(terminal.text, columns)
        shown = "".join(lines)
        assert shown.startswith("//127.0.0.1/demo/a-copy") and shown.endswith("over TCP"), lines
        assert most <= len(lines), f"{columns} columns: {most} lines were shown at a time: {terminal.text!r}"


@test
def a_tree_shows_how_many_files_and_bytes():
    os.makedirs(f"{WORK}/tree", exist_ok=True)
    for number in range(40):
        with open(f"{WORK}/tree/{number}", "wb") as out:
            out.write(b"x" * 1_000_000)
    os.symlink("nowhere", f"{WORK}/tree/link")
    terminal = Terminal(80, "smb", "put", "-r", f"{WORK}/tree", PLACE, "--transport", "tcp")
    assert terminal.end() == 1, terminal.text
    lines, _ = screen(terminal.text, 80)
    shown = " ".join(lines)
    assert "files" in terminal.text and "tree/link: it is a symbolic link" in shown and "40 files, 1 directory" in shown, lines


@test
def a_check_shows_its_progress_and_its_outcome_once():
    for columns in (80, 40):
        terminal = Terminal(columns, "volume", "check", "demo", "--watch")
        assert terminal.end() == 0, terminal.text
        lines, most = screen(terminal.text, columns)
        shown = "".join(lines)
        assert shown.startswith("job ") and shown.count("completed") == 1, lines
        assert most <= len(lines), f"{columns} columns: {most} lines were shown at a time: {terminal.text!r}"


sys.exit(run("the command line on a terminal"))
