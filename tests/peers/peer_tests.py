"""The tests of one Python peer: each a function, in the order in which they stand, with a line of result each."""
import time
import traceback

TESTS = []


def test(function):
    TESTS.append(function)
    return function


def run(peer, names=()):
    """Runs all, or those of these names; status for the process: 0 if none failed."""
    failed = 0
    for function in TESTS:
        if names and function.__name__ not in names:
            continue
        name, began = f"{peer}: " + function.__name__.replace("_", " "), time.monotonic()
        try:
            function()
            print(f"ok      {name} ({time.monotonic() - began:.1f} s)", flush=True)
        except Exception:
            failed += 1
            print("not ok ", name, flush=True)
            traceback.print_exc()
    return 1 if failed else 0
