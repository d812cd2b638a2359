# Daemons in every way there is; whoever waits for the end of the run does not wait for them, and none
# outlives it.
mark=$(cat /project/mark)
sleep "$mark" &
setsid sleep "$mark" &
nohup sleep "$mark" >/dev/null 2>&1 &
(setsid sh -c "sleep $mark & exit 0" &)
(trap '' TERM INT HUP; exec setsid sleep "$mark") &
bash -c "sleep $mark & disown -a"
(sleep "$mark" <&- >&- 2>&- &)
sh -c "kill -STOP \$\$; sleep $mark" &
echo started
[ -e /project/stay ] && while :; do sleep "$mark"; done
exit 0
