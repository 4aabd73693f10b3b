#!/bin/bash
# A check for `ftld crashes`, to start one of your own from.
#   FTLD_IMAGE   the state: a raw image. It is a copy; change it as you like, but not its length
#   FTLD_URI     the same over NBD
#   FTLD_MARK    text of the last `ftld mark` before the cut: what it reported has to be there; empty before the first
#   FTLD_CASE    name of the case
#   FTLD_WORK    an empty folder for files of the check; removed afterwards. TMPDIR names it, too
# The current folder is that of `ftld crashes`. Exit code 0: the state is good; 126 and 127: the check could not run, which
# ends the exploration; every other code: the state is bad, and what was printed goes into the report.
set -euo pipefail
# A state before the first mark promises nothing.
[ -n "$FTLD_MARK" ] || exit 0
# First recover as your software does after a power cut, then look:
#   your-program --recover "$FTLD_IMAGE"
#   your-program --verify "$FTLD_IMAGE" --at-least "$FTLD_MARK"
