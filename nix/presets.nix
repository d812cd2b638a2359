# The bundled environments, as mkSandbox takes them: presets/*.toml tells their packages.
{ pkgs }:
let
  inherit (pkgs) lib;
  read = name: builtins.fromTOML (builtins.readFile (../presets + "/${name}.toml"));
  package =
    preset: name:
    if name == "python3" && preset ? python_packages then
      pkgs.python3.withPackages (all: map (one: all.${one}) preset.python_packages)
    else
      pkgs.${name};
in
lib.genAttrs (map (lib.removeSuffix ".toml") (lib.attrNames (builtins.readDir ../presets))) (
  name:
  let
    preset = read name;
  in
  {
    inherit (preset)
      description
      interpreter_type
      limits
      name
      ;
    packages = map (package preset) preset.packages;
  }
)
