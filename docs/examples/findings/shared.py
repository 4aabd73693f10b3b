"""What the Python programs share: `base.py run FOLDER N`, `base.py check FOLDER`. Record N is reported (`ACK N`) once the call that
makes it durable returned."""

import os
import sys


def value(number):
    return f"{number};" * 100


def report(number):
    print("ACK", number, flush=True)
    answer = sys.stdin.readline().strip()
    if answer != "OK":
        sys.exit(answer)


def main(run, read):
    """`run` writes records in a folder; `read` opens what is left after the cut, and returns number and value of every record."""
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2], int(sys.argv[3]))
    else:
        try:
            found = read(sys.argv[2])
            problem = verify(found, int(os.environ.get("FTLD_MARK") or 0))
        # A panic of an extension in Rust is a BaseException, no Exception.
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}".splitlines()[0]
        print(problem or "whole", flush=True)
        # Ends without closing anything, as a power cut does.
        os._exit(1 if problem else 0)
    os._exit(0)


def verify(found, reported):
    for number in range(1, len(found) + 1):
        if number not in found:
            return f"record {number} is missing"
        if found[number] != value(number):
            return f"record {number} is wrong" + ("" if found[number] else ", it is empty")
    return None if len(found) >= reported else f"{len(found)} of {reported} reported records are there"
