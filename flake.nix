{
  description = "Sandboxed code execution for language models: environments are flakes, isolation is the kernel's";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";
    # Only artifacts need it, and it is fetched only when one is built.
    jail-nix.url = "sourcehut:~alexdavid/jail.nix";
  };

  outputs =
    {
      self,
      nixpkgs,
      jail-nix,
    }:
    let
      each =
        f:
        nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (
          system: f nixpkgs.legacyPackages.${system}
        );
      library = import ./nix { inherit jail-nix; };
    in
    {
      lib = { inherit (library) fromToml mkSandbox; };

      packages = each (
        pkgs:
        let
          built = library.fromToml {
            inherit pkgs;
            config = ./config.example.toml;
          };
        in
        library.presets pkgs
        // {
          default = built.server;
          server = library.server pkgs;
        }
      );

      apps = each (pkgs: {
        default = {
          type = "app";
          program = "${self.packages.${pkgs.stdenv.hostPlatform.system}.default}/bin/nix-sandbox-mcp";
          meta.description = "The MCP server, with the environments of config.example.toml";
        };
      });

      checks = each (pkgs: self.packages.${pkgs.stdenv.hostPlatform.system});

      overlays.default = final: _: {
        nix-sandbox-mcp = library.server final;
        mkSandbox = arguments: library.mkSandbox ({ pkgs = final; } // arguments);
      };

      devShells = each (pkgs: {
        default = pkgs.mkShell {
          packages = [
            pkgs.bubblewrap
            pkgs.cargo
            pkgs.cargo-deny
            pkgs.clippy
            pkgs.deadnix
            pkgs.jq
            pkgs.nixfmt
            pkgs.rustc
            pkgs.rustfmt
          ];
        };
      });

      formatter = each (pkgs: pkgs.nixfmt-tree);

      nixosModules.default = import ./nix/module.nix { inherit self; };

      templates.default = {
        # Not a path of Nix: in a chroot store Nix 2.8 takes that for one outside of the store.
        path = "${self}/nix/template";
        description = "My environments for nix-sandbox-mcp";
      };
    };
}
