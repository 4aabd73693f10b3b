#!/bin/sh
# tidwall/wal 1.2.1: "High durability"; with NoSync "at risk of data loss when there's a server crash". Its binary format, the default,
# has no checksum: a tail of zeros, as ext4 leaves it for a file whose length was synced before its data, is read as entries that
# nobody wrote, or the log cannot be opened (issue 21: "Needs to recover from corrupted tail"). Without NoSync the moment is shorter.
. "$(dirname "$0")/../lib.sh"
[ -x "$cache/base" ] || (cd "$here" && go build -o "$cache/base" .) || unavailable "go does not build it"
finding 1 "bytes that were never written" --check "$cache/base check \$FTLD_FILES" -- "$cache/base" run '{}' 12
