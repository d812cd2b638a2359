# The Bash agent: runs cells sent by the server inside one live shell.
#
# The protocol is in ../README.md.  The work is bash's own: an interactive shell is
# made for this.  It survives syntax errors and unset variables, and SIGINT takes it
# from any depth back to its prompt.  So the agent is nothing but a PROMPT_COMMAND
# that runs one cell; bash's reader is the loop.  Standard input is /dev/null, whose
# end of file IGNOREEOF turns into the next prompt.  PROMPT_COMMAND runs at the top
# level, outside any function or loop: `declare`, `break` and `return` mean in a cell
# what they mean in a script, and there are none of the notices for a human.
#
# shellcheck shell=bash disable=SC2154,SC2317

if [[ $- != *i* ]]; then
  # Started as a script: begin again as an interactive shell that comes back here.
  # What bash has to say about the missing terminal goes nowhere.
  _nsm_options=(--norc --noprofile)
  if set +o emacs 2>/dev/null; then _nsm_options+=(--noediting); fi # else built without readline
  printf -v _nsm_self '. %q' "${BASH_SOURCE[0]}"
  HISTFILE='' PROMPT_COMMAND=$_nsm_self exec "$BASH" "${_nsm_options[@]}" +o history -i 9>&2 2>/dev/null
fi
exec 2>&9 9>&-

# Moves descriptor $1 to $2, close-on-exec.  Bash has no word for that, but the copy it
# keeps while a redirection lasts is so marked, always the lowest free one from 10 on,
# and a copy of a marked one is marked too.
exec 10<&-
{ exec 100<&10; } 3<&-
exec 3<&-
{ exec 101>&10; } 4>&-
exec 4>&-

_nsm_id='' _nsm_nonce='' # the running call, if any
_nsm_status=''           # how the last one ended
_nsm_first=''            # what has to be put back before the next cell
_nsm_code=''             # the cell, after what has to be put back in the same breath
_nsm_flags=''            # the user's options that we cannot have while we work
_nsm_traps=''            # the user's traps, for the same reason
_nsm_trapped=''          # not empty once a cell may have set a trap
_nsm_stderr=''           # where the user's stderr is kept while bash itself would write there
_nsm_warning=''          # what the next cell has to say first
_nsm_proof=''

# After a cell, also after one that was cut short: bash was thrown back to its prompt by
# SIGINT, or by an error such as ${x:?}.  A text to be evaluated, not a function, as
# functions do not see the user's DEBUG trap.  Asking for traps needs a fork, which may
# hang where processes are counted, so we ask only once a cell may have set one.
_nsm_leave='
  if [[ $_nsm_id ]]; then
    if [[ $_nsm_trapped ]]; then _nsm_traps=$(builtin trap -p INT ERR RETURN DEBUG); fi
    builtin trap "" INT # a late interrupt must not cut a reply in half
    builtin trap - DEBUG ERR RETURN
    _nsm_say done "$_nsm_status"
  fi
  builtin :'

# $1 = $?, $2 = $-
_nsm_calm() {
  if [[ ! $_nsm_id ]]; then builtin return 0; fi
  \builtin set +aekuvxET
  _nsm_repair
  builtin unset -f exec # `builtin exec` would undo its redirections
  _nsm_status=$1
  _nsm_flags=${2//[!aekuvxET]/}
  _nsm_traps=''
}

# A function of the user's named `builtin` would stand between us and every builtin, so
# it ends with its cell.  Only POSIX mode lets `unset` through for sure, and only an
# assignment turns that on for sure.
_nsm_repair() {
  _nsm_proof=''
  \builtin eval '_nsm_proof=$_nsm_nonce'
  if [[ $_nsm_proof == "$_nsm_nonce" ]]; then builtin return 0; fi
  builtin local options=":$BASHOPTS:" posix=''
  if [[ -o posix ]]; then posix=yes; fi
  POSIXLY_CORRECT=yes
  \unset -f builtin
  builtin set +aekuvxET
  if [[ $posix ]]; then builtin return 0; fi
  builtin set +o posix
  if [[ $options == *:expand_aliases:* ]]; then builtin shopt -s expand_aliases; fi
}

_nsm_say() {
  if [[ ! $_nsm_id ]]; then builtin return 0; fi
  builtin printf '%s %s %s %s\n' "$1" "$_nsm_id" "$_nsm_nonce" "$2" >&101 || builtin exit 1
  _nsm_id=''
}

# A subshell may come here too, when a signal ends it; it has nothing to say.
_nsm_end() {
  if [[ $BASHPID == "$$" ]]; then _nsm_say end "$1"; fi
}

# Waits for the next cell.
_nsm_next() {
  builtin local LC_ALL=C verb id nonce length # C: lengths are in bytes
  IFS=' ' builtin read -r verb id nonce length <&100 || builtin exit 0
  [[ $verb == run ]] || builtin exit 1
  _nsm_read "$length"
  case $_nsm_code in
    *trap* | *source* | *'. '*) _nsm_trapped=yes ;;
  esac
  _nsm_prepare
  _nsm_id=$id _nsm_nonce=$nonce
}

# Reads $1 bytes.  A NUL cannot be kept in a variable; bash drops it from scripts, too.
_nsm_read() {
  builtin local left="$1" part
  _nsm_code=''
  while ((left > 0)); do
    IFS='' builtin read -r -d '' -n "$left" part <&100 || builtin exit 1
    _nsm_code+=$part
    ((left -= ${#part}))
    if ((left > 0)); then # it stopped at a NUL, and took it
      ((left -= 1))
      _nsm_warning='builtin printf "bash: warning: ignored NUL bytes in the source\n" >&2;'
    fi
  done
}

# An error such as ${x:?} must cost the rest of the cell: the next line may count on it.
# Bash gives up one command then, so the cell becomes one, in braces.  That is not for
# cells with errors of syntax (bash runs what comes before), nor where an earlier line
# changes how a later one is read.
_nsm_enclose() {
  if [[ $_nsm_flags == *v* ]]; then builtin return 0; fi # it would show the braces
  case $_nsm_code in
    *alias* | *shopt* | *posix*) builtin return 0 ;;
  esac
  builtin local enclosed=$'{\n'"$_nsm_code"$'\n}'
  # A branch that is not taken: only read.  A stray brace in the cell does not end it.
  if builtin eval "case run in never) $enclosed ;; esac"; then _nsm_code=$enclosed; fi
}

# Makes ready for the cell: what is put back before it, and in the same text as it, where
# options and traps do not yet see us.
_nsm_prepare() {
  _nsm_first='builtin trap - INT'
  case $_nsm_stderr in
    '') ;;
    closed) _nsm_first+='; exec 2>&-' ;;
    *) _nsm_first+="; exec 2>&$_nsm_stderr $_nsm_stderr>&-" ;;
  esac
  _nsm_first+="; $_nsm_warning _nsm_stderr=''"
  _nsm_warning=''
  _nsm_enclose
  builtin local resume="$_nsm_traps"
  if [[ $_nsm_flags ]]; then resume+="${resume:+; }{ builtin set -$_nsm_flags; } >/dev/null 2>&1"; fi
  if [[ $resume ]]; then _nsm_code=$resume$'\n'$_nsm_code; fi
}

# What bash writes for a human between two cells goes nowhere.
_nsm_hush='
  _nsm_stderr=closed
  exec {_nsm_stderr}>&2
  exec 2>/dev/null
  IGNOREEOF=2147483647
  if [[ $_nsm_traps$_nsm_flags ]]; then _nsm_line=0; else _nsm_line=1; fi'

builtin readonly -f _nsm_calm _nsm_repair _nsm_say _nsm_end _nsm_next _nsm_read _nsm_enclose _nsm_prepare

# Quoted names are safe from aliases.  All in one pair of braces, hence parsed before the
# cell runs: a syntax error in the cell would leave the parser in no state to go on.  On
# one line, or bash would add ours to the line numbers of the cell.
PROMPT_COMMAND='{ { \_nsm_calm "$?" "$-"; \builtin eval "$_nsm_leave"; \_nsm_next; } >/dev/null 2>&1; \builtin eval "$_nsm_first"; \builtin eval "$_nsm_code"; { \_nsm_calm "$?" "$-"; \builtin eval "$_nsm_leave"; } >/dev/null 2>&1; \builtin eval "$_nsm_hush"; }'
builtin export -n PROMPT_COMMAND
# Bash counts lines on from cell to cell; only its prompt is a place to begin anew, less
# the line that _nsm_prepare may add.  It shows nothing.
PS1='${_nsm_id:LINENO=_nsm_line:0}' PS2=''
builtin readonly PROMPT_COMMAND
builtin unset HISTFILE MAILCHECK TMOUT
builtin set +o histexpand
builtin shopt -u checkwinsize
builtin trap '{ \_nsm_end "$?"; } >/dev/null 2>&1' EXIT
builtin trap '' INT
builtin printf 'ready 1\n' >&101
builtin eval "$_nsm_hush"
