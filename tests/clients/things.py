"""A server of tools over stdio: many small ones, so that clients search for them."""
import json
import sys

NAMES = [f"{what}_{of}" for what in ("count", "weigh", "paint") for of in ("apples", "boats", "clouds")]
TOOLS = [{"name": n, "description": n.replace("_", " ").capitalize() + ".", "inputSchema": {
    "type": "object", "properties": {"much": {"type": "integer"}}, "required": ["much"]}} for n in NAMES]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    m, p = asked["method"], asked.get("params", {})
    if m == "initialize":
        result = {"protocolVersion": p["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "things", "version": "1"}}
    elif m == "tools/list":
        result = {"tools": TOOLS}
    elif m == "tools/call":
        result = {"content": [{"type": "text", "text": f"{p['name']}: {p['arguments']['much']}"}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
