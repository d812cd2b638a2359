# A package set as nixpkgs is one, as far as this project and jail.nix look at it.
{ system }:
let
  lib = import ./lib.nix;
  builders = import ./builders.nix { inherit lib pkgs system; };
  debian = import ./debian.nix { inherit lib pkgs system; };
  pkgs =
    builders
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
