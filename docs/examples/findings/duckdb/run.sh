#!/bin/sh
# DuckDB 2.0.1. CHECKPOINT writes a block of 256 KiB that the last checkpoint uses; if it arrives in part, its checksum is wrong, and
# the database, whose rows were committed and checkpointed before, cannot be opened.
. "$(dirname "$0")/../lib.sh"
python duckdb==2.0.1
finding 1 "Corrupt database file" --check "python3 $here/base.py check \$FTLD_FILES" -- python3 "$here/base.py" run '{}' 2
