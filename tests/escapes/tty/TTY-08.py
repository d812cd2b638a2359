# Bytes that are no text: every kind of malformed UTF-8, NUL, and a character cut in two by time.
import os

for text in [
    b"invalid \xff\xfe", b"surrogate \xed\xa0\x80", b"pair \xed\xa0\xbd\xed\xb8\x80", b"overlong \xc0\xaf",
    b"too large \xf4\x90\x80\x80", b"cut \xe2\x82", b"NUL \0.", b"lone \x80", b"BOM \xef\xbb\xbf.",
]:
    os.write(1, text + b"\n")
for byte in "€🦀".encode():
    os.write(1, bytes([byte]))
os.write(1, b"\n")
