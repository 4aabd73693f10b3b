#!/bin/bash
# Databases and file systems on the device, under power cuts, kills and failing syncs: the pytest
# module in stacks/.
#   FAULTS (3)   SEED (1; new: a fresh one, printed)   STACKS (sqlite redb ext4; also postgres)
#   STACK_SCHEMES (all)   schemes to draw from, one for each image
cd "$(dirname "$0")/stacks" || exit 1
files=()
for stack in ${STACKS:-sqlite redb ext4}; do files+=("test_$stack.py"); done
exec /usr/bin/python3 -B -m pytest -p no:cacheprovider -q test_oracle.py "${files[@]}"
