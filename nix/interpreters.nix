# The languages: the program, the arguments with which it runs a file of code, its agent and the
# arguments that start that. The engine knows the same (src/environment/mod.rs, agent.rs).
{
  bash = {
    program = "bash";
    code = "/code/main.sh";
    run = [ "/code/main.sh" ];
    agent = ../agent/bash;
    session = [
      "--norc"
      "--noprofile"
      "/agent/agent.sh"
    ];
  };
  python = {
    program = "python3";
    code = "/code/main.py";
    run = [
      "-u"
      "/code/main.py"
    ];
    agent = ../agent/python;
    session = [
      "-I"
      "-u"
      "/agent/agent.py"
    ];
  };
  node = {
    program = "node";
    code = "/code/main.js";
    run = [ "/code/main.js" ];
    agent = ../agent/node;
    session = [
      "--no-force-async-hooks-checks"
      "/agent/agent.js"
    ];
  };
}
