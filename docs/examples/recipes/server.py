#!/usr/bin/python3
"""Keeps the check of a recipe in Python up, for `--server`: the recipe and its libraries are loaded once. Each state is checked in a fork,
so that nothing of it is left.

usage: server.py RECIPE.py [FILE]     FILE: in the folder of a state, such as db; otherwise the check gets the folder
example: ftld crashes crash-test.rec --files --server --check 'recipes/server.py recipes/lmdb-base.py'
"""

import importlib.util
import os
import sys


def main(path, file):
    found = importlib.util.spec_from_file_location("recipe", path)
    recipe = importlib.util.module_from_spec(found)
    found.loader.exec_module(recipe)
    for line in sys.stdin:
        folder, _, os.environ["FTLD_MARK"] = line.rstrip("\n").rpartition("\t")
        child = os.fork()
        if child == 0:
            try:
                answer = recipe.check(os.path.join(folder, file)) or "ok"
            except BaseException as error:
                answer = f"{type(error).__name__}: {error}"
            print(answer.partition("\n")[0], flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(f"the check ended with {status}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(sys.argv[1], "".join(sys.argv[2:]))
