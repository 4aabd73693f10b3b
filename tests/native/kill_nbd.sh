#!/bin/bash
# kill -9 at random moments under load, for every scheme, with a write cache, and with several shards: see kill_nbd.py.
#   KILLS (3)  SEED (1)  SHARDS (2): of a device of several chips, under 4 connections with FUA and FLUSH
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
shards=${SHARDS:-2}
for scheme in $(echo "$names" | head -n 2); do
  folder=$SCRATCH/shards-$scheme
  mkdir "$folder"
  CONNECTIONS=4 /usr/bin/python3 "$here/kill_nbd.py" "$(command -v ftld)" "$scheme" "$folder" "$KILLS" "${SEED:-1}" \
    --shards "$shards" 2> "$SCRATCH/kill.log" ||
    { bad "$scheme on $shards shards: data or daemon lost"; tail -n 30 "$SCRATCH/kill.log"; }
  step "$scheme on $shards shards: ftld check" ftld check "$folder/default.ftld"
done
finish
