// The frame of all pages: login, the list of pages, the stream of events.

import { html, render, useEffect, useState } from "./dom.js";
import { Accounts } from "./accounts.js";
import { Actions } from "./actions.js";
import { Clients } from "./clients.js";
import { Disks } from "./disks.js";
import { Events } from "./events.js";
import { Fleet } from "./fleet.js";
import { Health, Jobs } from "./jobs.js";
import { Nodes } from "./nodes.js";
import { Overview } from "./overview.js";
import { State } from "./parts.js";
import { Performance } from "./performance.js";
import { Plan } from "./plan.js";
import { before, recent, rowOf } from "./samples.js";
import { ask, follow, forgetToken, keepToken, takeToken } from "./server.js";
import { Storage } from "./storage.js";

// Name, title, page, and the key that leads to it.
const PAGES = [
  ["overview", "Overview", Overview, "1"],
  ["nodes", "Nodes", Nodes, "2"],
  ["disks", "Disks", Disks, "3"],
  ["storage", "Pool and volumes", Storage, "4"],
  ["clients", "Shares and sessions", Clients, "5"],
  ["accounts", "Users and access", Accounts, "u"],
  ["jobs", "Jobs", Jobs, "6"],
  ["health", "Health", Health, "7"],
  ["events", "Events", Events, "e"],
  ["performance", "Performance", Performance, "8"],
  ["fleet", "Fleet", Fleet, "9"],
  ["plan", "Plan", Plan, "0"],
];

const pageOf = () => {
  const name = location.hash.slice(1);
  return PAGES.some(([known]) => known === name) ? name : "overview";
};

// Who lives is known at once; of a server that does not answer nobody knows how it is.
const healthOf = (live) => (live.health.health === "healthy" && (live.unanswered?.length || live.cluster?.nodes.some((node) => node.state === "down")) ? "warning" : live.health.health);

const Login = ({ error, enter }) => {
  const [token, setToken] = useState("");
  const submit = (event) => {
    event.preventDefault();
    if (token.trim()) enter(token.trim());
  };
  return html`<main class="login"><form onSubmit=${submit}>
    <img src="/dashboard/icon.svg" alt="" width="48" height="48" />
    <h1>Cenote</h1>
    <div class="field"><label for="token">Token of the API</label>
      <input id="token" type="password" value=${token} onInput=${(event) => setToken(event.target.value)} autocomplete="off" autofocus /></div>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    <button class="main" type="submit">Log in</button>
    <p class="hint"><code>cenote dashboard</code> on the server prints a link that logs in. The token is in <code>api.token</code> of its data directory.</p>
  </form></main>`;
};

const THEMES = { "": "Light or dark as the system has it", light: "Light", dark: "Dark" };

const Theme = ({ changed }) => {
  const [theme, setTheme] = useState(sessionStorage.getItem("cenote-theme") ?? "");
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    sessionStorage.setItem("cenote-theme", theme);
    changed(theme);
  }, [theme]);
  const next = { "": "dark", dark: "light", light: "" }[theme];
  return html`<button type="button" class="small" title=${THEMES[theme]} aria-label=${`Colours: ${THEMES[theme]}`} onClick=${() => setTheme(next)}>${{ "": "◐", dark: "●", light: "○" }[theme]}</button>`;
};

const App = () => {
  const [token, setToken] = useState(takeToken());
  const [error, setError] = useState("");
  const [live, setLive] = useState(null);
  const [samples, setSamples] = useState([]);
  const [trouble, setTrouble] = useState("");
  const [page, setPage] = useState(pageOf());
  const [, setTheme] = useState("");
  const [age, setAge] = useState(0);

  const leave = (why) => {
    forgetToken();
    setToken(null);
    setLive(null);
    setSamples([]);
    setError(why ?? "");
  };

  useEffect(() => {
    const turn = () => {
      // A link with a token, opened in a tab that is logged in.
      if (location.hash.startsWith("#token=")) setToken(takeToken());
      setPage(pageOf());
      window.scrollTo(0, 0);
    };
    const key = (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea, dialog")) return;
      const found = PAGES.find(([, , , key]) => key === event.key);
      if (found) location.hash = found[0];
    };
    addEventListener("hashchange", turn);
    addEventListener("keydown", key);
    return () => {
      removeEventListener("hashchange", turn);
      removeEventListener("keydown", key);
    };
  }, []);

  useEffect(() => {
    if (!token) return undefined;
    let shownAt = Date.now();
    let last = 0;
    const stop = follow(
      (event) => {
        shownAt = Date.now();
        setAge(0);
        if (event.error) {
          setTrouble(event.error);
          return;
        }
        setTrouble("");
        setLive(event);
        const row = rowOf(event);
        setSamples((all) => recent([...all, row]));
        // The first event, and the first one after a gap that the server has seen and this page has not.
        if (row.at - last > 2.5) before([row], event).then((known) => setSamples((all) => recent(known.concat(all.filter((one) => one.at > row.at)))));
        last = row.at;
      },
      (said) => {
        if (said === true) setTrouble("");
        else if (said.kind === "unauthorized") leave("That is not the server's token.");
        else setTrouble(said.message);
      },
    );
    const timer = setInterval(() => setAge(Math.floor((Date.now() - shownAt) / 1000)), 1000);
    return () => {
      stop();
      clearInterval(timer);
    };
  }, [token]);

  useEffect(() => {
    const title = PAGES.find(([name]) => name === page)[1];
    // On a narrow screen the list of pages is a line that moves.
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    document.title = live ? `${title} · ${live.server} · Cenote` : "Cenote";
  }, [page, live?.server]);

  if (!token) {
    const enter = async (typed) => {
      keepToken(typed);
      try {
        await ask("GET", "/health");
        setError("");
        setToken(typed);
      } catch (refused) {
        leave(refused.kind === "unauthorized" ? "That is not the server's token." : refused.message);
      }
    };
    return html`<${Login} error=${error} enter=${enter} />`;
  }
  const Page = PAGES.find(([name]) => name === page)[2];
  const issues = live?.health.issues.filter((issue) => !issue.is_muted).length ?? 0;
  const running = live?.jobs.filter((job) => job.state === "running").length ?? 0;
  const badge = { health: issues, jobs: running, fleet: live?.fleet ? 1 : 0 };
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("main").focus(); }}>To the content</a>
    <header class="top">
      <img src="/dashboard/icon.svg" alt="" width="28" height="28" />
      <b>${live?.cluster?.name ?? live?.server ?? "Cenote"}</b>
      ${live && html`<${State} of=${healthOf(live)} />`}
      <span class="fill"></span>
      ${live?.cluster?.name && html`<span class="quiet">by ${live.server}</span>`}
      <${Theme} changed=${setTheme} />
      <button type="button" class="small" onClick=${() => leave()}>Log out</button>
    </header>
    <nav aria-label="Pages">${PAGES.map(([name, title, , key]) => html`<a href=${`#${name}`} key=${name} aria-current=${page === name ? "page" : undefined} title=${`Key ${key}`}>
      ${title}${badge[name] ? html`<span class="badge">${badge[name]}</span>` : ""}</a>`)}</nav>
    <main tabindex="-1" data-page=${page} data-live=${live ? "yes" : "no"}>
      ${(trouble || age > 4) && html`<p class="stale" role="alert"><${State} of="no" word=${trouble || "The server says nothing"} /> What is shown is ${age} s old.</p>`}
      ${live?.unanswered?.length > 0 && html`<p class="stale" role="status"><${State} of="partly" word=${`No answer from ${live.unanswered.join(", ")}`} /> What is known there alone is missing on this page.</p>`}
      ${live ? html`<${Page} live=${live} samples=${samples} />` : html`<p class="empty">Waiting for the server …</p>`}
    </main>
    <${Actions} />`;
};

render(html`<${App} />`, document.getElementById("app"));
