# What zsh offers for lines, a word a line behind the number of its line.
# usage: zsh -f complete.zsh SCRIPT LINE...
# A second shell, on a terminal of its own, completes them; its `compadd` prints what it is given.
if [[ $1 == inside ]]; then
  PROMPT=
  unset zle_bracketed_paste
  autoload -U compinit
  compinit -u -D
  source $2
  # Each list of functions is for one completion.
  mark() {
    print -r - "===="
    compprefuncs=(mark)
    comppostfuncs=(mark)
  }
  compprefuncs=(mark)
  comppostfuncs=(mark)
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
integer number=0 marks
for asked in "${@:2}"; do
  zpty -w -n shell $'\C-u'$asked$'\t'
  marks=0
  while zpty -r shell line; do
    line=${line//$'\r'/}
    line=${line%$'\n'}
    if [[ $line == *==== ]]; then
      (( ++marks < 2 )) || break
    elif (( marks )); then
      print -r - $number$'\t'$line
    fi
  done
  (( ++number ))
done
