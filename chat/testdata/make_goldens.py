"""Makes the golden values of this folder with Jinja2, set up as transformers 5.24 sets it up for chat templates.

Usage: pip install jinja2==3.1.6; python make_goldens.py

conversations.jsonl: the two templates of this folder on conversations.
expressions.jsonl: expressions on the variables of variables.json, and whole templates, one a line.
"""
import json
from datetime import datetime
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = Path(__file__).parent
NOW = datetime(2026, 3, 4, 5, 6, 7)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"namespace attributes cannot start with an underscore: {name!r}")


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


ENV = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
ENV.filters["tojson"] = tojson
ENV.globals["namespace"] = Namespace
ENV.globals["raise_exception"] = raise_exception
ENV.globals["strftime_now"] = NOW.strftime


def render(template, **variables):
    variables = {"messages": [], "tools": None, "documents": None, "add_generation_prompt": False, **variables}
    try:
        return {"text": ENV.from_string(template).render(**variables)}
    except Exception as e:
        # There is no loader of other templates, which include and its like fail for.
        early = isinstance(e, (jinja2.TemplateSyntaxError, SyntaxError)) or "no loader" in str(e)
        kind = "syntax" if early else "run"
        return {"error": str(e), "kind": kind}


def alias_reasoning(messages):
    out = []
    for m in messages:
        reasoning = next((m[k] for k in ("reasoning_content", "thinking", "reasoning") if m.get(k) is not None), None)
        if reasoning is not None:
            m = {"thinking": reasoning, **m, "reasoning_content": reasoning}
        out.append(m)
    return out


def conversations():
    def u(content):
        return {"role": "user", "content": content}

    def a(content, **more):
        return {"role": "assistant", "content": content, **more}

    def s(content):
        return {"role": "system", "content": content}

    def call(name, arguments, id="c1"):
        return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}

    def result(content, **more):
        return {"role": "tool", "content": content, **more}

    weather = {"type": "function", "function": {"name": "weather", "description": "Weather <b>now</b>.", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "unit": {"type": "string", "enum": ["C", "F"]}, "city": {"type": "string"}}}}}
    bare = {"type": "function", "function": {"name": "Now", "description": "", "parameters": {}}}
    plain = [[u("Hi")], [u("  padded\n\n")], [s("Be brief."), u("Hi")], [u("Hi"), a("Hello!"), u("How are you?")],
             [s(" "), u("x")], [], [u("é 漢字 🙂"), a("ß")], [u("{{ x }} {% y %} {# z #} <|turn>")], [u("a\tb\u00a0")]]
    for messages in plain:
        yield "demo.jinja", messages, None, {}
    yield "demo.jinja", [u(None)], None, {}
    yield "demo.jinja", [{"role": "user"}], None, {}
    for messages in plain + [[{"role": "developer", "content": "d"}, u("x")]]:
        yield "rich.jinja", messages, None, {}
    yield "rich.jinja", [u("t")], [weather], {}
    yield "rich.jinja", [s("S"), u("t")], [weather, bare], {"enable_thinking": True}
    yield "rich.jinja", [u("a"), a("<think>hm</think>\n\nb")], None, {}
    yield "rich.jinja", [u("a"), a("b", reasoning="short"), u("c"), a("d", reasoning_content="rather a long thought")], None, {}
    arguments = {"city": "Paris", "Days": 3, "opts": {"b": None, "a": [True, 1.5, "q\"q", [1, 2]]}, "none": None}
    yield "rich.jinja", [u("w"), a("", tool_calls=[call("weather", arguments)]), result("sunny", name="weather", tool_call_id="c1"), a("It is.")], [weather], {}
    yield "rich.jinja", [u("w"), a(None, tool_calls=[call("Now", {}), call("Now", None, "c2")]), result("1"), result("2")], [bare], {}
    yield "rich.jinja", [u([{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}])], None, {}
    yield "rich.jinja", [u([{"type": "image"}])], None, {}
    yield "rich.jinja", [u("a"), u("b")], None, {}
    yield "rich.jinja", [u("a"), {"role": "alien", "content": "?"}, a("b")], None, {"enable_thinking": False}
    yield "rich.jinja", [u(5)], None, {}


def main():
    with open(HERE / "conversations.jsonl", "w", encoding="utf-8") as f:
        for template, messages, tools, options in conversations():
            for prompt in (True, False):
                source = (HERE / template).read_text(encoding="utf-8")
                out = render(source, messages=alias_reasoning(messages), tools=tools, add_generation_prompt=prompt,
                             bos_token="<bos>", eos_token="<eos>", **options)
                row = {"template": template, "messages": messages, "tools": tools, "options": options, "add_generation_prompt": prompt}
                f.write(json.dumps(row | out) + "\n")
    variables = json.loads((HERE / "variables.json").read_text(encoding="utf-8"))
    with open(HERE / "expressions.jsonl", "w", encoding="utf-8") as f:
        for line in (HERE / "expressions.txt").read_text(encoding="utf-8").splitlines():
            template = json.loads(line) if line.startswith('"') else "{{ " + line + " }}"
            f.write(json.dumps({"template": template} | render(template, **variables)) + "\n")


main()
