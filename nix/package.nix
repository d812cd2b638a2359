# The server, without environments: those are put around it.
{ pkgs }:
let
  # What the program is made of; a word in README.md builds nothing anew.
  parts = [
    "Cargo.lock"
    "Cargo.toml"
    "agent"
    "deploy"
    "presets"
    "seccomp"
    "src"
  ];
  top = toString ../.;
  # The path below the top, by its first part.
  part =
    path:
    builtins.head (
      builtins.match "/?([^/]*).*" (builtins.substring (builtins.stringLength top) (-1) path)
    );
in
pkgs.rustPlatform.buildRustPackage {
  pname = "nix-sandbox-mcp";
  version = (builtins.fromTOML (builtins.readFile ../Cargo.toml)).package.version;
  src = builtins.path {
    path = ../.;
    name = "nix-sandbox-mcp-source";
    filter = path: _type: builtins.elem (part (toString path)) parts;
  };
  cargoLock.lockFile = ../Cargo.lock;
  # The suites need namespaces, which a build has not. `tests/all` runs them.
  doCheck = false;
  meta = {
    description = "Sandboxed code execution for language models: an MCP server and its engine";
    mainProgram = "nix-sandbox-mcp";
  };
}
