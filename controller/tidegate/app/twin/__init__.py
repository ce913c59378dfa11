"""The engine twin: a process that answers like a vLLM server and takes the time one would take. For demos and tests."""
