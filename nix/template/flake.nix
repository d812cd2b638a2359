{
  description = "My environments for nix-sandbox-mcp";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";
    nix-sandbox-mcp.url = "github:secbear/nix-sandbox-mcp";
  };

  # NIX_SANDBOX_ENVS="/absolute/path/of/this/directory#tools"
  outputs =
    { nixpkgs, nix-sandbox-mcp, ... }:
    let
      each = nixpkgs.lib.genAttrs [
        "x86_64-linux"
        "aarch64-linux"
      ];
    in
    {
      packages = each (
        system:
        let
          pkgs = nixpkgs.legacyPackages.${system};
        in
        {
          tools = nix-sandbox-mcp.lib.mkSandbox {
            inherit pkgs;
            name = "tools";
            interpreter_type = "bash";
            packages = [
              pkgs.jq
              pkgs.ripgrep
            ];
            description = "ripgrep and jq";
          };
        }
      );
    };
}
