// The server: its token, its API, its events. The token is kept for this tab only, and sent in a header only.

const KEY = "cenote-token";

// A link of `cenote dashboard` ends in #token=TOKEN: it is taken out of the address at once.
export function takeToken() {
  const found = location.hash.match(/^#token=([!-~]+)$/);
  if (found) {
    sessionStorage.setItem(KEY, found[1]);
    history.replaceState(null, "", location.pathname + "#overview");
  }
  return sessionStorage.getItem(KEY);
}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

export function forgetToken() {
  sessionStorage.removeItem(KEY);
}

const bearer = () => ({ Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` });

// What the server refused: `kind` is a word of its API.
export class Refused extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

async function refusal(response) {
  const told = await response.json().catch(() => null);
  return new Refused(told?.kind ?? "internal", told?.message ?? `The server answered ${response.status}.`);
}

// Servers that have not confirmed a change of accounts or shares, with commas between.
let unconfirmed = null;

export function takeUnconfirmed() {
  const servers = unconfirmed;
  unconfirmed = null;
  return servers;
}

// Asks the API: `path` is below /api/v1, `body` becomes JSON.
export async function ask(method, path, body) {
  const headers = bearer();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(`/api/v1${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Refused("unavailable", "The server cannot be reached.");
  }
  unconfirmed = response.headers.get("cenote-unconfirmed") ?? unconfirmed;
  if (!response.ok) throw await refusal(response);
  const text = await response.text();
  return text === "" ? null : JSON.parse(text);
}

// An event has at most so many characters: more is not ours.
const EVENT_MAX = 64 << 20;

// Reads events until `stop` is called; connects again after a second. `show` gets each event; `say` gets true or why there are none.
export function follow(show, say) {
  const controller = new AbortController();
  const once = async () => {
    const response = await fetch("/api/v1/dashboard/events", { headers: bearer(), signal: controller.signal, cache: "no-store" });
    if (!response.ok) throw await refusal(response);
    say(true);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      if (text.length > EVENT_MAX) throw new Refused("internal", "The server sends what is no event.");
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        const event = text.slice(0, end);
        text = text.slice(end + 2);
        if (event.startsWith("data: ")) show(JSON.parse(event.slice(6)));
      }
    }
  };
  (async () => {
    while (!controller.signal.aborted) {
      try {
        await once();
        say(new Refused("unavailable", "The server ended the connection."));
      } catch (error) {
        if (controller.signal.aborted) return;
        say(error instanceof Refused ? error : new Refused("unavailable", "The server cannot be reached."));
      }
      await new Promise((wake) => setTimeout(wake, 1000));
    }
  })();
  return () => controller.abort();
}
