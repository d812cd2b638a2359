# The functions of nixpkgs' lib that this project and jail.nix call, with the same meaning.
let
  inherit (builtins)
    elemAt
    foldl'
    genList
    isList
    length
    match
    replaceStrings
    stringLength
    substring
    ;
in
rec {
  inherit (builtins)
    attrNames
    concatStringsSep
    elem
    filter
    mapAttrs
    ;

  # Functions and lists.
  flip =
    f: x: y:
    f y x;
  pipe = foldl' (value: f: f value);
  foldr =
    f: end: list:
    foldl' (rest: n: f (elemAt list (length list - 1 - n)) rest) end (genList (n: n) (length list));
  flatten = x: if isList x then builtins.concatMap flatten x else [ x ];
  unique = foldl' (seen: x: if builtins.elem x seen then seen else seen ++ [ x ]) [ ];
  optional = condition: x: if condition then [ x ] else [ ];
  subtractLists = unwanted: filter (x: !builtins.elem x unwanted);

  # Attribute sets.
  optionalAttrs = condition: set: if condition then set else { };
  genAttrs =
    names: f:
    builtins.listToAttrs (
      map (name: {
        inherit name;
        value = f name;
      }) names
    );
  attrByPath =
    path: default: set:
    if path == [ ] then
      set
    else if set ? ${builtins.head path} then
      attrByPath (builtins.tail path) default set.${builtins.head path}
    else
      default;
  filterAttrs =
    keep: set: removeAttrs set (filter (name: !keep name set.${name}) (builtins.attrNames set));
  mapAttrsToList = f: set: map (name: f name set.${name}) (builtins.attrNames set);
  warn = message: builtins.trace "warning: ${message}";

  # Text.
  optionalString = condition: text: if condition then text else "";
  concatMapStringsSep =
    separator: f: list:
    concatStringsSep separator (map f list);
  splitString =
    separator: text: filter builtins.isString (builtins.split (escapeRegex separator) text);
  escapeRegex = replaceStrings [ "." "+" ] [ "\\." "\\+" ];
  stringToCharacters = text: genList (n: substring n 1 text) (stringLength text);
  hasPrefix = prefix: text: substring 0 (stringLength prefix) text == prefix;
  removeSuffix =
    suffix: text:
    let
      before = stringLength text - stringLength suffix;
    in
    if before >= 0 && substring before (-1) text == suffix then substring 0 before text else text;
  toUpper =
    let
      letters = stringToCharacters "abcdefghijklmnopqrstuvwxyz";
    in
    replaceStrings letters (stringToCharacters "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
  isValidPosixName = name: match "[a-zA-Z_][a-zA-Z0-9_]*" name != null;
  escapeShellArg =
    value:
    let
      text = toString value;
    in
    if match "[[:alnum:],._+:@%/-]+" text != null then
      text
    else
      "'${replaceStrings [ "'" ] [ "'\\''" ] text}'";
  sanitizeDerivationName =
    text:
    concatStringsSep "" (
      map (c: if match "[[:alnum:]+._?=-]" c == null then "-" else c) (
        stringToCharacters (builtins.unsafeDiscardStringContext (toString text))
      )
    );
  strings = {
    inherit
      concatStringsSep
      escapeShellArg
      sanitizeDerivationName
      toUpper
      ;
  };

  # Packages.
  getBin = package: package.bin or package.out or package;
  getExe =
    package: "${getBin package}/bin/${package.meta.mainProgram or package.pname or package.name}";
  makeBinPath = concatMapStringsSep ":" (package: "${getBin package}/bin");
  lowPrio =
    package:
    package
    // {
      meta = package.meta or { } // {
        priority = 10;
      };
    };
}
