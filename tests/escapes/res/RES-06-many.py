# Files in memory, each of them small, four times what is allowed in all.
import os
import time

held = [os.memfd_create(str(number)) for number in range(256)]
for descriptor in held:
    os.write(descriptor, b"x" * (1 << 20))
time.sleep(3)
print(f"held after 3 s: {len(held)} MiB")
