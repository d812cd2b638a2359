# Out by bash's own sockets, which need no program and no library.
for at in 1.1.1.1/443 example.com/80 127.0.0.1/22; do
    for protocol in tcp udp; do
        # A datagram to an own, unused port is lost, not refused.
        if [ $protocol/$at = udp/127.0.0.1/22 ]; then continue; fi
        said=$(bash -c "exec 3<>/dev/$protocol/$at && echo x >&3 && echo connected" 2>&1)
        echo "$protocol/$at: ${said##*: }"
    done
done
for program in curl wget nc ssh ping; do
    command -v $program >/dev/null || continue
    case $program in
        curl) timeout 5 curl -s -m 4 http://1.1.1.1 >/dev/null 2>&1 ;;
        wget) timeout 5 wget -q -t 1 -T 4 -O /dev/null http://1.1.1.1 2>/dev/null ;;
        nc) timeout 5 nc -w 4 1.1.1.1 80 </dev/null >/dev/null 2>&1 ;;
        ssh) timeout 5 ssh -o BatchMode=yes -o ConnectTimeout=4 1.1.1.1 true 2>/dev/null ;;
        ping) timeout 5 ping -c 1 -W 4 1.1.1.1 >/dev/null 2>&1 ;;
    esac && echo "$program: reached it"
done
:
