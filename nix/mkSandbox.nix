# Builds an artifact: metadata.json (version 1) with the closure of the environment, and bin/run and
# bin/session-run, for the jail.nix backend.
{ jail-nix }:
{
  pkgs,
  # What callers ask for: `env: name`. 1 to 64 letters, digits, `_`, `.` or `-`.
  name,
  # "bash", "python" or "node".
  interpreter_type,
  # What is in it, besides bash and coreutils.
  packages,
  # Seconds that a run may take.
  timeout_seconds ? 30,
  # MiB.
  memory_mb ? 512,
  # Further limits, over these two: the keys of `[limits]` in the settings file.
  limits ? { },
  # Environment variables of its own.
  variables ? { },
  # One line for people and models.
  description ? null,
}:
let
  inherit (pkgs) lib;

  interpreters = import ./interpreters.nix;
  interpreter =
    interpreters.${interpreter_type}
      or (throw "mkSandbox: interpreter_type ${builtins.toJSON interpreter_type} is none; there are ${lib.concatStringsSep ", " (lib.attrNames interpreters)}");
  limitNames = [
    "memory"
    "swap"
    "pids"
    "cpu"
    "workspace"
    "files"
    "output"
    "time"
  ];
  unknown = lib.subtractLists limitNames (lib.attrNames limits);

  env = pkgs.buildEnv {
    name = "sandbox-env-${name}";
    paths =
      packages
      ++ map lib.lowPrio [
        pkgs.bash
        pkgs.coreutils
      ];
  };
  closure = pkgs.closureInfo { rootPaths = [ env ]; };
  jail = import ./backends/jail.nix { inherit jail-nix; } {
    inherit
      env
      interpreter
      name
      pkgs
      variables
      ;
  };
  metadata = {
    version = 1;
    # Which agreement between the server and bin/run it is: nix/backends/jail.nix.
    jail = 1;
    inherit
      interpreter_type
      limits
      memory_mb
      name
      timeout_seconds
      variables
      ;
    env = "${env}";
    store_dir = builtins.storeDir;
  }
  // lib.optionalAttrs (description != null) { inherit description; };
in
assert
  builtins.match "[A-Za-z0-9_.-]{1,64}" name != null
  || throw "mkSandbox: ${builtins.toJSON name} is no name; it has 1 to 64 letters, digits, `_`, `.` or `-`";
assert
  unknown == [ ]
  || throw "mkSandbox: ${name} has no limit ${lib.concatStringsSep ", " unknown}; there are ${lib.concatStringsSep ", " limitNames}";
pkgs.runCommand "sandbox-${name}"
  {
    nativeBuildInputs = [ pkgs.jq ];
    metadata = builtins.toJSON metadata;
    passAsFile = [ "metadata" ];
    passthru = {
      inherit closure env;
      sandbox = name;
    };
  }
  ''
    if [ ! -x ${env}/bin/${interpreter.program} ]; then
      echo "mkSandbox: no package of ${name} has the program ${interpreter.program}, which interpreter_type ${interpreter_type} needs" >&2
      exit 1
    fi
    mkdir -p "$out/bin"
    jq --rawfile paths ${closure}/store-paths \
      '.closure = ($paths | split("\n") | map(select(. != "")))' "$metadataPath" >"$out/metadata.json"
    ln -s ${jail.run} "$out/bin/run"
    ln -s ${jail.session-run} "$out/bin/session-run"
  ''
