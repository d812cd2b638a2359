{
  description = "Stands in for nixpkgs where nothing can be fetched: Debian's packages as store paths";

  outputs = _: {
    lib = import ./lib.nix;
    legacyPackages = {
      x86_64-linux = import ./. { system = "x86_64-linux"; };
      # Evaluated, never built: the packages of lock.json are those of x86_64.
      aarch64-linux = import ./. { system = "aarch64-linux"; };
    };
  };
}
