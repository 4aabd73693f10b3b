# What zsh offers for a line, one a line. usage: zsh -f complete.zsh SCRIPT LINE
# A second shell, on a terminal of its own, completes the line; its `compadd` prints what it is given.
if [[ $1 == inside ]]; then
  PROMPT=
  unset zle_bracketed_paste
  autoload -U compinit
  compinit -u -D
  source $2
  mark() { print -r - "===="; }
  compprefuncs=(mark)
  comppostfuncs=(mark exit)
  bindkey '^I' complete-word
  compadd() {
    # With one of these it fills arrays.
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then
      builtin compadd "$@"
      return
    fi
    local -a hits
    builtin compadd -A hits "$@"
    if (( $#hits )); then print -rl - $hits; fi
  }
  print ready
  return
fi
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "source ${(q)0} inside ${(q)1}"
zpty -r -m shell line $'*\nready*' || exit 2
zpty -w -n shell "$2"$'\t'
integer marks=0
while zpty -r shell line; do
  line=${line//$'\r'/}
  line=${line%$'\n'}
  if [[ $line == *==== ]]; then
    (( ++marks < 2 )) || break
  elif (( marks )); then
    print -r - $line
  fi
done
