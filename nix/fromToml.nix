# A server with the environments that a TOML file tells: see config.example.toml.
{ mkSandbox, server }:
{
  pkgs,
  # The file's path. `flake` and `use_flake` in it are looked up as `nix build` does: without a hash
  # in the reference that needs `--impure`.
  config,
}:
let
  inherit (pkgs) lib;
  inherit (pkgs.stdenv.hostPlatform) system;

  told = only "it" [
    "backends"
    "daemon"
    "defaults"
    "environments"
    "limits"
    "project"
    "session"
  ] (builtins.fromTOML (builtins.readFile config));
  wrong = problem: throw "${baseNameOf config}: ${problem}";
  oneOf =
    what: value: choices:
    if builtins.elem value choices then
      value
    else
      wrong "${what} ${builtins.toJSON value} is none; there are ${lib.concatStringsSep ", " choices}";
  # Refuses keys that would be dropped in silence.
  only =
    what: known: set:
    lib.pipe (lib.subtractLists known (lib.attrNames set)) [
      (
        unknown: if unknown == [ ] then set else wrong "${what} has no ${lib.concatStringsSep ", " unknown}"
      )
    ];
  presets = import ./presets.nix { inherit pkgs; };
  defaults = only "[defaults]" [
    "backend"
    "memory_mb"
    "timeout_seconds"
  ] (told.defaults or { });

  # What holds where an environment says nothing itself.
  base = {
    inherit pkgs;
    timeout_seconds = defaults.timeout_seconds or 30;
    memory_mb = defaults.memory_mb or 512;
  };

  build =
    name: given:
    let
      wanted = only "[environments.${name}]" [
        "flake"
        "interpreter"
        "limits"
        "memory_mb"
        "preset"
        "timeout_seconds"
      ] given;
      # In the terms of `limits`, which are over those two.
      limits =
        lib.optionalAttrs (wanted ? memory_mb) { memory = wanted.memory_mb * 1024 * 1024; }
        // lib.optionalAttrs (wanted ? timeout_seconds) { time = wanted.timeout_seconds; }
        // wanted.limits or { };
      package = resolve name wanted.flake;
      environment =
        if wanted ? preset then
          presets.${oneOf "the preset of ${name}" wanted.preset (lib.attrNames presets)}
        else if wanted ? flake then
          {
            interpreter_type = interpreterType name (wanted.interpreter or "bash -s");
            packages = [ package ];
            description = wanted.flake;
          }
        else
          wrong "[environments.${name}] has neither `preset` nor `flake`";
      made = mkSandbox (
        base
        // environment
        // {
          inherit name;
          limits = told.limits or { } // environment.limits or { } // limits;
        }
      );
    in
    if !(wanted ? flake && package ? sandbox) then
      made
    else if lib.attrNames wanted == [ "flake" ] && package.sandbox == name then
      package
    else
      wrong "${wanted.flake} is made by mkSandbox, as ${package.sandbox}: [environments.${package.sandbox}] takes it as it is, with `flake` alone";

  # `python3 -c`, as the predecessor wrote it, or `python`.
  interpreterType =
    name: command:
    let
      program = builtins.head (lib.splitString " " command);
      known = {
        bash = "bash";
        sh = "bash";
        node = "node";
        python = "python";
        python3 = "python";
      };
    in
    known.${oneOf "the interpreter of ${name}" program (lib.attrNames known)};

  # `REF#ATTRIBUTES`, where Nix's own command would look.
  resolve =
    name: reference:
    let
      parts = lib.splitString "#" reference;
      ref = builtins.head parts;
      flake = builtins.getFlake (
        if builtins.match "\\.{0,2}/.*|\\.\\.?" ref == null then ref else "path:${absolute ref}"
      );
      attributes =
        if builtins.length parts < 2 then [ "default" ] else lib.splitString "." (builtins.elemAt parts 1);
      places = map (before: before ++ attributes) [
        [
          "packages"
          system
        ]
        [
          "legacyPackages"
          system
        ]
        [ ]
      ];
      found = builtins.filter (package: package != null) (
        map (path: lib.attrByPath path null flake) places
      );
    in
    if found == [ ] then
      wrong "the flake of ${name}, ${ref}, has no package ${lib.concatStringsSep "." attributes}"
    else
      builtins.head found;

  absolute = path: if lib.hasPrefix "/" path then path else toString (dirOf config + "/${path}");

  # The environment `project`: what the project's own devShell has.
  projectEnvironment =
    let
      path = absolute (told.project.path or ".");
      flake = builtins.getFlake "path:${path}";
      shell = lib.attrByPath [
        "devShells"
        system
        "default"
      ] (lib.attrByPath [ "devShell" system ] (wrong "the flake at ${path} has no devShell") flake) flake;
    in
    mkSandbox (
      base
      // {
        name = "project";
        interpreter_type = interpreterType "project" (told.project.interpreter or "bash -s");
        packages = shell.buildInputs or [ ] ++ shell.nativeBuildInputs or [ ];
        limits = told.limits or { };
        description = "The programs of the project's devShell";
      }
    );

  environments =
    builtins.mapAttrs build (told.environments or { })
    // lib.optionalAttrs (told.project.use_flake or false) { project = projectEnvironment; };

  # What the server is told (NIX_SANDBOX_METADATA).
  metadata = {
    environments = builtins.mapAttrs (_: artifact: { artifact = "${artifact}"; }) environments;
  }
  // lib.filterAttrs (key: _: key == "project" || key == "session") told;

  # Settings that hold where the environment sets none.
  settings =
    lib.optionalAttrs (defaults ? backend) {
      NIX_SANDBOX_BACKEND = oneOf "the backend" defaults.backend [
        "auto"
        "engine"
        "jail"
      ];
    }
    // lib.optionalAttrs (told ? daemon.log_level) { NIX_SANDBOX_LOG = told.daemon.log_level; };
in
assert oneOf "the transport" (told.daemon.transport or "stdio") [ "stdio" ] == "stdio";
lib.pipe
  {
    inherit environments metadata;
    server = import ./withEnvironments.nix { inherit pkgs; } {
      inherit metadata settings;
      server = server pkgs;
    };
  }
  (
    lib.optional (told ? backends) (
      lib.warn "${baseNameOf config}: [backends] says nothing to this version"
    )
  )
