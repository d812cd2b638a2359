# Programs that make namespaces themselves fail with a clear text and code.
exec 2>&1
unshare -Ur true
echo "unshare: $?"
unshare -n true
echo "unshare -n: $?"
nsenter -t 1 -m true
echo "nsenter: $?"
