#!/bin/bash
# Power cuts under ext4: nbdfuse + loop as in ext4_nbdfuse.sh, programs that fsync (see fsync_markers.rs), `ftld inject power-cut`
# at random moments. After every cut the daemon ends, a restart mounts what the chip kept, ext4 replays its journal, and everything
# that fsync made durable has to be there, and the file system check has to be clean.
#   CUTS (12)  SEED (1)  CUT_SCHEMES (lazyftl pagemap)  cuts are shared out among the schemes
#   CANARY (no)  yes: once more without the protection of paired pages, which has to be found out
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
. "$(dirname "$0")/../lib.sh"
: "${CUTS:=12}" "${SEED:=1}" "${CUT_SCHEMES:=lazyftl pagemap}" "${CANARY:=no}"
. "$(dirname "$0")/nbdfuse.sh"
export FTLD_LOG=error
RANDOM=$SEED
worker=
trap 'forget; clean_up' EXIT

# judge: the file system after a restart, mounted again at the end. What is wrong goes to stdout.
judge() {
  dumpe2fs -h "$loop" 2> /dev/null | grep -q needs_recovery && echo "replay" >> "$SCRATCH/$1.checks"
  timeout 60 mount -t ext4 -o discard "$loop" "$at" || { echo "ext4 does not mount"; return 1; }
  fsync_markers check "$at" "$SCRATCH/$1.markers" > "$SCRATCH/checked" || { cat "$SCRATCH/checked"; return 1; }
  cat "$SCRATCH/checked" >> "$SCRATCH/$1.checks"
  timeout 60 umount "$at" || { echo "umount after the check"; return 1; }
  e2fsck -fn "$loop" > "$SCRATCH/e2fsck.log" 2>&1 || { echo "e2fsck:"; tail -n 5 "$SCRATCH/e2fsck.log"; return 1; }
}

# strike RUN SEED: programs at work, power fails under them, the daemon ends with exit code 9, nothing stays.
strike() {
  local rc
  timeout 60 mount -t ext4 -o discard "$loop" "$at" || { echo "second mount"; return 1; }
  : > "$SCRATCH/worked"
  fsync_markers work "$at" "$SCRATCH/$1.markers" "$2" > "$SCRATCH/worked" &
  worker=$!
  wait_for 30 is_durable "$worker" "$SCRATCH/worked" || { echo "nothing was durable within 30 s"; cat "$SCRATCH/worked"; return 1; }
  sleep 0.0$((RANDOM % 10))
  ftld inject power-cut --after $((RANDOM % AFTER)) --seed "$2" > /dev/null || { echo "inject"; return 1; }
  wait_for 30 ended "$FTLD" || { echo "the cut did not strike within 30 s"; return 1; }
  wait "$FTLD"
  rc=$?
  FTLD=
  [ $rc = 9 ] || { echo "the daemon's exit code is $rc, not 9"; tail -n 5 "$SCRATCH/ftld.log"; return 1; }
  wait_for 30 ended "$worker" || { echo "the programs hang"; return 1; }
  wait "$worker" || { cat "$SCRATCH/worked"; return 1; }
  worker=
  cat "$SCRATCH/worked" >> "$SCRATCH/$1.checks"
  timeout 30 umount "$at" || { echo "umount of the failed device"; return 1; }
  detach || { echo "the failed device cannot be detached"; return 1; }
}

# cycle RUN SEED ARGS...: one cut, beginning with the judgement of the one before, or with mkfs.
cycle() {
  local run=$1 seed=$2
  shift 2
  serve --image "$SCRATCH/$run.ftld" "$@" "$uri" || return
  attach || return
  if [ "$cut" = 0 ]; then
    mkfs.ext4 -q -F -b 4096 -J size=4 -E lazy_itable_init=0,lazy_journal_init=0 "$loop" || return
  else
    judge "$run" || { lost=yes && return 1; }
  fi
  strike "$run" "$seed"
}

# cuts RUN CUTS ARGS...: cuts in sequence on one image, then a last check and a clean shutdown. Sets `cut` to the number of cuts,
# and `lost` if a check found a loss.
cuts() {
  local run=$1 count=$2
  shift 2
  lost=no
  for ((cut = 0; cut < count; cut++)); do
    cycle "$run" $((SEED * 1000 + cut)) "$@" > "$SCRATCH/why" 2>&1 || return
  done
  { serve --image "$SCRATCH/$run.ftld" "$uri" && attach && judge "$run" && detach; } > "$SCRATCH/why" 2>&1 || return
  quit "$run" > "$SCRATCH/why" 2>&1
  ! grep FAIL "$SCRATCH/why"
}

# sums RUN: what the lines of a run add up to.
sums() {
  awk '/^replay/ { replays++ } /^work:/ { markers += $2 }
    /^check:/ { for (i = 2; i <= NF; i++) { split($i, pair, "="); sum[pair[1]] += pair[2] } }
    END { printf "%d durable markers, %d objects checked, %d journal replays; under way at the cuts:", markers, sum["objects"], replays
      n = split("replace create unlink overwrite append truncate", kinds, " ")
      for (i = 1; i <= n; i++) printf " %s %d", kinds[i], sum[kinds[i]]
      printf " (%d of them undone); %d untrue fsyncs of folders\n", sum["undone"], sum["untrue"] }' "$SCRATCH/$1.checks"
}

# forget: after a failure nothing of the run is left.
forget() {
  [ -z "$worker" ] || { kill -9 "$worker"; wait "$worker"; } 2> /dev/null
  worker=
  umount -l "$at" 2> /dev/null
  detach 2> /dev/null
  [ -z "$FTLD" ] || { kill -9 "$FTLD"; wait "$FTLD"; } 2> /dev/null
  FTLD=
}

# shellcheck disable=SC2086 # one word a scheme
set -- $CUT_SCHEMES
each=$((CUTS / $#))
# At most so many programs and erases from the injection to the cut: the collector has its share of them.
AFTER=4000
SIZE=48MiB
for scheme in $CUT_SCHEMES; do
  begin=$(now)
  if cuts "$scheme" $each --scheme "$scheme" --size $SIZE; then
    ok "$scheme: $each cuts, $(sums "$scheme") ($(($(now) - begin)) s)"
    step "$scheme: ftld check" ftld check "$SCRATCH/$scheme.ftld"
  else
    bad "$scheme: after cut $cut (SEED=$SEED): $(cat "$SCRATCH/why")"
    forget
  fi
done

if [ "$CANARY" = yes ]; then
  # The test itself is tested: without the protection of paired pages the same cuts lose what was flushed.
  failed=$FAILED
  if cuts canary "$CUTS" --scheme lazyftl --size $SIZE --set nand.pair_policy=none; then
    bad "canary: nothing was lost in $CUTS cuts although paired pages are not protected"
  elif [ $lost = no ]; then
    bad "canary: $(cat "$SCRATCH/why")"
    forget
  else
    ok "canary without nand.pair_policy: found out after $cut cuts: $(head -n 2 "$SCRATCH/why" | tr '\n' ' ')"
    forget
    FAILED=$failed
  fi
fi

# Only its owner controls an instance.
if serve --size 2MiB --profile torture --image "$SCRATCH/own.ftld" "$uri"; then
  chmod 755 "$SCRATCH" # so that it is the instance's own folder that refuses
  cp "$(command -v ftld)" "$SCRATCH/ftld"
  refused "inject as another user" 6 "only the user who started instance" \
    setpriv --reuid 65534 --regid 65534 --clear-groups "$SCRATCH/ftld" inject power-cut default
  quit "after the refusal"
fi
finish
