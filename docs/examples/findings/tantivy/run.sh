#!/bin/sh
# tantivy 0.27.0. `commit`: "After it returns, all of the document that were added since the last commit are published and persisted.
# In case of a crash or an hardware failure (as long as the hard disk is spared), it will be possible to resume indexing from this
# point." The folder is not synced after meta.json is replaced.
. "$(dirname "$0")/../lib.sh"
python tantivy==0.27.0
finding 1 "reported records are there" --check "python3 $here/base.py check \$FTLD_FILES" -- python3 "$here/base.py" run '{}' 3
