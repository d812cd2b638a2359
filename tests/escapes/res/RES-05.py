# Memory of its own, four times what is allowed, held long enough to be seen.
import time

held = [b"x" * (1 << 20) for _ in range(256)]
time.sleep(3)
print(f"held after 3 s: {len(held)} MiB")
