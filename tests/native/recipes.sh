#!/bin/bash
# The recipes of docs/examples/recipes as an ordinary user, in User-Mode Linux: a program that syncs loses nothing that it reported, and
# the same program without a sync is found out. What is known of the programs: git reports a commit before its branch is durable, with
# core.fsync=all only the last one; dpkg --force-unsafe-io loses no version that was reported.
# Then with --nested: the recovery of SQLite on XFS is cut, too, and a store whose recovery is wrong is found out by that alone.
# PostgreSQL is among them if it is installed.
#   SECONDS_EACH (20)    longest exploration
#   DOWNLOADS (no)       yes: also the recipes that build.sh builds from registries
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/lib.sh"
: "${SECONDS_EACH:=20}" "${DOWNLOADS:=no}"
trap 'cd / && rm -rf "$SCRATCH"' EXIT
chmod 755 "$SCRATCH"
install -m 755 "$(command -v ftld)" "$SCRATCH"
install -m 755 -D -t "$SCRATCH/recipes" "$root"/docs/examples/recipes/* "$root/docs/examples/orders.py"
install -d -o nobody "$SCRATCH/user" "$SCRATCH/user/tmp"
cd "$SCRATCH/user" || exit
user=(setpriv --reuid nobody --regid nogroup --clear-groups env -u XDG_RUNTIME_DIR HOME="$PWD" TMPDIR="$PWD/tmp" PATH="$SCRATCH:/usr/bin:/bin")
# recipe CODE TEXT [--agitate | --group] NAME ARGUMENT...: exit code and a text of the report.
recipe() {
  local wanted=$1 text=$2 name=$3 seconds=$SECONDS_EACH began options=() folders=('{}') check="check \$FTLD_FILES"
  shift 3
  if [ "$name" = --agitate ]; then
    options=("$name") name=$1
    shift
  elif [ "$name" = --group ]; then
    options=(--group 2) folders=('{}' '{2}') check="check \$FTLD_FILES \$FTLD_FILES_2" name=$1
    shift
  fi
  # Nearly all its FLUSHes are of initdb, and a state takes long.
  [ "$name" != postgres-base.sh ] || { options=(--after-mark) seconds=$((3 * SECONDS_EACH)); }
  [ "$name" != mapdb ] || { options=(--server --files) check=serve; }
  began=$(now)
  "${user[@]}" ftld crash-test "${options[@]}" --memory 512MiB --at flush --for "${seconds}s" --failures 1 --check "../recipes/$name $check" \
    -- "../recipes/$name" run "${folders[@]}" "$@" > out 2>&1
  same "$name $* ${options[*]}: exit code" $? "$wanted"
  [ "$wanted" != 0 ] || step "$name $* ${options[*]}: states" grep -E '[1-9][0-9]* different ones checked, 0 failed' out
  if grep -qF -- "$text" out; then ok "$name $* ${options[*]}: $text"; else
    bad "$name $* ${options[*]}: no '$text'"
    cat out
  fi
  note "$name $* ${options[*]}: $(grep -o '[0-9,]* different ones checked' out), $(($(now) - began)) s"
}
recipe 0 " 0 failed" replace.py 5 whole
recipe 1 "was reported" replace.py 5 no-folder
recipe 1 "settings.json" replace.py 5 no-fsync
recipe 0 " 0 failed" replace.py 10 in-place
recipe 1 "settings.json" --agitate replace.py 10 in-place
recipe 0 " 0 failed" lmdb-base.py 5
recipe 1 "No such file or directory" lmdb-base.py 5 sync
"${user[@]}" ftld crashes crash-test.rec --at flush --failures 1 --files --server \
  --check "../recipes/server.py ../recipes/lmdb-base.py" > out 2>&1
same "server.py lmdb-base.py: exit code" $? 1
step "server.py lmdb-base.py: as the check" grep -F "No such file or directory" out
recipe 0 " 0 failed" leveldb-base.py 5 sync
"${user[@]}" ftld crashes crash-test.rec --at flush --for "${SECONDS_EACH}s" --files --server \
  --check "../recipes/server.py ../recipes/leveldb-base.py" > out 2>&1
same "server.py leveldb-base.py: exit code" $? 0
step "server.py leveldb-base.py: states" grep -E "[1-9][0-9]* different ones checked, 0 failed" out
recipe 1 "0 of 5 reported batches are there" leveldb-base.py 5 no-sync
recipe 1 "does not have any commits yet" git.sh 3
recipe 1 "commit 1 is the last one" git.sh 3 core.fsync=all
"${user[@]}" ftld crashes crash-test.rec --at flush --for "${SECONDS_EACH}s" --failures 1 --files --server \
  --check "../recipes/server.sh ../recipes/git.sh check" > out 2>&1
same "server.sh git.sh: exit code" $? 1
step "server.sh git.sh: as the check" grep -F "commit 1 is the last one" out
recipe 0 " 0 failed" dpkg.sh 3
recipe 0 " 0 failed" dpkg.sh 3 --force-unsafe-io
recipe 0 " 0 failed" --group two-disks.py 10 order
recipe 1 "half a commit" --group two-disks.py 10 wrong
if [ -e /usr/lib/postgresql ]; then
  recipe 0 " 0 failed" postgres-base.sh 5
  recipe 1 "reported rows are there" postgres-base.sh 5 fsync=off
  recipe 1 "reported rows are there" postgres-base.sh 5 synchronous_commit=off
fi
if [ "$DOWNLOADS" = yes ]; then
  for name in rocksdb duckdb bbolt fjall redb mapdb; do step "build.sh $name" ../recipes/build.sh "$name" ../recipes; done
  for name in rocksdb bbolt fjall redb; do
    recipe 0 " 0 failed" "$name" 8 sync
    # Some cannot be opened.
    recipe 1 " 1 failed" "$name" 8 no-sync
  done
  recipe 0 " 0 failed" duckdb 5 commit
  recipe 1 "reported rows are there" duckdb 5 early
  recipe 0 " 0 failed" mapdb 5 hash
  recipe 1 " 1 failed" mapdb 5 early
fi

# A store with a log, which is right while power stays; its recovery syncs the data before it removes the log, or does not.
cat > "$SCRATCH/recipes/logged.sh" << 'END'
#!/bin/sh
cd "$2" || exit
apply() {
  echo "content $1" > "f$1"
  if [ "$2" = sync ]; then sync "f$1" .; fi
  rm log
  sync .
}
case $1 in
  run)
    for i in 1 2 3; do
      echo $i > new
      sync new
      mv new log
      sync .
      echo ACK $i
      read -r answer
      apply $i sync
    done ;;
  check)
    if [ -e log ]; then apply "$(cat log)" "$3"; fi
    [ -z "$FTLD_MARK" ] || grep -qx "content $FTLD_MARK" "f$FTLD_MARK" || { echo "content $FTLD_MARK is not there"; exit 1; } ;;
esac
END
chmod 755 "$SCRATCH/recipes/logged.sh"
# nested NAME CODE TEXT OPTION...
nested() {
  local name=$1 wanted=$2 text=$3 began
  shift 3
  began=$(now)
  "${user[@]}" ftld crash-test --at mark --failures 0 "$@" > out 2>&1
  same "$name: exit code" $? "$wanted"
  if grep -qE -- "$text" out; then ok "$name: $text"; else
    bad "$name: no '$text'"
    cat out
  fi
  note "$name: $(grep -o '[0-9,]* different ones checked' out), $(($(now) - began)) s"
}
some="^[1-9][0-9]* of them are states of [1-9][0-9]* recover"
# shellcheck disable=SC2016 # for the shell of the check
nested "nested, SQLite on XFS" 0 "$some" --fs xfs --size 320MiB --nested=4 \
  --check '/usr/bin/python3 ../recipes/orders.py check "$FTLD_FILES/db"' -- /usr/bin/python3 ../recipes/orders.py run '{}/db' 3 extra
for how in wrong sync; do
  logged=(--check "../recipes/logged.sh check \$FTLD_FILES $how" -- ../recipes/logged.sh run '{}')
  nested "a recovery, $how, not cut" 0 ", 0 failed" "${logged[@]}"
  case $how in
    wrong) nested "a recovery that is wrong" 1 "power fails again in the recovery, after its entry" --nested=16 "${logged[@]}" ;;
    sync) nested "a recovery that is right" 0 "$some" --nested=16 "${logged[@]}" ;;
  esac
done
finish
