# The classic, by name: it grows as fast as it can until the limit, and then goes on trying. Counted by
# the shell itself, which needs no process for it.
bash -c 'bomb() { bomb | bomb & }; bomb' 2>/dev/null
echo 'processes: at most 80'
while :; do
    set -- /proc/[0-9]*
    if [ $# -gt 80 ]; then echo 'processes: more than 80' && exit; fi
done
