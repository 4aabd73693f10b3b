#!/bin/sh
# sled 0.34.7. `flush`: "calls fsync. If this succeeds, it is guaranteed that all previous writes will be recovered if the system
# crashes." It calls sync_file_range, which sends no FLUSH and does not make a file's size durable (known: issue 1452).
. "$(dirname "$0")/../lib.sh"
rust
finding 1 "reported transactions are there" --check "$cache/base check \$FTLD_FILES" -- "$cache/base" run '{}' 12
