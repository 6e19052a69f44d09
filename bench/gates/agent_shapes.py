"""Requests of coding agents, made from numbers: tools with large schemas, long instructions, tool results,
images, interruptions, background requests.

The sizes are those of agents with a context of 200,000 tokens, scaled to the model's context. The head
(instructions and tools) takes HEAD of it, the turns share the rest. No text comes from any product."""

import dataclasses
import random

import drawing

HEAD = 0.4  # share of the context
RESULT_MAX = 0.02  # share of the head: the longest tool result
REPLY_MAX = 48  # tokens
CALL = 75  # tokens of a call and of what surrounds a result
SPARE = 0.06  # share of the context that no turn fills

VERBS = "read write list find move copy run open close search fetch update create delete show compare".split()
NOUNS = "file folder branch task note page process test table query image symbol service log tag plan".split()
WORDS = (
    "the a of to in with for from each all only before after when line text name path value list file folder "
    "result returns takes gives output input error limit default optional number string match pattern change "
    "keeps never always must may between until first last next request reply user session project module"
).split()
KINDS = ("string", "string", "string", "integer", "boolean", "enum", "array", "object")


def words(rng, count):
    return " ".join(rng.choices(WORDS, k=count))


def sentences(rng, count):
    """`count` words with full stops and some line ends between them."""
    parts = []
    while count > 0:
        length = min(count, rng.randint(6, 18))
        parts.append(words(rng, length).capitalize() + rng.choice((". ", ". ", ".\n", ":\n- ")))
        count -= length
    return "".join(parts).rstrip()


def prop(rng, kind, described, depth=0):
    """One property of a tool's schema."""
    made = {"description": words(rng, described)}
    if kind == "enum":
        return {**made, "type": "string", "enum": rng.sample(NOUNS, 4)}
    if kind == "array":
        item = prop(rng, rng.choice(("string", "object") if depth == 0 else ("string",)), described, depth + 1)
        return {**made, "type": "array", "items": item, "minItems": 1}
    if kind == "object":
        inner = {f"{rng.choice(NOUNS)}_{i}": prop(rng, "string", described, 2) for i in range(2 if depth < 2 else 1)}
        return {**made, "type": "object", "properties": inner, "required": [next(iter(inner))], "additionalProperties": False}
    return {**made, "type": kind, **({"minimum": 0} if kind == "integer" else {})}


def tool(rng, number, size):
    """(name, description, schema) of about `size` words."""
    name = f"{VERBS[number % len(VERBS)]}_{NOUNS[number * 7 % len(NOUNS)]}_{number}"
    count = rng.randint(2, 5)
    each = max(2, size // (4 * count))
    properties = {f"{rng.choice(NOUNS)}_{i}": prop(rng, rng.choice(KINDS), each) for i in range(count)}
    first = next(iter(properties))
    properties[first] = {"type": "string", "description": words(rng, each)}
    schema = {"type": "object", "properties": properties, "required": [first], "additionalProperties": False}
    return name, sentences(rng, max(4, size // 2)), {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def arguments(rng, schema):
    """Arguments of a call: texts with quotes, line ends and letters beyond ASCII, numbers, lists."""

    def value(node):
        kind = node["type"]
        if kind == "object":
            return {name: value(inner) for name, inner in node["properties"].items()}
        if kind == "array":
            return [value(node["items"]) for _ in range(rng.randint(1, 2))]
        if kind in ("integer", "boolean"):
            return rng.randint(0, 99) if kind == "integer" else rng.random() < 0.5
        if "enum" in node:
            return rng.choice(node["enum"])
        return rng.choice(("src/{0}.c", 'grep -n "{0}" *.h', "{0}\n\tfirst <b>\n", "né {0} “x”", "  {0}")).format(rng.choice(NOUNS))

    names = [name for name in schema["properties"] if name in schema["required"] or rng.random() < 0.15]
    return {name: value(schema["properties"][name]) for name in names}


def result(rng, count):
    """Makes the output of a command, about `count` words: listings, matches, differences."""
    made, form = [], rng.randrange(3)
    while count > 0:
        length = min(count, rng.randint(3, 9))
        place = f"src/{rng.choice(NOUNS)}/{rng.choice(VERBS)}.c"
        text = words(rng, length)
        made.append((f"{place}:{rng.randint(1, 900)}:    {text};", f"{rng.choice('+- ')}  {text}", f"{rng.randint(1, 90):6}\t{text}")[form])
        count -= length + 3
    return "\n".join(made) + rng.choice(("", "\n"))


@dataclasses.dataclass
class Turn:
    """One request: what precedes it in the conversation, and how the client behaves."""

    number: int
    # A new message of the user, or the result of the last call. An image is in either.
    text: str = ""
    result: str = ""
    image: str = ""
    # The client's own text after the result, in the same message.
    reminder: str = ""
    # The client leaves in mid-stream and sends the same again.
    interrupted: bool = False
    # The prompt is counted before.
    counted: bool = False
    # The background model gets a request afterwards.
    titled: bool = False


@dataclasses.dataclass
class Shape:
    """One session of an agent, all of it drawn from its seed."""

    seed: str
    tools: list
    system: str
    turns: list
    rng: random.Random

    def call(self):
        """(name, arguments) of a call to one of its tools."""
        name, _, schema = self.rng.choice(self.tools)
        return name, arguments(self.rng, schema)


def image_of(rng):
    return drawing.data_url("image/png", drawing.png(64, 64, rng.random()))


def head_of(size, count=40):
    """(tools, instructions): the agent's own, the same in all its sessions; `size` 1 is about 90,000 bytes
    with 40 tools."""
    own = random.Random("head")
    tools = [tool(own, n, max(4, int(200 * size))) for n in range(count)]
    return tools, sentences(own, max(20, int(2500 * size)))


def shape(seed, head, turns, tokens, longest, words_a_token, task=25):
    """A session of `turns` turns that takes about `tokens` beyond the head, with results of
    up to `longest` tokens. A user gives a new task every `task` turns; results of
    tools make the other turns."""
    rng, script = random.Random(seed), []
    mean = min(max(8.0, tokens / turns - REPLY_MAX - CALL), longest / 2)
    for n in range(turns):
        t = Turn(n, titled=n % 4 == 1, counted=n % 5 == 1, interrupted=n % 15 == 2)
        if n % task == 0:
            t.text = sentences(rng, rng.randint(8, 30))
        else:
            t.result = result(rng, int(min(longest, max(4.0, rng.expovariate(1 / mean))) * words_a_token))
        t.image = image_of(rng) if n % 30 in (3, 25) else ""
        t.reminder = words(rng, 8) if n % 40 == 33 else ""
        script.append(t)
    return Shape(str(seed), *head, script, rng)
