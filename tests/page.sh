# shellcheck shell=dash
# Plays a page of docs/: types its blocks as they stand there, and compares what they show. For busybox sh and bash; sourced after
# lib.sh.
#
# A block ```sh may follow a line `**COLUMN:**`; then only readers of that column type it. Every line of a block has to succeed.
# A block ```text after it, or after the blocks of all columns, is its output: its lines are searched for in their order, as
# beginnings of lines; `...` is left out.
# Numbers may differ by a quarter or by 3, and so may the block of a place BLOCK:PAGE: factory-bad blocks differ. Process numbers,
# times of day and folders may differ by anything.

# page_script FILE FIRST COLUMN...: what is to be typed from the heading FIRST to the end of that section, or of the page if it is
# the title. Prints `# LINE` for each block, `$ COMMAND` and `> OUTPUT`.
page_script() {
  local file=$1 first=$2
  shift 2
  awk -v first="$first" -v columns="|$(printf '%s|' "$@")" '
    $0 == first { inside = 1; level = index(first, " "); next }
    !inside { next }
    !fence && /^#+ / && index($0, " ") <= level { exit }
    /^```sh$/ {
      fence = 1
      mine = label == "" || index(columns, "|" label "|")
      if (mine) { print "# " NR; typed = 1 }
      mark = mine ? "$ " : ""; label = ""
      next
    }
    /^```text$/ { fence = 1; mark = typed ? "> " : ""; next }
    /^```/ { fence = !fence; mark = ""; next }
    fence { if (mark != "") print mark $0; next }
    /^\*\*.*:\*\*$/ { label = substr($0, 3, length($0) - 5); next }
    /^$/ { next }
    { label = ""; typed = 0 }
  ' "$file"
}

# page_shows WANTED GOT: prints the first line of the file WANTED that GOT does not have; fails if there is one.
page_shows() {
  awk '
    function number(word) { return word ~ /^[(]?[0-9][0-9,]*(\.[0-9]+)?[%:;,)]?$/ }
    function value(word) { gsub(/[(),%:;]/, "", word); return word + 0 }
    function is_place(word) { return word ~ /^[0-9]+:[0-9]+$/ }
    function alike(a, b, x, y, far, of_a, of_b) {
      if (a == b) return 1
      if (is_place(a) && is_place(b)) {
        split(a, of_a, ":"); split(b, of_b, ":")
        return of_a[2] == of_b[2] && alike(of_a[1], of_b[1])
      }
      if (!number(a) || !number(b)) return 0
      x = value(a); y = value(b)
      far = x > y ? x - y : y - x
      return far <= 0.25 * (x > y ? x : y) || far <= 3 && x == int(x) && y == int(y)
    }
    function begins(line, wanted, words, want, n, i) {
      n = split(wanted, want, " ")
      if (split(line, words, " ") < n) return 0
      for (i = 1; i <= n; i++) if (!alike(words[i], want[i])) return 0
      return 1
    }
    { gsub(/\(pid [0-9]+\)/, "(pid N)"); gsub(/[0-9-]+T[0-9:.]+Z/, "TIME"); gsub(/\/[^ ,]*\//, "/"); sub(/^ +/, "") }
    NR == FNR { if ($0 != "..." && $0 != "") wanted[++count] = $0; next }
    { got[++lines] = $0 }
    END {
      for (i = 1; i <= count; i++) {
        while (++at <= lines && !begins(got[at], wanted[i])) continue
        if (at > lines) { print wanted[i]; exit 1 }
      }
      exit !count
    }
  ' "$1" "$2"
}

# page_play NAME COMMANDS OUTPUTS FILE FIRST COLUMN...: plays a section, at least so many commands and outputs. `typed LINE` changes
# a line before it runs, and `after LINE` looks at $SCRATCH/page.out when it ran; both may be redefined.
page_play() {
  local name=$1 commands=$2 outputs=$3 begin sign rest
  shift 3
  begin=$(now)
  page_script "$@" > "$SCRATCH/page.script"
  at_least "$name: commands" "$(grep -c '^\$' "$SCRATCH/page.script")" "$commands"
  at_least "$name: lines of output" "$(grep -c '^>' "$SCRATCH/page.script")" "$outputs"
  : > "$SCRATCH/page.wanted"
  while read -r sign rest <&3; do
    case $sign in
    "#") page_compare "$name"; : > "$SCRATCH/page.block" ;;
    ">") echo "$rest" >> "$SCRATCH/page.wanted" ;;
    "$")
      if eval "$(typed "$rest")" > "$SCRATCH/page.out" 2> "$SCRATCH/page.err" < /dev/null; then ok "$name: $rest"
      else bad "$name: $rest"; cat "$SCRATCH/page.out" "$SCRATCH/page.err"; fi
      cat "$SCRATCH/page.out" "$SCRATCH/page.err" >> "$SCRATCH/page.block"
      after "$rest"
      ;;
    esac
  done 3< "$SCRATCH/page.script"
  page_compare "$name"
  note "$name: $(($(now) - begin)) s"
}
page_compare() {
  local missing
  [ -s "$SCRATCH/page.wanted" ] || return
  if missing=$(page_shows "$SCRATCH/page.wanted" "$SCRATCH/page.block"); then ok "$1: $(wc -l < "$SCRATCH/page.wanted") lines of output"
  else bad "$1: the output lacks: $missing"; cat "$SCRATCH/page.block"; fi
  : > "$SCRATCH/page.wanted"
}
typed() { printf '%s\n' "$1"; }
after() { :; }
