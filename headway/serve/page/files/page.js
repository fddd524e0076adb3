"use strict";
// Everything that a model or a person wrote is put on the page as text, never as HTML.
let key = "";  // in memory only
const $ = (id) => document.getElementById(id);

function send(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function problem(response) {
  try { return (await response.json()).error.message; } catch { return `the server answered ${response.status}`; }
}

// The same address shows the whole page to who sends the key.
function setUpKey() {
  $("unlock").addEventListener("submit", async (event) => {
    event.preventDefault();
    const typed = $("key").value.trim();
    const response = await fetch("/", { headers: { Authorization: `Bearer ${typed}` } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const main = page.getElementById("page");
    if (main === null || "locked" in main.dataset) {
      $("refused").textContent = "This key is not accepted.";
      $("key").select();
      return;
    }
    key = typed;
    document.title = page.title;
    $("page").replaceWith(document.adoptNode(main));
    setUpPage();
    $("text").focus();
  });
}

function setUpCopy() {
  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const text = button.parentElement.querySelector("pre").textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {  // browsers allow it on https and localhost only
        getSelection().selectAllChildren(button.parentElement.querySelector("pre"));
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
}

// Calls `each` with the parsed data of every server-sent event.
async function readEvents(response, each) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data !== "[DONE]") each(JSON.parse(data));
    }
  }
}

function setUpPage() {
  const facts = JSON.parse($("page").dataset.facts);
  let messages = [];
  let running = null;
  const form = () => facts.forms[Number($("task").value)];

  function show(text, bad = false) {
    $("result").hidden = false;
    $("result").classList.toggle("bad", bad);
    $("result").textContent = text;
  }

  function choose() {
    const { name, body, second } = form();
    messages = [];
    $("talk").replaceChildren();
    $("talk").hidden = $("again").hidden = name !== "chat";
    $("result").hidden = true;
    $("text-label").textContent = name === "chat" ? "Message" : name === "complete" ? "Beginning of a text" : "Text";
    $("text").value = name === "chat" ? "" : body.prompt ?? (typeof body.input === "string" ? body.input : JSON.stringify(body.input));
    $("second-row").hidden = !second;
    $("second-label").textContent = second;
    $("second").value = second ? body[second] ?? "" : "";
  }

  function bubble(text, own) {
    const made = document.createElement("p");
    made.textContent = text;
    if (own) made.className = "own";
    $("talk").append(made);
    return made;
  }

  async function chat(text, signal) {
    bubble(text, true);
    messages.push({ role: "user", content: text });
    $("text").value = "";
    const answer = bubble("", false);
    const response = await send("/v1/chat/completions", { model: facts.model, messages, stream: true }, signal);
    if (!response.ok) { answer.remove(); messages.pop(); throw new Error(await problem(response)); }
    try {
      await readEvents(response, (event) => {
        if (event.error) throw new Error(event.error.message);
        answer.textContent += event.choices[0]?.delta.content ?? "";
      });
    } finally {
      messages.push({ role: "assistant", content: answer.textContent });
    }
  }

  async function complete(text, signal) {
    const response = await send("/v1/completions", { model: facts.model, prompt: text, max_tokens: 100, stream: true }, signal);
    if (!response.ok) throw new Error(await problem(response));
    show(text);
    await readEvents(response, (event) => {
      if (event.error) throw new Error(event.error.message);
      $("result").textContent += event.choices[0]?.text ?? "";
    });
  }

  function parsed(text, sample) {  // a task that reads numbers or objects gets them
    if (typeof sample === "string") return text;
    try { return JSON.parse(text); } catch { return text; }
  }

  async function run(text, signal) {
    const { name, path, body, second } = form();
    const asked = { model: facts.model, input: parsed(text, body.input) };
    if (path === "/v1/run") asked.task = name;
    if (second && $("second").value) asked[second] = $("second").value;
    const response = await send(path, asked, signal);
    if (!response.ok) throw new Error(await problem(response));
    const [result] = (await response.json()).data;
    delete result.index;
    if (Array.isArray(result.embedding)) {
      const size = result.embedding.length;
      show(`${size} numbers: ${result.embedding.slice(0, 12).map((x) => x.toFixed(4)).join(", ")}${size > 12 ? ", …" : ""}`);
    } else {
      show(JSON.stringify(result, null, 2));
    }
  }

  $("try").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running || !$("text").value.trim()) return;
    running = new AbortController();
    $("send").disabled = true;
    $("stop").hidden = false;
    $("result").hidden = true;
    const work = { chat, complete }[form().name] ?? run;
    try {
      await work($("text").value, running.signal);
    } catch (error) {
      if (error.name !== "AbortError") show(error.message, true);
    } finally {
      running = null;
      $("send").disabled = false;
      $("stop").hidden = true;
    }
  });
  $("try").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("try").requestSubmit();
  });
  $("stop").addEventListener("click", () => running?.abort());
  $("again").addEventListener("click", () => { running?.abort(); choose(); $("text").focus(); });
  $("task").addEventListener("change", () => { running?.abort(); choose(); });
  setUpCopy();
  choose();
}

if ("locked" in $("page").dataset) setUpKey(); else setUpPage();
