# What programs that ignore nothing get: SIGXFSZ where a file would exceed the limit of one file.
(truncate -s 1G /workspace/big) 2>/dev/null
echo "truncate: $?"
(dd if=/dev/zero of=/workspace/big bs=1M count=100) 2>&1 | grep -o 'No space left on device'
stat -c 'dd: %s bytes' /workspace/big
