# Asking for a socket of a rare protocol makes the kernel load its module, with all that is wrong
# with it.
from call import name, syscall

answers = {}
STREAM, DGRAM, RAW, SEQPACKET, DCCP = 1, 2, 3, 5, 6
for what, family, kind, protocol in [
    ("AX25", 3, SEQPACKET, 0), ("IPX", 4, DGRAM, 0), ("ATALK", 5, DGRAM, 0), ("X25", 9, SEQPACKET, 0),
    ("RDS", 21, SEQPACKET, 0), ("PPPOX", 24, DGRAM, 0), ("LLC", 26, DGRAM, 0), ("IB", 27, DGRAM, 0),
    ("CAN", 29, RAW, 1), ("TIPC", 30, SEQPACKET, 0), ("BLUETOOTH", 31, RAW, 1),
    ("RXRPC", 33, DGRAM, 2), ("PHONET", 35, DGRAM, 0), ("IEEE802154", 36, DGRAM, 0),
    ("CAIF", 37, STREAM, 0), ("ALG", 38, SEQPACKET, 0), ("NFC", 39, SEQPACKET, 0),
    ("VSOCK", 40, STREAM, 0), ("KCM", 41, DGRAM, 0), ("QIPCRTR", 42, DGRAM, 0), ("SMC", 43, STREAM, 0),
    ("XDP", 44, RAW, 0), ("MCTP", 45, DGRAM, 0), ("PACKET", 17, RAW, 0x300),
    ("DCCP", 2, DCCP, 33), ("SCTP", 2, STREAM, 132), ("SCTP 6", 10, SEQPACKET, 132),
    ("UDPLITE", 2, DGRAM, 136), ("MPTCP", 2, STREAM, 262), ("SMC over IP", 2, STREAM, 256),
    ("L2TP", 2, DGRAM, 115), ("raw IP", 2, RAW, 255), ("raw ICMP", 2, RAW, 1),
]:
    answers.setdefault(name(syscall("socket", family, kind, protocol)), []).append(what)
for answer, names in answers.items():
    print(f"{', '.join(names)}: {answer}")
