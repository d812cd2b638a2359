{
  description = "Stands in for jail.nix where it cannot be fetched: the combinators that nix/backends/jail.nix uses";

  outputs = _: { lib = import ./.; };
}
