#!/bin/sh
# Kuzu 0.11.3: "Serializable ACID transactions". After a cut in CHECKPOINT nodes that were committed before it are empty. The cause was
# not traced in its source.
. "$(dirname "$0")/../lib.sh"
python kuzu==0.11.3
finding 1 "is wrong, it is empty" --check "python3 $here/base.py check \$FTLD_FILES" -- python3 "$here/base.py" run '{}' 3
