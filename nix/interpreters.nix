# The languages: the program, how it runs a file of code, and how it starts its agent. The engine
# knows the same (src/environment/mod.rs, agent.rs).
{
  bash = {
    program = "bash";
    code = "/code/main.sh";
    run = "bash";
    session = "bash --norc --noprofile /agent/bash/agent.sh";
  };
  python = {
    program = "python3";
    code = "/code/main.py";
    run = "python3 -u";
    session = "python3 -I -u /agent/python/agent.py";
  };
  node = {
    program = "node";
    code = "/code/main.js";
    run = "node";
    session = "node --no-force-async-hooks-checks /agent/node/agent.js";
  };
}
