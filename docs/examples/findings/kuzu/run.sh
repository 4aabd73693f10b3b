#!/bin/sh
# Kuzu 0.11.3: "Serializable ACID transactions". CHECKPOINT does not sync the pages that it appends to the database before the log says
# that they are there: after a cut committed nodes are empty.
. "$(dirname "$0")/../lib.sh"
python kuzu==0.11.3
finding 1 "is wrong, it is empty" --check "python3 $here/base.py check \$FTLD_FILES" -- python3 "$here/base.py" run '{}' 3
