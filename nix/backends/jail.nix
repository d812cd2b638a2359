# The jail.nix backend: `bin/run` and `bin/session-run` of an artifact.
#
# With NIX_SANDBOX_BACKEND=jail the server calls them. What it has decided for one run it says in words
# of bubblewrap on the descriptor that NIX_SANDBOX_ARGS_FD names (src/backend/jail/arguments.rs): sizes,
# small files, the code, the project, variables, the filter. Their arguments are the interpreter's.
#
# By hand, bin/run reads code on stdin and runs it; bin/session-run starts the agent, which reads
# descriptor 3 and answers on 4. PROJECT_DIR is shown read-only at PROJECT_MOUNT (/project); a
# system-call filter that NIX_SANDBOX_SECCOMP_FD names is worn. What is inside is what the engine has
# inside.
{ jail-nix }:
{
  pkgs,
  name,
  env,
  interpreter,
  variables,
}:
let
  inherit (pkgs) lib;

  # Not jail.nix's own base: it shows the caller's name and the place of his home, keeps a file there,
  # and fails where LANG, HOME or TERM is not set.
  jail = jail-nix.lib.extend {
    inherit pkgs;
    basePermissions = c: [ c.bind-nix-store-runtime-closure ];
    # bubblewrap is the sandbox's pid 1: whatever it is started with can be read in there.
    bubblewrapPackage = pkgs.writeShellScriptBin "bwrap" ''exec -c ${lib.getExe pkgs.bubblewrap} "$@"'';
  };
  # In the store by itself: an artifact keeps what it names, and does not change with other files.
  agent = builtins.path {
    path = interpreter.agent;
    name = "agent";
  };
  passwd = pkgs.writeText "passwd" ''
    sandbox:x:1000:1000::/workspace:/bin/sh
    nobody:x:65534:65534::/nonexistent:/bin/false
  '';
  group = pkgs.writeText "group" ''
    sandbox:x:1000:
    nogroup:x:65534:
  '';

  words = lib.concatStringsSep " ";
  # A full disk is the jail's own, as in the engine.
  room = mode: at: "--perms ${mode} --size ${toString (256 * 1024 * 1024)} --tmpfs ${at}";

  # What the server says where it calls.
  byHand = words [
    (room "1777" "/tmp")
    (room "0755" "/workspace")
    (room "1777" "/dev/shm")
    "--ro-bind ${passwd} /etc/passwd --ro-bind ${group} /etc/group --ro-bind ${agent} /agent"
    "--symlink ${env}/bin/sh /bin/sh --symlink ${env}/bin/env /usr/bin/env"
  ];

  permissions =
    prepare: c:
    [
      (c.unsafe-add-raw-args "--clearenv --proc /proc --dev /dev")
      (c.add-pkg-deps [ env ])
      # Started by root it would keep root's capabilities.
      (c.unsafe-add-raw-args "--uid 1000 --gid 1000 --cap-drop ALL --disable-userns")
      (c.unsafe-add-raw-args "--hostname sandbox --chdir /workspace")
      (c.set-env "HOME" "/workspace")
      (c.set-env "LANG" "C.UTF-8")
      (c.set-env "TERM" "dumb")
      (c.set-env "TMPDIR" "/workspace")
      (c.set-env "USER" "sandbox")
      (c.add-runtime ''
        if [ -n "''${NIX_SANDBOX_ARGS_FD-}" ]; then
          RUNTIME_ARGS+=(--args "$NIX_SANDBOX_ARGS_FD")
        else
          RUNTIME_ARGS+=(${byHand})
          if [ -n "''${PROJECT_DIR-}" ]; then
            RUNTIME_ARGS+=(--ro-bind "$PROJECT_DIR" "''${PROJECT_MOUNT:-/project}")
          fi
          if [ -n "''${NIX_SANDBOX_SECCOMP_FD-}" ]; then
            RUNTIME_ARGS+=(--seccomp "$NIX_SANDBOX_SECCOMP_FD")
          fi
          RUNTIME_ARGS+=(--remount-ro /dev)
          ${prepare}
        fi
        RUNTIME_ARGS+=(--remount-ro /)
      '')
    ]
    ++ lib.mapAttrsToList c.set-env variables;

  jailed =
    suffix: prepare:
    "${
      jail "jail-${name}-${suffix}" "${env}/bin/${interpreter.program}" (permissions prepare)
    }/bin/jail-${name}-${suffix}";
in
{
  run = jailed "run" ''
    set -- ${words interpreter.run}
    exec {CODE}<&0 </dev/null
    RUNTIME_ARGS+=(${room "0755" "/code"} --perms 0444 --file "$CODE" ${interpreter.code} --remount-ro /code)
  '';
  session-run = jailed "session" "set -- ${words interpreter.session}";
}
