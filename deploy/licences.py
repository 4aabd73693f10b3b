#!/usr/bin/env python3
"""Writes the licences of everything that is linked into the program: every crate, its licence and its texts.

usage: licences.py [OPTION...] > FILE     options of cargo that choose the build, such as --no-default-features
"""

import json
import re
import subprocess
import sys
from pathlib import Path

TEXT = re.compile(r"(?i)^(licen[cs]e|copying|notice|copyright|unlicense)")


def cargo(*words):
    return subprocess.run(["cargo", *words], check=True, capture_output=True, text=True).stdout


def main():
    options = sys.argv[1:]
    tree = cargo("tree", "--locked", "-p", "ftld", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}", *options)
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    packages = json.loads(cargo("metadata", "--locked", "--format-version", "1"))["packages"]
    print("The program contains these crates. Their licences follow, each text once, after the names of its crates.")
    texts = {}
    for package in sorted(packages, key=lambda package: (package["name"], package["version"])):
        if (package["name"], "v" + package["version"]) not in linked:
            continue
        name = f"{package['name']} {package['version']}"
        authors = ", ".join(package["authors"])
        print(f"\n{name}: {package['license'] or package['license_file']}")
        print(f"  {package['repository'] or 'no address'}" + (f"\n  {authors}" if authors else ""))
        for path in sorted(Path(package["manifest_path"]).parent.iterdir()):
            if path.is_file() and TEXT.match(path.name):
                text = path.read_text(errors="replace").strip()
                # The same text with other line ends is the same.
                texts.setdefault(" ".join(text.split()), (text, []))[1].append(f"{name} ({path.name})")
    if not texts:
        sys.exit("licences.py: cargo tree names no crate")
    for text, names in texts.values():
        print("\n" + "=" * 80 + "\n" + "\n".join(names) + "\n" + "-" * 80 + f"\n{text}")


if __name__ == "__main__":
    main()
