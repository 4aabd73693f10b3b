#!/bin/sh
# persy 1.8.1. Its documentation: "It guarantee the persistence of data even in case of crash through a in file write ahead log".
# A cut in a commit leaves a file that cannot be opened, although all that was written is on the device. `Persy::recover` reads it,
# its `finalize` fails with the same error.
. "$(dirname "$0")/../lib.sh"
rust
finding 1 "IO Error: failed to fill whole buffer" --check "$cache/base check \$FTLD_FILES" -- "$cache/base" run '{}' 12
