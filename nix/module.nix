# What a NixOS machine needs so that ordinary users can run sandboxes with every wall.
{ self }:
{
  config,
  lib,
  pkgs,
  ...
}:
let
  cfg = config.programs.nix-sandbox-mcp;
in
{
  options.programs.nix-sandbox-mcp = {
    enable = lib.mkEnableOption "the sandbox server nix-sandbox-mcp and what it needs of the machine";
    package = lib.mkOption {
      type = lib.types.package;
      default = self.packages.${pkgs.stdenv.hostPlatform.system}.default;
      defaultText = lib.literalExpression "nix-sandbox-mcp.packages.\${system}.default";
      description = "The server that users find in their PATH.";
    };
  };

  config = lib.mkIf cfg.enable {
    environment.systemPackages = [ cfg.package ];

    # Every sandbox is a user namespace; the hardened profile switches them off for users.
    security.allowUserNamespaces = true;
    security.unprivilegedUsernsClone = true;

    # Where AppArmor takes the rights out of user namespaces, this one program keeps them.
    security.apparmor.policies.nix-sandbox-mcp.profile = lib.mkIf config.security.apparmor.enable (
      builtins.readFile ../deploy/apparmor/nix-sandbox-mcp
    );

    # A user's own processes may set limits: memory, processes and processors of each sandbox.
    systemd.services."user@" = {
      overrideStrategy = "asDropin";
      serviceConfig.Delegate = "cpu memory pids";
    };
  };
}
