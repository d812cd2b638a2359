# A package set as nixpkgs is one, as far as this project and jail.nix look at it.
{ system }:
let
  lib = import ./lib.nix;
  builders = import ./builders.nix { inherit lib pkgs system; };
  debian = import ./debian.nix { inherit lib pkgs system; };
  # Names that are evaluated and nothing more.
  absent = lib.genAttrs [
    "cargo"
    "cargo-deny"
    "clippy"
    "deadnix"
    "nixfmt"
    "nixfmt-tree"
    "rustc"
    "rustfmt"
  ] (name: pkgs.runCommand name { } "echo '${name}: the offline package set has none' >&2; exit 1");
  pkgs =
    absent
    // builders
    // debian
    // {
      inherit lib system;
      stdenv.hostPlatform = {
        inherit system;
        isLinux = true;
      };
      rustPlatform.buildRustPackage = import ./rust.nix { inherit pkgs system; };
    };
in
pkgs
