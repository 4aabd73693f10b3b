#!/usr/bin/python3
"""A recipe for `ftld crash-test --group 2`: a tiny database whose log is on another disk. A commit changes two pages.

usage: two-disks.py run FOLDER LOG_FOLDER COMMITS HOW    HOW: order: the record of a commit is durable in the log before a page changes;
       or wrong: the pages are synced first, and a power cut between them leaves half a commit that no record repairs
       two-disks.py check FOLDER LOG_FOLDER              with the log, is the reported commit there, or a later one, and whole?
"""

import os
import struct
import sys
import zlib

PAGE = 4096
RECORD = struct.Struct("<QI")
CHECKPOINT_EVERY = 4


def opened(folder, name, size=0):
    """Creates a file, durable with its name."""
    file = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT)
    os.pwrite(file, bytes(size), 0)
    os.fsync(file)
    of_folder = os.open(folder, os.O_RDONLY)
    os.fsync(of_folder)
    os.close(of_folder)
    return file


def run(data_folder, log_folder, commits, how):
    data, log = opened(data_folder, "data", 2 * PAGE), opened(log_folder, "log")

    def write_log():
        number = commit.to_bytes(8, "little")
        os.pwrite(log, RECORD.pack(commit, zlib.crc32(number)), at * RECORD.size)
        os.fsync(log)

    def write_pages():
        for page in range(2):
            os.pwrite(data, commit.to_bytes(8, "little").ljust(PAGE, b"."), page * PAGE)

    at = 0
    for commit in range(1, int(commits) + 1):
        if how == "wrong":
            write_pages()
            os.fsync(data)
            write_log()
        else:
            write_log()
            write_pages()
        at += 1
        print(f"ACK {commit}", flush=True)
        sys.stdin.readline()
        if commit % CHECKPOINT_EVERY == 0:
            os.fsync(data)
            os.ftruncate(log, 0)
            at = 0


def check(data_folder, log_folder):
    reported = int(os.environ.get("FTLD_MARK") or 0)
    try:
        with open(os.path.join(data_folder, "data"), "rb") as file:
            data = file.read()
        with open(os.path.join(log_folder, "log"), "rb") as file:
            log = file.read()
    except FileNotFoundError as missing:
        sys.exit(f"commit {reported} was reported: {missing}" if reported else 0)
    pages = [int.from_bytes(data[page : page + 8], "little") for page in (0, PAGE)]
    for number, check_sum in RECORD.iter_unpack(log[: len(log) // RECORD.size * RECORD.size]):
        if not number or zlib.crc32(number.to_bytes(8, "little")) != check_sum:
            break
        pages = [number, number]
    if pages[0] != pages[1]:
        sys.exit(f"half a commit: the pages have {pages[0]} and {pages[1]}, and the log has no record")
    if pages[0] < reported:
        sys.exit(f"commit {reported} was reported, commit {pages[0]} is the last one")


{"run": run, "check": check}[sys.argv[1]](*sys.argv[2:])
