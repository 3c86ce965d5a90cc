"""The engines are material, not tests: imported by the registry alone, once."""

collect_ignore_glob = ["faulty/*", "right/*", "cheats/*", "[!t]*.py", "text_engine.py"]
