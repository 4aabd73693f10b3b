#!/bin/sh
# jammdb 0.11.0. Its author (issue 14): "It should handle power outages just fine."
# Pages and the meta page that names them are under one fsync: the meta page may arrive first, and the file cannot be opened.
. "$(dirname "$0")/../lib.sh"
rust
finding 1 "Did not find freelist page" --check "$cache/base check \$FTLD_FILES" -- "$cache/base" run '{}' 12
