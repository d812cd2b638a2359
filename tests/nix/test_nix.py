"""Environments that real Nix builds, without a binary cache, and what runs in them.

tests/nix/run prepares what this needs and calls it.
"""

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

from mcp import Client, StdioServerParameters

import harness
import store
from harness import Lacks
from store import CHROOT, FLAKE, HOME, INPUTS, STAGE, build, nix, on_host, requisites, said
from test_jail import without_new_mount_calls

PROGRAM = os.environ["NIX_SANDBOX_BIN"]
PRESETS = {"shell": "bash", "python": "python", "node": "node"}
CODE = {
    "shell": "echo $((6 * 7))",
    "python": "print(6 * 7)",
    "node": "console.log(6 * 7)",
}
# A consumer names this flake and has its inputs from it.
CONSUMER_INPUTS = {
    "nixpkgs": INPUTS["nixpkgs"],
    "nix-sandbox-mcp": FLAKE,
    "nix-sandbox-mcp/nixpkgs": INPUTS["nixpkgs"],
    "nix-sandbox-mcp/jail-nix": INPUTS["jail-nix"],
}


@cache
def bundled():
    """The artifacts of the bundled environments."""
    paths = build(*(f"{FLAKE}#{name}" for name in PRESETS))
    return dict(zip(PRESETS, paths, strict=True))


def metadata(artifact):
    return json.loads((on_host(artifact) / "metadata.json").read_text())


def flake(text):
    """A new flake of this text, as a directory."""
    directory = Path(tempfile.mkdtemp(dir=HOME))
    (directory / "flake.nix").write_text(text)
    return directory


def sandboxes(expression):
    """A consumer's flake with environments of its own."""
    return flake(
        """{
          outputs = { nixpkgs, nix-sandbox-mcp, ... }:
            let
              pkgs = nixpkgs.legacyPackages.x86_64-linux;
              inherit (nix-sandbox-mcp.lib) fromToml mkSandbox;
            in
            { packages.x86_64-linux = %s; };
          inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";
          inputs.nix-sandbox-mcp.url = "github:secbear/nix-sandbox-mcp";
        }"""
        % expression
    )


def engine(artifacts, *words, check=True, backend="engine", **options):
    """The program, with these artifacts as environments."""
    directory = Path(tempfile.mkdtemp(dir=HOME))
    for artifact in artifacts:
        (directory / artifact.name).symlink_to(artifact)
    env = {"HOME": str(HOME), "PATH": "/usr/bin:/bin", "NIX_SANDBOX_DIR": str(directory)}
    env["NIX_SANDBOX_BACKEND"] = backend
    if CHROOT:
        env["NIX_SANDBOX_STORE_ROOT"] = str(CHROOT)
    return said(PROGRAM, *words, check=check, env=env, **options)


def inside(name, *words, **options):
    """A command in a bundled environment."""
    return engine(bundled().values(), "exec", "--env", name, "--", *words, **options)


def test_nix_flake_check_passes():
    nix("flake", "check", FLAKE)


def test_the_three_bundled_environments_are_artifacts_of_version_1():
    for name, artifact in bundled().items():
        about = metadata(artifact)
        assert about["version"] == 1
        assert (about["name"], about["interpreter_type"]) == (name, PRESETS[name])
        assert (about["timeout_seconds"], about["memory_mb"]) == (30, 512)
        assert about["store_dir"] == "/nix/store"
    assert metadata(bundled()["node"])["limits"] == {"memory": "1G"}


def test_the_manifest_is_what_nix_store_qr_says():
    for artifact in bundled().values():
        about = metadata(artifact)
        assert set(about["closure"]) == requisites(about["env"])
        assert len(about["closure"]) == len(set(about["closure"]))
        # One root keeps the artifact and everything that it names.
        assert requisites(about["env"]) < requisites(artifact)


def test_the_flake_s_environments_are_the_presets():
    names = nix("eval", "--json", f"{FLAKE}#packages.x86_64-linux", "--apply", "builtins.attrNames")
    assert set(json.loads(names)) == {*PRESETS, "default", "server"}
    # For a comparison of two stores: .ci/long.
    paths = sorted(set().union(*(requisites(artifact) for artifact in bundled().values())))
    hashes = said("nix-store", "--query", "--hash", *paths)
    print(f"closures: {len(paths)} paths, {hashlib.sha256(hashes.encode()).hexdigest()}")


def test_only_the_closure_is_visible():
    for name, artifact in bundled().items():
        about = metadata(artifact)
        listed = inside(name, "sh", "-c", "ls /nix/store").split()
        assert {f"/nix/store/{path}" for path in listed} == set(about["closure"])
        counted = inside(name, "sh", "-c", "ls /nix/store | wc -l")
        assert int(counted) == len(about["closure"])


def test_a_store_path_outside_the_closure_is_enoent_and_nix_var_is_absent():
    outside = bundled()["node"]
    assert on_host(outside).exists()
    code = "import os\nfor path in [%r, '/nix/var']:\n try: os.stat(path)\n except OSError as error: print(error.errno)"
    said = inside("python", "python3", "-c", code % str(outside))
    assert said == "2\n2\n", said
    assert inside("python", "sh", "-c", "echo /nix/*") == "/nix/store\n"


def test_python_imports_ssl_sqlite3_ctypes_and_yaml_with_no_usr_in_its_maps():
    code = """
import ssl, sqlite3, ctypes, yaml, lzma, bz2, readline, uuid, zlib
print(sqlite3.connect(":memory:").execute("select 6 * 7").fetchone()[0])
print(yaml.safe_load("a: [1, 2]"), yaml.__with_libyaml__)
print(ctypes.CDLL("libc.so.6").abs(-3), ssl.create_default_context().verify_mode.name)
maps = open("/proc/self/maps").read()
print("/usr" in maps, "/nix/store/" in maps)
"""
    answer = "42\n{'a': [1, 2]} True\n3 CERT_REQUIRED\nFalse True\n"
    assert inside("python", "python3", "-c", code) == answer


def test_the_shell_has_its_tools_and_node_runs():
    code = """
echo '{"a": [1, 2, 3]}' | jq -c '.a | add'
echo '2 ^ 10' | bc
printf 'a b\\n' | awk '{ print $2 }' | sed s/b/c/ | grep c
mkdir -p d && touch d/f && find d -type f && tree --noreport d
echo x > one; echo y > two; diff one two | head -n 1
file -b one
"""
    expected = "6\n1024\nc\nd/f\nd\n`-- f\n1c1\nASCII text\n"
    answer = engine(bundled().values(), "run", "--env", "shell", "-", input=code)
    assert answer.replace("└──\xa0", "`-- ").replace("└── ", "`-- ") == expected, answer
    code = "console.log(process.version.slice(0, 4), require('crypto').createHash('sha256').update('').digest('hex').slice(0, 8))"
    assert inside("node", "node", "-e", code) == "v20. e3b0c442\n"


def test_a_closure_may_hold_files_and_symlinks():
    directory = sandboxes(
        """{
          edge = mkSandbox {
            inherit pkgs;
            name = "edge";
            interpreter_type = "bash";
            packages = [
              (pkgs.runCommand "edge" { } ''
                mkdir -p $out/share
                ln -s ${pkgs.runCommand "a-link" { } "ln -s ${pkgs.writeText "a-file" "from a file"} $out"} $out/share/text
                ln -s ${pkgs.runCommand "a-directory-link" { } "ln -s ${pkgs.tree} $out"} $out/share/tree
              '')
            ];
          };
        }"""
    )
    (artifact,) = build(f"path:{directory}#edge", inputs=CONSUMER_INPUTS)
    about = metadata(artifact)
    kinds = {Path(path).name[33:]: on_host(path) for path in about["closure"]}
    assert kinds["a-link"].is_symlink() and kinds["a-directory-link"].is_symlink()
    assert not kinds["a-file"].is_dir()
    script = f"cat {about['env']}/share/text; ls {about['env']}/share/tree/; ls /nix/store | wc -l"
    answer = engine([artifact], "exec", "--env", "edge", "--", "sh", "-c", script)
    assert answer == f"from a filebin\nshare\n{len(about['closure'])}\n", answer
    # The jail shows besides what it keeps the closure of.
    bubblewrap()
    answer = engine([artifact], "run", "--env", "edge", "-", backend="jail", input=script)
    assert answer == f"from a filebin\nshare\n{len(about['closure']) + (not CHROOT)}\n", answer


def test_a_build_that_fails_says_why_in_its_last_lines():
    directory = sandboxes(
        """{
          without = mkSandbox { inherit pkgs; name = "without"; interpreter_type = "python"; packages = [ pkgs.jq ]; };
          ruby = mkSandbox { inherit pkgs; name = "ruby"; interpreter_type = "ruby"; packages = [ ]; };
          nameless = mkSandbox { inherit pkgs; name = "a/b"; interpreter_type = "bash"; packages = [ ]; };
          limitless = mkSandbox { inherit pkgs; name = "x"; interpreter_type = "bash"; packages = [ ]; limits.ram = 1; };
        }"""
    )
    for name, reason in {
        "without": "mkSandbox: no package of without has the program python3, which interpreter_type python needs",
        "ruby": 'mkSandbox: interpreter_type "ruby" is none; there are bash, node, python',
        "nameless": 'mkSandbox: "a/b" is no name; it has 1 to 64 letters, digits, `_`, `.` or `-`',
        "limitless": "mkSandbox: x has no limit ram; there are memory, swap, pids, cpu, workspace, files, output, time",
    }.items():
        failed = nix("build", "--no-link", f"path:{directory}#{name}", inputs=CONSUMER_INPUTS, check=False)
        assert failed.returncode == 1 and reason in failed.stderr, failed.stderr


def test_a_flake_reference_may_be_a_path():
    directory = sandboxes(
        """{
          mine = mkSandbox {
            inherit pkgs;
            name = "mine";
            interpreter_type = "bash";
            packages = [ pkgs.jq ];
            timeout_seconds = 7;
            memory_mb = 64;
            limits.pids = 32;
            variables.GREETING = "hello";
            description = "My own";
          };
        }"""
    )
    (artifact,) = build(f"{directory}#mine", inputs=CONSUMER_INPUTS)
    assert build(f"path:{directory}#mine", inputs=CONSUMER_INPUTS) == [artifact]
    assert build("./.#mine", inputs=CONSUMER_INPUTS, cwd=directory) == [artifact]
    plan = json.loads(engine([artifact], "plan", "--json", "--env", "mine"))
    limits = plan["limits"]
    assert (limits["time_ms"], limits["memory"], limits["pids"]) == (7000, 64 << 20, 32)
    script = "echo $GREETING; command -v jq"
    answer = engine([artifact], "exec", "--env", "mine", "--", "sh", "-c", script)
    assert answer == f"hello\n{metadata(artifact)['env']}/bin/jq\n"


# A flake without inputs, with a program and a devShell.
GREETER = """{
  outputs = _: rec {
    packages.x86_64-linux.greeter = derivation {
      name = "greeter";
      system = "x86_64-linux";
      builder = "/bin/sh";
      args = [ "-c" ''
        PATH=/usr/bin:/bin
        mkdir -p $out/bin
        printf '#!/bin/sh\\necho hello\\n' >$out/bin/greeter
        chmod +x $out/bin/greeter
        exit 0
      '' ];
    };
    devShells.x86_64-linux.default.nativeBuildInputs = [ packages.x86_64-linux.greeter ];
  };
}"""


def configured(toml):
    """A flake with a server of this configuration, and one of its environments."""
    directory = sandboxes(
        """let built = fromToml { inherit pkgs; config = ./my.toml; }; in
          built.environments // { inherit (built) server; told = pkgs.writeText "told" (builtins.toJSON built.metadata); }"""
    )
    (directory / "my.toml").write_text(toml)
    (directory / "greeter").mkdir()
    (directory / "greeter/flake.nix").write_text(GREETER)
    (directory / "bare").mkdir()
    (directory / "bare/flake.nix").write_text("{ outputs = _: { }; }")
    return f"path:{directory}"


def test_from_toml_reads_everything_that_a_configuration_may_say():
    reference = configured(
        """
        [daemon]
        transport = "stdio"
        log_level = "error"
        [defaults]
        backend = "engine"
        timeout_seconds = 11
        memory_mb = 100
        [limits]
        pids = 64
        [environments.shell]
        preset = "shell"
        timeout_seconds = 5
        limits = { files = 99 }
        [environments.greeting]
        flake = "./greeter#greeter"
        interpreter = "bash -s"
        memory_mb = 50
        [project]
        path = "greeter"
        mount_point = "/here"
        use_flake = true
        inherit_env.vars = ["TZ"]
        [session]
        idle_timeout_seconds = 60
        """
    )
    names = ["shell", "greeting", "project"]
    options = {"inputs": CONSUMER_INPUTS}
    artifacts = build(*(f"{reference}#{name}" for name in names), **options)
    limits = {
        name: json.loads(engine(artifacts, "plan", "--json", "--env", name))["limits"]
        for name in names
    }
    told = {name: (it["time_ms"], it["memory"] >> 20, it["pids"], it["files"]) for name, it in limits.items()}
    assert told == {
        "shell": (5000, 100, 64, 99),
        "greeting": (11000, 50, 64, 65536),
        "project": (11000, 100, 64, 65536),
    }
    for name in ["greeting", "project"]:
        assert engine(artifacts, "exec", "--env", name, "--", "greeter") == "hello\n"
    (metadata,) = build(f"{reference}#told", **options)
    metadata = json.loads(on_host(metadata).read_text())
    assert metadata["environments"]["shell"] == {"artifact": str(artifacts[0])}
    assert metadata["session"] == {"idle_timeout_seconds": 60}
    assert metadata["project"] == {
        "path": "greeter",
        "mount_point": "/here",
        "use_flake": True,
        "inherit_env": {"vars": ["TZ"]},
    }


def test_from_toml_refuses_what_it_would_drop():
    for toml, reason in {
        "[evironments]": "my.toml: it has no evironments",
        "[environments.x]": "my.toml: [environments.x] has neither `preset` nor `flake`",
        "[environments.x]\npreset='ruby'": 'the preset of x "ruby" is none; there are node, python, shell',
        "[environments.x]\npreset='shell'\nbackend='jail'": "[environments.x] has no backend",
        "[environments.x]\nflake='./greeter#greeter'\ninterpreter='ruby -e'": 'the interpreter of x "ruby" is none',
        "[environments.x]\nflake='./greeter#nobody'": "the flake of x, ./greeter, has no package nobody",
        "[defaults]\nbackend='microvm'": 'the backend "microvm" is none; there are auto, engine, jail',
        "[daemon]\ntransport='http'": 'the transport "http" is none; there are stdio',
        "[project]\npath='bare'\nuse_flake=true": "has no devShell",
    }.items():
        output = "project" if "project" in toml else "x" if ".x" in toml else "server"
        words = ["build", "--impure", "--no-link", f"{configured(toml)}#{output}"]
        failed = nix(*words, inputs=CONSUMER_INPUTS, check=False)
        assert failed.returncode == 1 and reason in failed.stderr, failed.stderr


async def test_environments_of_nix_sandbox_envs_are_built_and_join_the_bundled_ones():
    """Its inputs are paths: what the server builds has no overrides."""
    directory = flake(
        """{
          inputs.nixpkgs.url = "%s";
          inputs.nix-sandbox-mcp = {
            url = "%s";
            inputs.nixpkgs.follows = "nixpkgs";
            inputs.jail-nix.url = "%s";
          };
          outputs = { nixpkgs, nix-sandbox-mcp, ... }: {
            packages.x86_64-linux.mine = nix-sandbox-mcp.lib.mkSandbox {
              pkgs = nixpkgs.legacyPackages.x86_64-linux;
              name = "mine";
              interpreter_type = "bash";
              packages = [ ];
              variables.GREETING = "built at the start";
            };
          };
        }"""
        % (INPUTS["nixpkgs"], FLAKE, INPUTS["jail-nix"])
    )
    reference = {"NIX_SANDBOX_ENVS": f"path:{directory}#mine"}
    store_root = {"NIX_SANDBOX_STORE_ROOT": str(CHROOT)} if CHROOT else {}
    env = store.VARIABLES | reference | store_root
    server = StdioServerParameters(command=PROGRAM, args=["--stdio"], env=env)
    async with Client(server) as client:
        listed = (await client.list_tools()).tools[0].input_schema["properties"]["env"]["enum"]
        assert set(listed) == {*PRESETS, "mine"}, listed
        result = await client.call_tool("run", {"env": "mine", "code": "echo $GREETING"})
        assert result.content[0].text.startswith("built at the start\n[exit 0 · "), result


def test_a_jail_names_nothing_that_its_artifact_does_not_keep():
    for artifact in bundled().values():
        kept = requisites(artifact)
        for name in ["run", "session-run"]:
            jail = on_host(os.readlink(on_host(artifact) / "bin" / name)).read_text()
            named = set(re.findall(r"/nix/store/[a-z0-9]{32}-[A-Za-z0-9+._?=-]+", jail))
            assert named and named <= kept, named - kept
            assert str(STAGE) not in jail


def needs_nix_store():
    """Without it Nix changes its root to enter a chroot store, and there no user namespace is to be had."""
    if not Path("/nix/store").exists():
        raise Lacks("nix-store")


async def test_nix_run_of_a_checkout_serves_mcp_and_answers_in_three_environments():
    needs_nix_store()
    words = ["run", FLAKE, *store.overrides(INPUTS), "--", "--stdio"]
    server = StdioServerParameters(command="nix", args=words, env=store.VARIABLES)
    async with Client(server) as client:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == ["run"]
        assert listed[0].input_schema["properties"]["env"]["enum"] == list(PRESETS)
        for name, code in CODE.items():
            result = await client.call_tool("run", {"env": name, "code": code})
            assert result.content[0].text.startswith("42\n[exit 0 · "), result
        # What answers is what Nix built: no /usr is there.
        looked = await client.call_tool("run", {"env": "shell", "code": "ls /usr; ls /nix/store | wc -l"})
        count = len(metadata(bundled()["shell"])["closure"])
        assert looked.content[0].text.startswith(f"bin\n{count}\n"), looked


def test_the_jail_of_an_artifact_runs_code_and_holds_what_the_engine_holds():
    needs_nix_store()
    code = """
import os
print(os.getuid(), os.getcwd(), sorted(os.listdir('/')), __file__)
print({line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap')})
for path in ['/x', '/project/x', '/nix/store/x']:
    try: open(path, 'w')
    except OSError as error: print(error.strerror)
open('/workspace/x', 'w').write('y')
print(open('/project/word').read())
# Pid 1 is bubblewrap: nothing of the caller's.
print(repr(open('/proc/1/environ').read()))
"""
    project = Path(tempfile.mkdtemp(dir=HOME))
    (project / "word").write_text("read me")
    project.chmod(0o755)
    variables = store.VARIABLES | {"PROJECT_DIR": str(project)}
    answer = nix("shell", f"{FLAKE}#python", command=["run"], input=code, env=variables)
    assert answer == (
        "1000 /workspace ['agent', 'bin', 'code', 'dev', 'etc', 'nix', 'proc', 'project', 'tmp', 'usr', 'workspace'] /code/main.py\n"
        "{'0000000000000000'}\n"
        "Read-only file system\nRead-only file system\nRead-only file system\n"
        "read me\n"
        "''\n"
    ), answer
    for name, code in CODE.items():
        assert nix("shell", f"{FLAKE}#{name}", command=["run"], input=code) == "42\n"


def bubblewrap():
    if not shutil.which("bwrap"):
        raise Lacks("bubblewrap")


def maker(walls):
    """Who made a sandbox."""
    detail = next(wall["detail"] for wall in walls if wall["wall"] == "namespaces")
    return re.search("cgroup, by (.*); nested", detail)[1]


def jail_of(artifact, name):
    """What a result says of who runs code of this environment. The jails of a chroot store cannot be called."""
    if CHROOT:
        return "bubblewrap"
    return f"the environment's own jail, {os.path.realpath(artifact / 'bin' / name)}"


def test_the_jail_backend_runs_code_in_the_jail_of_its_artifact_and_says_so():
    bubblewrap()
    for name, code in CODE.items():
        words = ["run", "--json", "--env", name, "-"]
        said = json.loads(engine(bundled().values(), *words, backend="jail", input=code))
        assert said["stdout"]["text"] == "42\n", said
        by = maker(said["enforced"])
        assert by.startswith(jail_of(bundled()[name], "run")), by
    # It runs no commands.
    words = ["exec", "--json", "--env", "shell", "--", "true"]
    by = maker(json.loads(engine(bundled().values(), *words, backend="jail"))["enforced"])
    assert by.startswith("bubblewrap "), by


async def test_the_jail_backend_runs_sessions_in_the_jail_of_their_artifact_and_says_so():
    bubblewrap()
    directory = Path(tempfile.mkdtemp(dir=HOME))
    for artifact in bundled().values():
        (directory / artifact.name).symlink_to(artifact)
    env = store.VARIABLES | {"NIX_SANDBOX_DIR": str(directory), "NIX_SANDBOX_BACKEND": "jail"}
    env |= {"NIX_SANDBOX_STORE_ROOT": str(CHROOT)} if CHROOT else {}
    calls = {"shell": ["x=6", "echo $((x * 7))"], "python": ["x = 6", "x * 7"], "node": ["x = 6", "x * 7"]}
    async with Client(StdioServerParameters(command=PROGRAM, args=["--stdio"], env=env)) as client:
        for name, (first, second) in calls.items():
            await client.call_tool("run", {"env": name, "session": name, "code": first})
            result = await client.call_tool("run", {"env": name, "session": name, "code": second})
            assert result.content[0].text.startswith("42\n[exit 0 · "), result
            by = maker(result.meta["nix-sandbox-mcp/outcome"]["enforced"])
            assert by.startswith(jail_of(bundled()[name], "session-run")), by


def test_in_place_of_the_engine_no_program_of_an_artifact_is_started_outside():
    bubblewrap()
    words = ["run", "--json", "--env", "shell", "-"]
    options = {"input": "echo 42", "preexec_fn": without_new_mount_calls}
    said = json.loads(engine(bundled().values(), *words, backend="auto", **options))
    assert said["stdout"]["text"] == "42\n", said
    by = maker(said["enforced"])
    assert by.startswith("bubblewrap "), by


def test_the_agent_of_an_artifact_s_jail_answers():
    needs_nix_store()
    code = "print(6 * 7)\n"
    nonce = "0" * 32
    script = f"exec 3< <(printf 'run 1 {nonce} {len(code)}\\n{code}') 4>&2; exec session-run"
    done = nix("shell", f"{FLAKE}#python", command=["bash", "-c", script], check=False)
    frames = [line for line in done.stderr.splitlines() if re.match("ready|done|end", line)]
    assert done.stdout == "42\n" and frames == ["ready 1", f"done 1 {nonce} 0"], done


def test_the_overlay_gives_the_server_and_mk_sandbox():
    directory = flake(
        """{
          outputs = { nixpkgs, nix-sandbox-mcp, ... }:
            let
              before = nixpkgs.legacyPackages.x86_64-linux;
              pkgs = before // nix-sandbox-mcp.overlays.default pkgs before;
            in
            {
              packages.x86_64-linux.server = pkgs.nix-sandbox-mcp;
              packages.x86_64-linux.mine = pkgs.mkSandbox { name = "mine"; interpreter_type = "bash"; packages = [ ]; };
            };
          inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";
          inputs.nix-sandbox-mcp.url = "github:secbear/nix-sandbox-mcp";
        }"""
    )
    server, mine = build(f"path:{directory}#server", f"path:{directory}#mine", inputs=CONSUMER_INPUTS)
    assert metadata(mine)["name"] == "mine"
    assert [path.name for path in (on_host(server) / "bin").iterdir()] == ["nix-sandbox-mcp"]


def test_the_template_is_a_flake_whose_environment_runs():
    directory = Path(tempfile.mkdtemp(dir=HOME))
    # It needs none of the inputs, so nothing is fetched.
    said("nix", "flake", "init", "-t", FLAKE, cwd=directory)
    (artifact,) = build(f"path:{directory}#tools", inputs=CONSUMER_INPUTS)
    script = "echo '[7]' | jq '.[0]'; echo word | rg -o or"
    answer = engine([artifact], "exec", "--env", "tools", "--", "sh", "-c", script)
    assert answer == "7\nor\n", answer


def test_the_nixos_module_sets_what_a_machine_needs():
    """With a stand-in for the module system: what it would be given is looked at."""
    module = """module:
      let
        lib = {
          mkIf = condition: value: if condition then value else { };
          mkEnableOption = text: text;
          mkOption = option: option;
          literalExpression = text: text;
          types.package = "package";
        };
        machine = on: apparmor: module {
          inherit lib;
          pkgs.stdenv.hostPlatform.system = "x86_64-linux";
          config.programs.nix-sandbox-mcp = { enable = on; package = "server"; };
          config.security.apparmor.enable = apparmor;
        };
      in [ (machine true true).config (machine true false).config (machine false true).config
           "${(machine true true).options.programs.nix-sandbox-mcp.package.default}" ]"""
    said = nix("eval", "--json", f"{FLAKE}#nixosModules.default", "--apply", module)
    on, without, off, package = json.loads(said)
    assert off == {}
    assert on["environment"]["systemPackages"] == ["server"]
    assert on["security"]["allowUserNamespaces"] and on["security"]["unprivilegedUsernsClone"]
    profile = (STAGE / "flake/deploy/apparmor/nix-sandbox-mcp").read_text()
    assert on["security"]["apparmor"]["policies"]["nix-sandbox-mcp"]["profile"] == profile
    assert without["security"]["apparmor"]["policies"]["nix-sandbox-mcp"]["profile"] == {}
    assert on["systemd"]["services"]["user@"]["serviceConfig"]["Delegate"] == "cpu memory pids"
    assert re.fullmatch(r"/nix/store/.{32}-nix-sandbox-mcp", package), package


def readme_example():
    """The flake that README shows."""
    readme = (STAGE / "flake/README.md").read_text()
    block = re.search(r"```nix\n(# my-envs/flake.nix\n.*?)```", readme, re.S)
    return flake(block[1])


def test_readme_s_data_science_environment_builds_and_runs():
    (artifact,) = build(f"path:{readme_example()}#data-science", inputs=CONSUMER_INPUTS)
    code = """
import io, numpy, pandas, requests
print(pandas.read_csv(io.StringIO("a,b\\n1,2\\n3,4")).describe().loc["mean"].tolist(), numpy.dot([1, 2], [3, 4]))
"""
    answer = engine([artifact], "run", "--env", "data-science", "-", input=code)
    assert answer == "[2.0, 3.0] 11\n", answer


def test_readme_s_nix_tools_environment_builds_and_runs():
    """Debian 12 has no yq-go: that one program says so."""
    (artifact,) = build(f"path:{readme_example()}#nix-tools", inputs=CONSUMER_INPUTS)
    script = "mkdir src; echo TODO > src/main.rs; rg TODO src --type rust -c; fd main; echo '[4]' | jq '.[0]'; yq 2>&1"
    answer = engine([artifact], "run", "--env", "nix-tools", "-", input=script, check=False).stdout
    assert answer == "src/main.rs:1\nsrc/main.rs\n4\nyq: the offline package set has none\n", answer


if __name__ == "__main__":
    store.seed()
    harness.main(sys.modules[__name__])
