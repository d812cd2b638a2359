# The builders of nixpkgs that this project and jail.nix call.
{
  lib,
  pkgs,
  system,
}:
let
  # bash would execute its last command in its own place, and coreutils close stderr before they end:
  # Nix takes the end of the log for the end of the build and kills it. So builds end with `exit`.
  runCommand =
    name: env: command:
    derivation (
      {
        inherit name system;
        builder = "${pkgs.bash}/bin/bash";
        args = [
          "-euc"
          ''
            # In the sandbox of Nix 2.8 NIX_ATTRS_SH_FILE names a path outside of it.
            if [ -e .attrs.sh ]; then
              . ./.attrs.sh
              out=''${outputs[out]}
              export NIX_ATTRS_JSON_FILE=$PWD/.attrs.json
            fi
            export PATH=${
              lib.makeBinPath (
                [
                  pkgs.coreutils
                  pkgs.gnugrep
                  pkgs.gnused
                  pkgs.findutils
                ]
                ++ env.nativeBuildInputs or [ ]
              )
            }
            ${command}
            exit 0
          ''
        ];
      }
      // removeAttrs env [
        "meta"
        "passthru"
      ]
    )
    // {
      meta = env.meta or { };
    }
    // env.passthru or { };

  writeTextFile =
    {
      name,
      text,
      executable ? false,
      destination ? "",
      meta ? { },
    }:
    runCommand name
      {
        inherit text meta;
        passAsFile = [ "text" ];
      }
      ''
        mkdir -p "$(dirname "$out${destination}")"
        cp "$textPath" "$out${destination}"
        ${lib.optionalString executable "chmod +x \"$out${destination}\""}
      '';

  writeScriptBin =
    name: text:
    writeTextFile {
      inherit name text;
      executable = true;
      destination = "/bin/${name}";
      meta.mainProgram = name;
    };
in
{
  inherit runCommand writeScriptBin;

  writeText = name: text: writeTextFile { inherit name text; };

  writeShellScriptBin = name: text: writeScriptBin name "#!${pkgs.bash}/bin/bash\n${text}\n";

  writeShellApplication =
    {
      name,
      text,
      runtimeInputs ? [ ],
    }:
    writeScriptBin name ''
      #!${pkgs.bash}/bin/bash
      set -o errexit
      set -o nounset
      set -o pipefail
      export PATH="${lib.makeBinPath runtimeInputs}:$PATH"
      ${text}
    '';

  linkFarm =
    name: entries:
    runCommand name { } ''
      mkdir -p "$out"
      ${lib.concatMapStringsSep "\n" (entry: "ln -s ${entry.path} \"$out/${entry.name}\"") entries}
    '';

  # Files are linked one by one; the first package that has a file gives it, those of low priority last.
  buildEnv =
    { name, paths, ... }:
    let
      low = package: package.meta.priority or 5 > 5;
      ordered = lib.filter (package: !low package) paths ++ lib.filter low paths;
    in
    runCommand name { } ''
      mkdir -p "$out"
      for package in ${lib.concatMapStringsSep " " (package: "${lib.getBin package}") ordered}; do
        cp -rsn --no-preserve=mode "$package/." "$out/"
      done
    '';

  closureInfo =
    { rootPaths }:
    runCommand "closure-info"
      {
        __structuredAttrs = true;
        exportReferencesGraph.closure = rootPaths;
        nativeBuildInputs = [ pkgs.jq ];
      }
      ''
        mkdir "$out"
        jq -r '.closure[].path' "$NIX_ATTRS_JSON_FILE" | sort >"$out/store-paths"
      '';

  mkShell =
    {
      packages ? [ ],
      buildInputs ? [ ],
      nativeBuildInputs ? [ ],
      ...
    }:
    runCommand "shell" { } "mkdir \"$out\""
    // {
      inherit buildInputs;
      nativeBuildInputs = packages ++ nativeBuildInputs;
    };
}
