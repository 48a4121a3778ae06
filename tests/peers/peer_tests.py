"""The tests of one Python peer: each a function, in the order in which they stand, with a line of result each."""
import traceback

TESTS = []


def test(function):
    TESTS.append(function)
    return function


def run(peer):
    """Runs all; status for the process: 0 where none failed."""
    failed = 0
    for function in TESTS:
        name = f"{peer}: " + function.__name__.replace("_", " ")
        try:
            function()
            print("ok     ", name, flush=True)
        except Exception:
            failed += 1
            print("not ok ", name, flush=True)
            traceback.print_exc()
    return 1 if failed else 0
