# The server with environments baked in, and settings that hold where the environment sets none.
{ pkgs }:
{
  server,
  environments,
  settings,
}:
let
  inherit (pkgs) lib;
  artifacts = pkgs.linkFarm "sandboxes" (
    lib.mapAttrsToList (name: path: { inherit name path; }) environments
  );
  defaults = settings // {
    NIX_SANDBOX_DIR = "${artifacts}";
  };
in
pkgs.writeShellScriptBin "nix-sandbox-mcp" ''
  ${lib.concatStringsSep "\n" (
    lib.mapAttrsToList (name: value: "export ${name}=\${${name}-${lib.escapeShellArg value}}") defaults
  )}
  # For NIX_SANDBOX_BACKEND=jail, where the machine has none.
  export PATH="''${PATH:+$PATH:}${pkgs.bubblewrap}/bin"
  exec ${server}/bin/nix-sandbox-mcp "$@"
''
