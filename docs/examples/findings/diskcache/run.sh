#!/bin/sh
# diskcache 5.6.3, also with sqlite_synchronous=2. The row that names a file of a value may be durable before the file: `get` returns an empty
# value, and not the default as for a value that is missing (pull request 177 describes such a file).
. "$(dirname "$0")/../lib.sh"
python diskcache==5.6.3
finding 1 "is wrong, it is empty" --check "python3 $here/base.py check \$FTLD_FILES" -- python3 "$here/base.py" run '{}' 6
