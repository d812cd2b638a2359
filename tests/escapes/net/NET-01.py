# Every socket family there is, and a few that are not, in every type. A network namespace does not
# cover all of them, and asking for one can load its module.
import ctypes
import os

from call import name, syscall

TYPES = {"STREAM": 1, "DGRAM": 2, "RAW": 3, "RDM": 4, "SEQPACKET": 5, "DCCP": 6, "PACKET": 10}
FAMILIES = {1: "UNIX", 2: "INET", 10: "INET6", 16: "NETLINK"}
others = set()
for family in range(0, 48):
    answers = {}
    for kind, number in TYPES.items():
        result = syscall("socket", family, number, 0)
        if result >= 0:
            os.close(result)
        answers.setdefault(name(result), []).append(kind)
    if family in FAMILIES:
        for answer, kinds in answers.items():
            print(f"AF_{FAMILIES[family]} {' '.join(kinds)}: {answer}")
    else:
        others.update(answers)
print("every other family:", " ".join(sorted(others)))
pairs = set()
for family in range(2, 48):
    pairs.add(name(syscall(53, family, 1, 0, ctypes.create_string_buffer(8))))
print("pairs of every family but AF_UNIX:", " ".join(sorted(pairs)))
