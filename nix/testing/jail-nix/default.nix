# A jail is a list of permissions, each a function from what is known of the jail to more of it; in the
# end that is a bash program that calls bubblewrap. The names are jail.nix's.
{
  extend =
    {
      pkgs,
      basePermissions,
      bubblewrapPackage ? pkgs.bubblewrap,
    }:
    let
      inherit (pkgs) lib;
      inherit (lib) escapeShellArg;
      more =
        key: value: jail:
        jail // { ${key} = jail.${key} ++ [ value ]; };

      combinators = rec {
        unsafe-add-raw-args = more "arguments";
        add-runtime = more "runtime";
        add-pkg-deps =
          packages: jail:
          jail // { path = map (package: "${lib.getBin package}/bin") packages ++ jail.path; };
        ro-bind = from: to: unsafe-add-raw-args "--ro-bind ${escapeShellArg from} ${escapeShellArg to}";
        set-env =
          name: value: jail:
          jail
          // {
            env = jail.env // {
              ${name} = escapeShellArg value;
            };
          };
        bind-nix-store-runtime-closure = jail: jail // { bindClosure = true; };
      };

      # What the jail needs of the store, as arguments of bubblewrap in a file.
      closure =
        name: exe: jail:
        pkgs.runCommand "${name}-closure"
          {
            __structuredAttrs = true;
            exportReferencesGraph.graph = pkgs.writeText "${name}-roots" (
              lib.concatStringsSep "\n" ([ exe ] ++ jail.path)
            );
            nativeBuildInputs = [ pkgs.jq ];
          }
          ''
            jq -r '.graph[].path' "$NIX_ATTRS_JSON_FILE" | sort | while read -r path; do
              printf '%s\0' --ro-bind "$path" "$path"
            done >"$out"
          '';

      text = name: exe: jail: ''
        RUNTIME_ARGS=()
        ${lib.optionalString jail.bindClosure "exec {CLOSURE}<${closure name exe jail}"}
        ${lib.concatStringsSep "\n" jail.runtime}
        exec ${lib.getExe bubblewrapPackage} ${lib.concatStringsSep " " jail.arguments} \
          ${lib.optionalString jail.bindClosure "--args \"$CLOSURE\""} \
          --unshare-user --unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup \
          --new-session --die-with-parent \
          --setenv PATH ${escapeShellArg (lib.concatStringsSep ":" jail.path)} \
          ${
            lib.concatStringsSep " " (lib.mapAttrsToList (key: value: "--setenv ${key} ${value}") jail.env)
          } \
          "''${RUNTIME_ARGS[@]}" -- ${exe} "$@"
      '';

      nothing = {
        arguments = [ ];
        bindClosure = false;
        env = { };
        path = [ ];
        runtime = [ ];
      };
    in
    name: exe: permissions:
    pkgs.writeShellApplication {
      inherit name;
      runtimeInputs = [ pkgs.coreutils ];
      text = text name exe (lib.pipe nothing (basePermissions combinators ++ permissions combinators));
    };
}
