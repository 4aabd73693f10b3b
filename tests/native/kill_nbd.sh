#!/bin/bash
# kill -9 at random moments under load, for every scheme, and with a write cache: see kill_nbd.py.
#   KILLS (3)  SEED (1)
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
here=$(dirname "$0")
. "$here/../lib.sh"
trap 'rm -rf "$SCRATCH"' EXIT

names=$(schemes) || give_up "ftld names no scheme"
for scheme in $names; do
  folder=$SCRATCH/$scheme
  mkdir "$folder"
  /usr/bin/python3 "$here/kill_nbd.py" "$(command -v ftld)" "$scheme" "$folder" "$KILLS" "${SEED:-1}" 2> "$SCRATCH/kill.log" ||
    { bad "$scheme: data or daemon lost"; tail -n 30 "$SCRATCH/kill.log"; }
  step "$scheme: ftld check" ftld check "$folder/default.ftld"
done
for model in any ordered; do
  scheme=${names%%[[:space:]]*}
  folder=$SCRATCH/cache-$model
  mkdir "$folder"
  /usr/bin/python3 "$here/kill_nbd.py" "$(command -v ftld)" "$scheme" "$folder" "$KILLS" "${SEED:-1}" \
    --write-cache 1MiB --cache-model "$model" 2> "$SCRATCH/kill.log" ||
    { bad "$scheme with a write cache, $model: data or daemon lost"; tail -n 30 "$SCRATCH/kill.log"; }
  step "$scheme with a write cache, $model: ftld check" ftld check "$folder/default.ftld"
done
finish
