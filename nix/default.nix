# The library of the flake.
{ jail-nix }:
let
  mkSandbox = import ./mkSandbox.nix { inherit jail-nix; };
  server = pkgs: import ./package.nix { inherit pkgs; };
  presets =
    pkgs:
    builtins.mapAttrs (_: preset: mkSandbox ({ inherit pkgs; } // preset)) (
      import ./presets.nix { inherit pkgs; }
    );
in
{
  inherit mkSandbox presets server;
  fromToml = import ./fromToml.nix { inherit mkSandbox server; };
}
