#!/usr/bin/python3
"""Prints links of the Markdown files in a folder that lead to no file in it.

usage: dead_links.py FOLDER      exit code 1 if there is one
"""

import pathlib
import re
import sys

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def dead_links(folder: pathlib.Path) -> list[str]:
    """Returns `FILE: LINK` for each relative link without a file."""
    folder = folder.resolve()
    dead = []
    for file in sorted(folder.rglob("*.md")):
        text = re.sub(r"```.*?```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in LINK.findall(text):
            if re.match(r"[a-z]+:", target):
                continue
            to = (file.parent / target).resolve()
            if not (to.is_relative_to(folder) and to.exists()):
                dead.append(f"{file.relative_to(folder)}: {target}")
    return dead


if __name__ == "__main__":
    found = dead_links(pathlib.Path(sys.argv[1]))
    print("\n".join(found))
    sys.exit(1 if found else 0)
