# The server with environments baked in, and settings that hold where the environment sets none.
{ pkgs }:
{
  server,
  metadata,
  settings,
}:
let
  inherit (pkgs) lib;
  defaults = settings // {
    NIX_SANDBOX_METADATA = "@${pkgs.writeText "metadata" (builtins.toJSON metadata)}";
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
