# Makes a store path of Debian packages: $srcs unpacked without the /usr in front, each program and
# library bound to the libraries of $out, $deps and $libc, and to no others.
set -eu
PATH=/usr/bin:/bin LC_ALL=C
export PATH LC_ALL
umask 022

mkdir tree
for archive in $srcs; do
  case $archive in
    *.deb) dpkg-deb -x "$archive" tree ;;
    *.tgz) tar -xzf "$archive" -C tree --strip-components=1 ;;
  esac
done

mkdir -p "$out"
for root in tree/usr tree; do
  for place in bin:bin sbin:bin lib:lib share:share etc:etc; do
    from=$root/${place%:*} to=$out/${place#*:}
    if [ -d "$from" ] && [ ! -L "$from" ]; then mkdir -p "$to" && cp -dR "$from/." "$to/"; fi
  done
done
if [ -d "$out/lib/$multiarch" ]; then
  cp -dR "$out/lib/$multiarch/." "$out/lib/"
  rm -r "$out/lib/$multiarch"
fi
for place in doc man info locale lintian bug; do rm -rf "$out/share/$place"; done
chmod -R u+w "$out"

# A link into /usr leads into $out if its target came along.
find "$out" -type l -lname '/*' | while read -r link; do
  target=$(readlink "$link" | sed "s,^/usr,,; s,^/lib/$multiarch/,/lib/,; s,^/sbin/,/bin/,")
  rm "$link"
  if [ -e "$out$target" ]; then ln -s "$out$target" "$link"; fi
done
eval "$post"

library_path() {
  places=
  for library in $(patchelf --print-needed "$1"); do
    case $library in ld-linux-*) continue ;; esac
    found=
    for dependency in "$out" $deps "$libc"; do
      if [ -e "$dependency/lib/$library" ]; then found=$dependency/lib && break; fi
    done
    if [ -z "$found" ]; then echo "unpack.sh: $1 needs $library, which no dependency has" >&2 && exit 1; fi
    case ":$places:" in *":$found:"*) ;; *) places=$places${places:+:}$found ;; esac
  done
  echo "$places"
}

if [ -n "$libc" ]; then
  patchelf() { "$patchelf" "$@" 2>/dev/null; }
  find "$out" -type f \( -perm -u+x -o -name '*.so' -o -name '*.so.*' \) | sort | while read -r file; do
    patchelf --print-needed "$file" >/dev/null || continue
    places=$(library_path "$file")
    if patchelf --print-interpreter "$file" >/dev/null; then
      patchelf --set-interpreter "$libc/lib/$loader" --force-rpath --set-rpath "$places:$libc/lib" "$file"
    elif [ -n "$places" ]; then
      patchelf --force-rpath --set-rpath "$places" "$file"
    fi
  done
fi
eval "$finish"
exit 0
