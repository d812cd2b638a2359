# The jail.nix backend: `bin/run` and `bin/session-run` of an artifact, for where the engine cannot run.
#
# bin/run reads code on stdin and runs it. bin/session-run starts the agent, which reads descriptor 3
# and answers on 4. PROJECT_DIR is shown read-only at PROJECT_MOUNT (/project); a system-call filter
# that NIX_SANDBOX_SECCOMP_FD names is worn. What is inside is what the engine has inside.
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
  };
  # In the store by itself: an artifact keeps what it names, and does not change with other files.
  agent = builtins.path {
    path = ../../agent;
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

  # A full disk is the jail's own, as in the engine.
  size = toString (256 * 1024 * 1024);
  room = c: at: c.unsafe-add-raw-args "--size ${size} --tmpfs ${at}";

  permissions =
    c:
    [
      (c.unsafe-add-raw-args "--clearenv --proc /proc --dev /dev")
      (c.add-pkg-deps [ env ])
      (room c "/tmp")
      (room c "/workspace")
      (room c "/code")
      (c.ro-bind passwd "/etc/passwd")
      (c.ro-bind group "/etc/group")
      (c.ro-bind "${agent}" "/agent")
      # Started by root it would keep root's capabilities.
      (c.unsafe-add-raw-args "--uid 1000 --gid 1000 --cap-drop ALL --disable-userns")
      (c.unsafe-add-raw-args "--hostname sandbox --chdir /workspace")
      (c.unsafe-add-raw-args "--symlink ${env}/bin/sh /bin/sh --symlink ${env}/bin/env /usr/bin/env")
      (c.set-env "HOME" "/workspace")
      (c.set-env "LANG" "C.UTF-8")
      (c.set-env "TERM" "dumb")
      (c.set-env "TMPDIR" "/workspace")
      (c.set-env "USER" "sandbox")
      (c.add-runtime ''
        if [ -n "''${PROJECT_DIR-}" ]; then
          RUNTIME_ARGS+=(--ro-bind "$PROJECT_DIR" "''${PROJECT_MOUNT:-/project}")
        fi
        if [ -n "''${NIX_SANDBOX_SECCOMP_FD-}" ]; then
          RUNTIME_ARGS+=(--seccomp "$NIX_SANDBOX_SECCOMP_FD")
        fi
        RUNTIME_ARGS+=(--remount-ro /)
      '')
    ]
    ++ lib.mapAttrsToList c.set-env variables;

  jailed =
    suffix: text:
    let
      entry = pkgs.writeShellScriptBin "sandbox-${name}-${suffix}" "set -eu\n${text}";
    in
    "${
      jail "jail-${name}-${suffix}" "${entry}/bin/sandbox-${name}-${suffix}" permissions
    }/bin/jail-${name}-${suffix}";
in
{
  run = jailed "run" ''
    cat >${interpreter.code}
    exec ${interpreter.run} ${interpreter.code} </dev/null
  '';
  session-run = jailed "session" "exec ${interpreter.session}";
}
