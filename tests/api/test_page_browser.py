"""The page in Chromium: its figures, three widths, contrast, the keyboard, hostile text, a lost server.

It needs Debian's chromium and chromium-driver; without them it is skipped."""

import contextlib
import json
import random
import re
import sys

import pytest

from conftest import ADMIN_KEY, TOP, Server, serving, until
from hub_stand_in import Hub, Model, folder

sys.path.insert(0, str(TOP / "bench/gates"))

import webdriver

if not webdriver.is_there():
    pytest.skip("chromium is not installed: tools/install-packages browser brings it", allow_module_level=True)

HOSTILE = ["<img src=x onerror=alert(1)>", "<script>alert(1)</script>", "[x](javascript:alert(1))", "[x](data:text/html,x)",
           "![x](https://elsewhere.example/x.png)", "<svg onload=alert(1)>", "`</code><script>alert(1)</script>`",
           "| <b>a</b> |\n|---|\n| <iframe src=x> |", "**<a href=javascript:x>**", "```\n</pre><script>alert(1)</script>\n```",
           "[a](https://x.example/\"onmouseover=alert(1))", "&lt;script&gt;", "\x00\x1b]0;x\x07\u202e<b>"]

# Each visible text with its colour, and the colour that it lies on.
COLOURS = """
const rgb = (c) => { const m = c.match(/[\\d.]+/g).map(Number); return m.length === 3 ? [...m, 1] : m; };
const found = [];
for (const node of document.querySelectorAll('body *')) {
  const own = [...node.childNodes].filter((n) => n.nodeType === 3).map((n) => n.textContent.trim()).join(' ');
  const box = node.getBoundingClientRect();
  if (!own || !box.width || !box.height || node.closest('.hidden, .skip, option, :disabled')) continue;
  let on = node, under = [0, 0, 0, 0];
  while (on && under[3] === 0) { under = rgb(getComputedStyle(on).backgroundColor); on = on.parentElement; }
  const style = getComputedStyle(node);
  found.push([own.slice(0, 40), rgb(node instanceof SVGElement ? style.fill : style.color).slice(0, 3), under.slice(0, 3)]);
}
return found;"""


def luminance(colour):
    parts = [c / 255 for c in colour]
    red, green, blue = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a, b):
    low, high = sorted([luminance(a), luminance(b)])
    return (high + 0.05) / (low + 0.05)


class Page(webdriver.Browser):
    def __init__(self, server, fragment=f"#key={ADMIN_KEY}"):
        super().__init__(logs=True)
        self.server = server
        self.size(1420, 1000)
        self.open(f"{server.url}/{fragment}")

    def type(self, selector, text):
        """Types a line."""
        self.keys(self.find(selector), text + "\n")

    def drawn(self):
        """Waits until what was changed is laid out."""
        self.js_done("const done = arguments[0]; setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def connection(self):
        return self.js("return document.body.dataset.connection")

    def errors(self):
        return [e for e in self.log("browser") if e["level"] == "SEVERE"]

    def addresses(self):
        """Where its requests went."""
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="module")
def served():
    with serving("--admin-key", ADMIN_KEY, key=ADMIN_KEY) as s:
        yield s


@pytest.fixture(scope="module")
def page(served):
    p = Page(served)
    until(lambda: p.js("return document.querySelector('[data-figure=\"memory.used_bytes\"]')?.dataset.value"))
    yield p
    p.close()


def test_the_figures_are_those_of_memory(page):
    def same():
        """the page and /api/memory agree"""
        memory = page.server.memory()
        shown = {name: int(page.js("return document.querySelector(`[data-figure=\"memory.${arguments[0]}\"]`).dataset.value", name))
                 for name in ("used_bytes", "limit_bytes", "peak_bytes")}
        return shown == {"used_bytes": memory["used_bytes"], "limit_bytes": memory["limit_bytes"],
                         "peak_bytes": memory["accounts"][0]["peak_bytes"]}

    until(same)
    assert ADMIN_KEY not in page.address()


def test_a_request_is_shown_and_stopped(page):
    with page.server.begin() as running:
        running.event()
        [request] = page.server.requests()
        row = f'[data-request="{request["id"]}"]'
        until(lambda: page.js("return document.querySelector(arguments[0]) !== null", row))
        page.js("document.querySelector(arguments[0]).querySelector('button').click()", row)
        until(lambda: page.server.requests() == [])
        until(lambda: page.js("return document.querySelector(arguments[0]) === null", row))


@pytest.mark.parametrize("width", [1420, 800, 390])
@pytest.mark.parametrize("at", ["#", "#chat"])
def test_nothing_scrolls_sideways(page, width, at):
    page.js("location.hash = arguments[0]", at)
    page.size(width, 1000)
    page.drawn()
    assert page.js("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("at", ["#", "#chat"])
def test_text_has_a_contrast_of_seven(page, scheme, at):
    page.size(1420, 1000)
    page.scheme(scheme)
    page.js("location.hash = arguments[0]", at)
    page.drawn()
    found = page.js(COLOURS)
    assert len(found) > 8
    weak = [(text, round(contrast(a, b), 2)) for text, a, b in found if contrast(a, b) < 7]
    assert weak == []


def test_everything_is_reached_by_keyboard(page):
    page.js("location.hash = '#'; document.activeElement.blur()")
    wanted = set(page.js("return [...document.querySelectorAll('a[href], button, input, select, textarea')]"
                         ".filter((n) => n.getClientRects().length && !n.disabled).map((n) => n.textContent || n.id)"))
    seen = set()
    for _ in range(80):
        page.keys(page.focused(), "\ue004")
        seen.add(page.js("return document.activeElement.textContent || document.activeElement.id"))
    assert wanted <= seen


def test_hostile_text_becomes_no_markup(page):
    page.js("location.hash = '#chat'")
    for text in HOSTILE:
        counts = page.js_done("""
            const done = arguments[1];
            import('/web/markdown.js').then(({ markdown }) => {
                const place = document.createElement('div');
                place.append(...markdown(arguments[0]));
                const links = [...place.querySelectorAll('a')].map((a) => a.protocol);
                const names = [...place.querySelectorAll('*')].flatMap((n) => n.getAttributeNames());
                done([place.querySelectorAll('script, img, iframe, svg, b, object, form').length, links, names]);
            });""", text)
        assert counts[0] == 0 and set(counts[1]) <= {"http:", "https:"}, text
        assert not [name for name in counts[2] if name.startswith("on")], text


def test_marks_without_an_end_stay_text(page):
    found = page.js_done("""
        const done = arguments[0];
        import('/web/markdown.js').then(({ markdown }) => {
            const place = document.createElement('div'), texts = ['**a ', '__a ', '~~a '].map((s) => s.repeat(20000).trim());
            const whole = texts.map((t) => { place.replaceChildren(...markdown(t)); return place.textContent === t; });
            place.replaceChildren(...markdown(`${'**a '.repeat(3000)}b** c **d** __e__ ~~f~~`));
            done([whole, [...place.querySelectorAll('strong, s')].slice(1).map((n) => n.textContent)]);
        });""")
    assert found == [[True] * 3, ["d", "e", "f"]]


def test_a_chat_answers(page):
    page.js("location.hash = '#chat'")
    page.type("#chat-input", "What does ls do?")
    until(lambda: page.js("return document.querySelector('.message.assistant[data-over=true] .facts')?.textContent.includes('tokens')"))
    assert "list directory contents" in page.js("return document.querySelector('.message.assistant .body').textContent")


def test_ended_and_refused_requests_are_a_table_that_opens(page):
    page.js("location.hash = '#'")
    page.server.complete("What does ls do?", max_tokens=4, ignore_eos=True)
    reply = page.server.complete("a", temperature="<b>hot</b>")
    # One script finds the row and opens it: others may come between two scripts.
    opens = lambda words: page.js("const row = [...document.querySelectorAll('#ended tr[data-ended]')].find((r) => r.textContent.includes(arguments[0])); row?.querySelector('button').click(); return !!row", words)
    until(lambda: opens("400 invalid_value"))
    opened = page.js("return document.querySelector('#ended .detail').textContent")
    assert reply.json()["error"]["message"] in opened and reply.headers["x-request-id"] in opened
    until(lambda: opens("cut at max tokens"))
    until(lambda: page.js("return [...document.querySelectorAll('#ended .detail')].some((r) => r.textContent.includes('Prompt read') && r.textContent.includes('found'))"))
    # In no width do texts overlap, break within a word of a row, or leave the page.
    for width in (400, 760, 800, 1000, 1100, 1420):
        page.size(width, 1000)
        page.drawn()
        wide = page.js("return [document.documentElement.scrollWidth, ...[...document.querySelectorAll('#ended tr[data-ended] td')].filter((c) => getComputedStyle(c).display === 'table-cell' && c.clientHeight > 40).map((c) => c.textContent)]")
        assert wide == [width], (width, wide)
    page.size(1420, 1000)


def test_refusals_without_a_row_are_counted_in_one(page):
    page.js("location.hash = '#'")
    page.js("[...document.querySelectorAll('#ended .segments button')].find((b) => b.textContent === 'refused').click()")

    def shown():
        """Texts of the refused requests' rows."""
        page.js("[...document.querySelectorAll('#ended > button')].find((b) => b.textContent.startsWith('Show all') && !b.hidden)?.click()")
        return page.js("return [...document.querySelectorAll('#ended tr[data-refused=true]')].map((r) => r.querySelector('.end').textContent)")

    def total():
        more = [re.fullmatch(r"and (\d+) more refused", text) for text in shown()]
        return sum(int(m[1]) if m else 1 for m in more)

    expected = total()
    for more in (30, 3):
        for _ in range(more):
            page.server.complete("a", temperature="hot")
        expected += more
        until(lambda: total() == expected)
        assert [text for text in shown() if text.endswith("more refused")]
    opened = "const row = [...document.querySelectorAll('#ended tr[data-ended]')].find((r) => r.textContent.includes('more refused')); row.querySelector('button').click(); return document.querySelector('#ended .detail').textContent"
    assert "refused within a minute. The last of them:" in page.js(opened)
    page.js("[...document.querySelectorAll('#ended .segments button')].find((b) => b.textContent === 'all').click()")


def test_the_lines_to_paste_fit_the_server(page):
    page.js("location.hash = '#'")
    lines = {}
    for name in ("Claude Code", "Codex"):
        page.js("[...document.querySelectorAll('#connect .segments button')].find((b) => b.textContent === arguments[0]).click()", name)
        lines[name] = page.js("return document.querySelector('#connect code').textContent")
    window = page.server.http.get("/v1/models/canary").json()["max_model_len"]
    assert "ANTHROPIC_AUTH_TOKEN=none " in lines["Claude Code"] and f"CLAUDE_CODE_MAX_CONTEXT_TOKENS={window} " in lines["Claude Code"]
    assert f"model_context_window = {window}\n" in lines["Codex"]


def messages(page):
    return page.js("return [...document.querySelectorAll('.message .body')].map((m) => m.textContent)")


def titles(page):
    return page.js("return [...document.querySelectorAll('.conversations .title')].map((t) => t.textContent)")


def press(page, scope, words):
    """Presses the button with these words."""
    page.js("[...document.querySelectorAll(`${arguments[0]} button`)].find((b) => b.textContent === arguments[1] && b.getClientRects().length).click()", scope, words)


def said(page, text):
    count = len(messages(page))
    page.type("#chat-input", text)
    until(lambda: len(messages(page)) == count + 2)
    until(lambda: page.js("return [...document.querySelectorAll('.message.assistant')].at(-1).dataset.over") == "true")
    until(lambda: page.js("return document.querySelector('.conversations [data-current=true]') !== null"))


def test_conversations_are_kept_in_the_browser(served):
    with contextlib.closing(Page(served, f"#key={ADMIN_KEY}")) as page:
        until(lambda: page.connection() == "ok")
        page.js("location.hash = '#chat'")
        until(lambda: page.js("return document.getElementById('chat-input').getClientRects().length"))
        said(page, "What does ls do?")
        said(page, "What does mkdir do?")
        before = messages(page)
        press(page, ".chats", "New")
        assert messages(page) == []
        said(page, "Who are you?")
        until(lambda: titles(page) == ["Who are you?", "What does ls do?"])
        page.refresh()
        until(lambda: messages(page)[:1] == ["Who are you?"])
        # Search finds words of the answers; a conversation opens; it has another name.
        page.js("const s = document.getElementById('chat-search'); s.value = 'MKDIR'; s.dispatchEvent(new Event('input'))")
        until(lambda: titles(page) == ["What does ls do?"])
        press(page, ".conversations", "What does ls do?")
        until(lambda: messages(page) == before)
        press(page, ".conversations", "Rename")
        page.js("document.querySelector('dialog input').value = '<b>files</b>'")
        press(page, "dialog", "Rename")
        page.js("const s = document.getElementById('chat-search'); s.value = ''; s.dispatchEvent(new Event('input'))")
        until(lambda: titles(page) == ["Who are you?", "<b>files</b>"])
        said(page, "What does cat do?")
        until(lambda: titles(page) == ["<b>files</b>", "Who are you?"])
        assert page.js("return document.querySelectorAll('.conversations b').length") == 0
        # Exports hold all messages.
        page.js("window.made = []; URL.createObjectURL = (blob) => { blob.text().then((t) => made.push(t)); return 'blob:' }")
        press(page, ".chats", "JSON")
        until(lambda: page.js("return made.length") == 1)
        made = json.loads(page.js("return made[0]"))
        assert made["title"] == "<b>files</b>" and [m["role"] for m in made["messages"]] == ["user", "assistant"] * 3
        press(page, ".chats", "Markdown")
        until(lambda: page.js("return made.length") == 2)
        assert page.js("return made[1]").startswith("# <b>files</b>\n\n## You\n\nWhat does ls do?\n")
        press(page, ".conversations", "Delete")
        press(page, "dialog", "Delete")
        until(lambda: titles(page) == ["Who are you?"] and messages(page) == [])
        press(page, ".chats", "Delete all")
        press(page, "dialog", "Delete all")
        until(lambda: titles(page) == [])
        page.refresh()
        until(lambda: page.connection() == "ok")
        assert titles(page) == messages(page) == []
        assert {a for a in page.addresses() if not a.startswith((served.url + "/", "data:", "blob:"))} == set()


def test_old_conversations_make_room(page):
    gone, left = page.js_done("""
        const done = arguments[0];
        import('/web/keep.js').then(async ({ put, list, dropAll }) => {
            await dropAll();
            const of = (i, url) => ({ id: `c${i}`, title: `t${i}`, model: 'm', system: '', messages: [{ id: 'a', role: 'user', text: 'x', images: url ? [{ name: 'p', url }] : [] }] });
            let gone = [];
            for (let i = 0; i < 203; i++) gone = [...gone, ...await put(of(i))];
            const large = 'data:,' + 'x'.repeat(15 << 20);
            for (let i = 0; i < 6; i++) await put(of(1000 + i, large));
            await put(of(2000, large + large));
            const left = (await list()).map((h) => [h.id, h.bytes]);
            await dropAll();
            done([gone, left]);
        });""")
    assert gone == ["t0", "t1", "t2"]
    assert sum(size for _, size in left) <= 64 << 20 and left[0][0] == "c2000" and left[0][1] < 1000
    assert [name for name, size in left if size > 1 << 20] == ["c1005", "c1004", "c1003", "c1002"]


def test_a_text_file_is_part_of_the_message(served):
    with contextlib.closing(Page(served)) as page:
        until(lambda: page.connection() == "ok")
        page.js("location.hash = '#chat'")
        until(lambda: page.js("return document.getElementById('chat-input').getClientRects().length"))
        page.js("""document.getElementById('chat-max_tokens').value = 8; window.sent = []; const before = window.fetch;
            window.fetch = (path, options) => { if (options?.body) sent.push(options.body); return before(path, options); };
            const pick = (name, type, parts) => { const t = new DataTransfer(); t.items.add(new File(parts, name, { type }));
                const input = document.querySelector('.composer input[type=file]'); input.files = t.files; input.dispatchEvent(new Event('change')); };
            pick('a.c', 'text/x-c', ['int a; // ```']); pick('b.bin', '', [new Uint8Array([0, 1, 2])]);""")
        until(lambda: "neither a text" in page.js("return document.getElementById('toast').textContent"))
        until(lambda: page.js("return document.querySelectorAll('.composer .chip').length") == 1)
        said(page, "What is this?")
        [body] = [json.loads(b) for b in page.js("return sent") if "messages" in b]
        assert body["messages"][0]["content"] == "a.c:\n````\nint a; // ```\n````\n\nWhat is this?"


def test_a_link_does_not_replace_a_key(served):
    key = lambda page: page.js("return sessionStorage.getItem('plateau-key')")
    with contextlib.closing(Page(served)) as page:
        until(lambda: page.connection() == "ok")
        for fragment in ("#key=sk-other", "#key=%zz", "#key=a%0d%0ab", "#key=%E2%82%AC", "#key=", "#chat=%zz", "#chat=%"):
            page.js("location.hash = arguments[0]", fragment)
            until(lambda: "key=" not in page.address())
            assert key(page) == ADMIN_KEY, fragment
        until(lambda: page.js("return document.querySelectorAll('dialog').length") == 1)
        press(page, "dialog", "Cancel")
        assert key(page) == ADMIN_KEY
        page.js("location.hash = '#key=sk-other'")
        until(lambda: page.js("return document.querySelectorAll('dialog').length") == 1)
        press(page, "dialog", "Use it")
        until(lambda: key(page) == "sk-other")
        # It is not one of this server: the page says so at its top, and how to get in.
        until(lambda: "not one of this server" in page.js("return document.querySelector('#verdict h1').textContent"))
        assert "plateau open" in page.js("return document.getElementById('verdict').textContent")
        page.open(served.url + "/#key=%zz")
        page.refresh()
        until(lambda: page.connection() == "ok")
        assert page.errors() == []


def test_nothing_went_elsewhere_and_the_console_is_empty(page):
    assert page.errors() == []
    assert {a for a in page.addresses() if not a.startswith((page.server.url + "/", "data:", "blob:"))} == set()


def test_a_model_is_pulled_and_a_pull_is_stopped(tmp_path, monkeypatch):
    files = {n: b for n, b in folder(TOP / "tests/golden/data/qwen3").items() if n != "golden.json"}
    files["tokenizer.json"] = random.Random(1).randbytes(8 << 20)
    with Hub({"acme/small": Model(files)}) as hub:
        hub.faults, hub.pause = (lambda name, part: "slow" if name == "tokenizer.json" else None), 20
        for name, value in {"HOME": tmp_path, "HF_ENDPOINT": hub.url, "TMPDIR": tmp_path}.items():
            monkeypatch.setenv(name, str(value))
        with serving("--allow-pull", "--admin-key", ADMIN_KEY, key=ADMIN_KEY) as s, contextlib.closing(Page(s)) as page:
            until(lambda: page.js("return document.getElementById('pull-name')?.getClientRects().length"))
            page.type("#pull-name", "<b>x</b>")
            until(lambda: "ORG/NAME" in page.js("return document.getElementById('toast').textContent"))
            assert page.js("return document.querySelectorAll('#toast b').length") == 0
            page.js("document.getElementById('pull-name').value = ''")
            page.type("#pull-name", "acme/small")
            until(lambda: int(page.js("return document.querySelector('[data-figure=\"pull.bytes\"]').dataset.value || 0")) > 0)
            page.js("document.querySelector('.pulling button').click()")
            page.js("document.querySelector('dialog button[value=yes]').click()")
            until(lambda: "was stopped at" in page.js("return document.querySelector('#pull [role=status]').textContent"))
            hub.faults = lambda *_: None
            page.type("#pull-name", "acme/small")
            until(lambda: "It is served as acme/small;" in page.js("return document.querySelector('#pull [role=status]').textContent"))
            until(lambda: "small" in page.js("return document.getElementById('models').textContent"))


def test_without_a_key_there_is_the_frame_and_a_lost_server_is_said():
    s = Server("--api-key", "sk-alice-0123", "--admin-key", ADMIN_KEY, key=ADMIN_KEY)
    page = Page(s, "")
    try:
        until(lambda: page.js("return document.getElementById('key') !== null"))
        assert page.js("return document.getElementById('overview').hidden && document.getElementById('chat').hidden")
        page.type("#key", "sk-alice-0123")
        until(lambda: page.connection() == "ok")
        assert page.js("return document.getElementById('memory').hidden")
        assert s.stop() == 0
        until(lambda: page.connection() == "lost", 20)
    finally:
        page.close()
        s.stop()
