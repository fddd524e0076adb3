// Requests to the studio's own server. The token comes with the first address and stays in this browser.

const KEY = "headway-token";

/** Take the token out of the address, so that it is in no bookmark and on no screen. */
export function takeToken() {
  const here = new URL(location.href), given = here.searchParams.get("token");
  if (!given) return;
  localStorage.setItem(KEY, given);
  here.searchParams.delete("token");
  history.replaceState(null, "", here.pathname + here.search + here.hash);
}

/** An error of the server: code, message, what to do. */
export class ApiError extends Error {
  constructor(status, { message, hint = "", code = "" }) {
    super(message);
    Object.assign(this, { status, hint, code });
  }
}

async function ask(method, path, body, signal) {
  const headers = { authorization: "Bearer " + (localStorage.getItem(KEY) || "") };
  const raw = body === undefined || body instanceof FormData || body instanceof Blob;
  if (!raw) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, body: raw ? body : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "the studio does not answer", hint: "start it again: headway studio" });
  }
  if (!answer.ok) {
    const found = await answer.json().catch(() => ({}));
    throw new ApiError(answer.status, found.error || { message: answer.statusText });
  }
  return answer;
}

export const get = async (path, signal) => (await ask("GET", path, undefined, signal)).json();
export const post = async (path, body = {}, signal) => (await ask("POST", path, body, signal)).json();
export const put = async (path, blob, signal) => (await ask("PUT", path, blob, signal)).json();
export const remove = async path => (await ask("DELETE", path)).json();

/** Values of server-sent events until the signal ends them; a POST body starts one. Throws when the stream breaks. */
export async function* stream(path, { body, signal } = {}) {
  const answer = await ask(body === undefined ? "GET" : "POST", path, body, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Follow a stream of states for as long as a page is open: again after a break, a restart or a sleep. */
export function follow(path, signal, show) {
  const state = document.getElementById("link-state");
  (async () => {
    for (let wait = 500; !signal.aborted; wait = Math.min(5000, 2 * wait)) {
      try {
        for await (const value of stream(path, { signal })) {
          state.textContent = "";
          wait = 500;
          show(value);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 401 || error.status === 404) { show(null, error); return; }
        state.textContent = "not connected – trying again";
      }
      await new Promise(done => setTimeout(done, wait));
    }
  })();
}
