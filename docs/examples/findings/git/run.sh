#!/bin/sh
# git 2.39.5. git-config(1): the default of core.fsync is "committed,-loose-object, which has good performance, but risks losing recent
# work in the event of an unclean system shutdown". `git gc` moves branches to a file that is not synced, and deletes theirs: branches
# that were synced before, no recent work, are gone. With core.fsync=committed,reference they stay.
. "$(dirname "$0")/../lib.sh"
finding 1 "is gone" --check "$here/gc.sh check \$FTLD_FILES" -- "$here/gc.sh" run '{}'
finding 0 " 0 failed" --check "$here/gc.sh check \$FTLD_FILES" -- "$here/gc.sh" run '{}' core.fsync=committed,reference
