# In place of a build: the program that cargo has just built, which the test puts beside this file.
{ pkgs, system }:
{
  pname,
  version,
  src,
  cargoLock,
  meta,
  ...
}:
assert builtins.pathExists cargoLock.lockFile;
derivation {
  name = "${pname}-${version}";
  inherit src system;
  program = ./program;
  libraries = "${pkgs.glibc}/lib:${pkgs.gcc-libs}/lib";
  loader = "${pkgs.glibc}/lib/ld-linux-x86-64.so.2";
  patchelf = "${pkgs.patchelf}/bin/patchelf";
  builder = "/bin/sh";
  args = [
    "-euc"
    ''
      PATH=/usr/bin:/bin
      test -e "$src/Cargo.lock" && test -e "$src/src/main.rs"
      mkdir -p "$out/bin"
      cp "$program" "$out/bin/${pname}"
      chmod 755 "$out/bin/${pname}"
      "$patchelf" --force-rpath --set-rpath "$libraries" --set-interpreter "$loader" "$out/bin/${pname}"
      exit 0
    ''
  ];
}
// {
  inherit meta pname version;
}
