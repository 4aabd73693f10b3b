#!/usr/bin/python3
"""A recipe for `ftld crash-test`: a file of settings that Python replaces. A value is reported once it is written.

usage: replace.py run FOLDER VALUES HOW    HOW: whole, with all syncs; what is left out: no-fsync, no-folder; or in-place:
       the file is truncated, written and synced, which a power cut hardly shows without --agitate
       replace.py check FOLDER             is the reported value there, or a later one, and whole?
"""

import json
import os
import sys
import time


def write(path, value, sync, pause=0.0):
    with open(path, "w") as file:
        time.sleep(pause)
        json.dump({"value": value, "padding": "x" * 20000}, file)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def replace(folder, value, how):
    path = os.path.join(folder, "settings.json")
    if how == "in-place":
        # As a program that composes a long text.
        write(path, value, True, 0.01)
        return
    write(path + ".new", value, how != "no-fsync")
    os.replace(path + ".new", path)
    if how == "whole":
        opened = os.open(folder, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)


def run(folder, values, how):
    for value in range(1, values + 1):
        replace(folder, value, how)
        print("ACK", value, flush=True)
        answer = sys.stdin.readline().strip()
        if answer != "OK":
            sys.exit(f"replace.py: {answer}")


def check(folder):
    reported = int(os.environ.get("FTLD_MARK") or 0)
    if reported == 0:
        return None
    try:
        with open(os.path.join(folder, "settings.json")) as file:
            value = json.load(file)["value"]
    except (OSError, ValueError) as error:
        return f"settings.json: {error}"
    return None if value >= reported else f"value {value}, {reported} was reported"


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and len(sys.argv) == 5 and sys.argv[4] in ("whole", "no-fsync", "no-folder", "in-place"):
        run(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    elif sys.argv[1:2] == ["check"] and len(sys.argv) == 3:
        sys.exit(check(sys.argv[2]))
    else:
        sys.exit(__doc__)
